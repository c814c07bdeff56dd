// The tokenizer of a model: libllama's, on the vocabulary that the file brings.
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <llama.h>

#include "ebb/model.h"
#include "src/model/loaded_model.h"

namespace ebb {
namespace {

const llama_vocab* VocabOf(const LoadedModel& loaded) {
  return llama_model_get_vocab(loaded.vocab_model.get());
}

}  // namespace

Result<std::vector<Token>> Model::Tokenize(std::string_view text, AddBos add_bos,
                                           Specials specials) const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
    return Unsupported("the model file has no tokenizer");
  }
  // Never more tokens than bytes, and room for what the model adds at both ends.
  constexpr size_t kAddedTokens = 2;
  if (text.size() > std::numeric_limits<int32_t>::max() - kAddedTokens) {
    return InvalidArgument(
        fmt::format("expected a text of less than 2 GiB, found {} bytes", text.size()));
  }
  std::vector<Token> tokens(text.size() + kAddedTokens);
  int32_t count = 0;
  try {
    count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                           static_cast<int32_t>(tokens.size()), add_bos == AddBos::kAsModelSays,
                           specials == Specials::kParse);
    if (count < 0 && count != std::numeric_limits<int32_t>::min()) {
      tokens.resize(-static_cast<int64_t>(count));
      count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                             static_cast<int32_t>(tokens.size()), add_bos == AddBos::kAsModelSays,
                             specials == Specials::kParse);
    }
  } catch (const std::exception& error) {
    return Corrupt(fmt::format("the tokenizer of the model file failed: {}", error.what()));
  }
  if (count < 0) return InvalidArgument("the text has more tokens than can be counted");
  tokens.resize(count);
  return tokens;
}

std::string Model::TokenText(Token token, ControlTokens control) const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  if (token < 0 || token >= llama_vocab_n_tokens(vocab)) return {};
  const bool show = control == ControlTokens::kShow;
  std::string text(32, '\0');
  int32_t size =
      llama_token_to_piece(vocab, token, text.data(), static_cast<int32_t>(text.size()), 0, show);
  if (size < 0) {
    text.resize(-size);
    size =
        llama_token_to_piece(vocab, token, text.data(), static_cast<int32_t>(text.size()), 0, show);
  }
  text.resize(size);
  return text;
}

bool Model::EndsGeneration(Token token) const {
  return llama_vocab_is_eog(VocabOf(*loaded_), token);
}

Token Model::PaddingToken() const {
  const llama_vocab* vocab = VocabOf(*loaded_);
  for (const Token token : {llama_vocab_pad(vocab), llama_vocab_eos(vocab)}) {
    if (token != LLAMA_TOKEN_NULL) return token;
  }
  return 0;
}

}  // namespace ebb
