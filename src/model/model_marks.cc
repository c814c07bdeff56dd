// Reads a model file's special tokens and chat template.
#include <optional>
#include <string_view>

#include <llama.h>

#include "ebb/model.h"
#include "src/model/chat/chat.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

std::optional<Token> TokenOrNothing(llama_token token) {
  return token == LLAMA_TOKEN_NULL ? std::nullopt : std::optional<Token>(token);
}

const llama_vocab* MarksOf(const LoadedModel& loaded) {
  return llama_model_get_vocab(loaded.vocab_model.get());
}

}  // namespace

InfillTokens Model::infill_tokens() const {
  const llama_vocab* vocab = MarksOf(*loaded_);
  return {.prefix = TokenOrNothing(llama_vocab_fim_pre(vocab)),
          .suffix = TokenOrNothing(llama_vocab_fim_suf(vocab)),
          .middle = TokenOrNothing(llama_vocab_fim_mid(vocab)),
          .repository = TokenOrNothing(llama_vocab_fim_rep(vocab)),
          .file = TokenOrNothing(llama_vocab_fim_sep(vocab))};
}

std::optional<Token> Model::BeginToken() const {
  return TokenOrNothing(llama_vocab_bos(MarksOf(*loaded_)));
}

std::optional<Token> Model::EndToken() const {
  return TokenOrNothing(llama_vocab_eos(MarksOf(*loaded_)));
}

std::string_view Model::chat_template() const {
  if (!loaded_->chat->source().empty()) return loaded_->chat->source();
  const char* source = llama_model_chat_template(loaded_->vocab_model.get(), nullptr);
  return source == nullptr ? std::string_view() : source;
}

}  // namespace ebb
