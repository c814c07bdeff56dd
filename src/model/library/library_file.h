// Loads the description of a model by libllama, without weights.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_FILE_H_
#define EBB_MODEL_LIBRARY_LIBRARY_FILE_H_

#include <cstdint>
#include <string>

#include "ebb/lossless.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/library/internals.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/vocabulary.h"

namespace ebb {

// kLibraryCacheRows is the size of libllama's own cache. ebb keeps rows itself, so any number
// works.
inline constexpr uint32_t kLibraryCacheRows = 256;

// Refuses metadata by which libllama divides, or for which it allocates memory, without checking
// it, and metadata that it ignores. Errors: Corrupt; Unsupported.
[[nodiscard]] Status CheckLibraryMetadata(const GgufFile& file, const std::string& architecture);

// Returns the source of guesses that a file of this architecture is as a draft model: the kind of
// head that it holds, or Speculation::kModel.
[[nodiscard]] Speculation DraftSourceOf(const std::string& architecture);

// Returns whether the file has exactly one layer for multi-token prediction (MTP), of an
// architecture whose graph of it libllama builds.
[[nodiscard]] bool HasMtpLayer(const GgufFile& file, const std::string& architecture);

// Loads a model without weights; `loads_mtp`: with its MTP layer. Errors: Corrupt, with libllama's
// message; OutOfMemory.
[[nodiscard]] Result<VocabModel> LoadWithoutWeights(const GgufFile& file, bool loads_mtp);

// Returns the parameters of libllama's own contexts, for a context of the trained length. Errors:
// InvalidArgument (the options' RoPE scaling).
[[nodiscard]] Result<llama_cparams> ContextParams(const llama_model& model,
                                                  const ModelOptions& options);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_FILE_H_
