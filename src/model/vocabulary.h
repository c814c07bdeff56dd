// The tokenizer and the chat template of a file, held by libllama.
#ifndef EBB_MODEL_VOCABULARY_H_
#define EBB_MODEL_VOCABULARY_H_

#include <cstddef>
#include <memory>

#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"

namespace ebb {

using VocabModel = std::unique_ptr<llama_model, LlamaModelDeleter>;

// Corrupt or Unsupported for a tokenizer that libllama would end the process for.
[[nodiscard]] Status CheckTokenizer(const GgufFile& file);
// Corrupt where the vocabulary adds a token that it does not have.
[[nodiscard]] Status CheckAddedTokens(const llama_model& vocab_model);

// The most bytes that one token stands for; at least 1.
[[nodiscard]] size_t LongestTokenBytes(const llama_model& vocab_model);

}  // namespace ebb

#endif  // EBB_MODEL_VOCABULARY_H_
