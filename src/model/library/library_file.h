// Loads the description of a model by libllama, without weights.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_FILE_H_
#define EBB_MODEL_LIBRARY_LIBRARY_FILE_H_

#include <cstdint>
#include <string>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/library/internals.h"
#include "src/model/vocabulary.h"

namespace ebb {

// Rows that libllama's cache has room for; ebb has rows of its own, so that any number works.
inline constexpr uint32_t kLibraryCacheRows = 256;

// Refuses metadata that libllama divides by, allocates for or ignores. Errors: Corrupt;
// Unsupported.
[[nodiscard]] Status CheckLibraryMetadata(const GgufFile& file, const std::string& architecture);

// Corrupt with libllama's message; OutOfMemory.
[[nodiscard]] Result<VocabModel> LoadWithoutWeights(const GgufFile& file);

// Chooses the parameters of libllama's own contexts for a context of the trained length.
// InvalidArgument: the options' RoPE scaling.
[[nodiscard]] Result<llama_cparams> ContextParams(const llama_model& model,
                                                  const ModelOptions& options);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_FILE_H_
