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

// The number of tokens that the file names; Corrupt when it names none or far too many.
[[nodiscard]] Result<int> CountTokens(const GgufFile& file);

// Corrupt or Unsupported for a tokenizer that libllama would end the process for.
[[nodiscard]] Status CheckTokenizer(const GgufFile& file);
// Corrupt where the vocabulary adds a token that it does not have.
[[nodiscard]] Status CheckAddedTokens(const llama_model& vocab_model);

// Loads a model without weights. Corrupt for a vocabulary that libllama refuses, that would abort
// it, or that it could not tokenize with.
[[nodiscard]] Result<VocabModel> LoadVocabulary(const GgufFile& file);

// The most bytes that one token stands for; at least 1.
[[nodiscard]] size_t LongestTokenBytes(const llama_model& vocab_model);

}  // namespace ebb

#endif  // EBB_MODEL_VOCABULARY_H_
