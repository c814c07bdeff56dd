// Holds the tokenizer and the chat template of a file, as libllama's model without weights.
#ifndef EBB_MODEL_LOADED_VOCABULARY_H_
#define EBB_MODEL_LOADED_VOCABULARY_H_

#include <cstddef>
#include <memory>

#include "ebb/status.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

using VocabModel = std::unique_ptr<llama_model, LlamaModelDeleter>;

// Checks the tokenizer. Errors: Corrupt or Unsupported, if libllama would end the process for it.
[[nodiscard]] Status CheckTokenizer(const GgufFile& file);
// Checks the tokens that the tokenizer adds to texts. Errors: Corrupt if the vocabulary does not
// have one of them.
[[nodiscard]] Status CheckAddedTokens(const llama_model& vocab_model);

// Returns the length in bytes of the longest token's text; at least 1.
[[nodiscard]] size_t LongestTokenBytes(const llama_model& vocab_model);

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_VOCABULARY_H_
