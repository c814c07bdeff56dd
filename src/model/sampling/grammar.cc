#include "src/model/sampling/grammar.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llama.h>

#include "src/model/sampling/grammar_program.h"
#include "src/model/sampling/token_order.h"

namespace ebb {
namespace {

Status TooCostly() {
  return InvalidArgument(
      "the grammar is refused: it has too many ways to begin an answer, and would take too long");
}

// Returns the token that a grammar names: "<text>" is the control token with that text, "<[5]>"
// token 5.
Result<Token> TokenNamed(const Model& model, std::string_view name) {
  const std::string text(name);
  if (text.starts_with("<[") && text.ends_with("]>")) {
    const std::string number = text.substr(2, text.size() - 4);
    const bool is_number = !number.empty() && number.size() < 10 &&
                           number.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && std::stoi(number) < model.shape().vocab_size) return std::stoi(number);
  }
  const auto tokens = model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse);
  if (tokens.ok() && tokens->size() == 1) return (*tokens)[0];
  return InvalidArgument(
      fmt::format("expected a token of the vocabulary, found `{}`", text.substr(0, 100)));
}

// Parses a grammar, or returns the program of the grammar that this thread parsed last if a sampler
// still uses it, since all choices of a request have the same grammar.
Result<std::shared_ptr<const GrammarProgram>> ProgramOf(const Model& model,
                                                        const std::string& text) {
  struct Parsed {
    const Model* model = nullptr;
    std::string text;
    std::weak_ptr<const GrammarProgram> program;
  };
  thread_local Parsed last;
  auto program = last.program.lock();
  if (program != nullptr && last.model == &model && last.text == text) return program;
  EBB_ASSIGN_OR_RETURN(GrammarProgram parsed, ParseGrammar(text, [&](std::string_view name) {
                         return TokenNamed(model, name);
                       }));
  program = std::make_shared<const GrammarProgram>(std::move(parsed));
  last = {&model, text, program};
  return program;
}

// Returns tokens whose joined texts, including those of control tokens, are `text`; empty: there
// are none.
std::vector<Token> TokensOf(const Model& model, const std::string& text) {
  const auto shown = [&](Token token) {
    return model.TokenText(token, Model::ControlTokens::kShow);
  };
  const auto tokens = model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kParse);
  std::string together;
  if (tokens.ok()) {
    for (const Token token : *tokens) together += shown(token);
  }
  if (tokens.ok() && together == text) return *tokens;
  // The tokenizer may have added a space in front; then the text is composed byte by byte.
  std::array<Token, 256> of_byte;
  of_byte.fill(-1);
  for (Token token = 0; token < model.shape().vocab_size; ++token) {
    const std::string one = shown(token);
    if (one.size() == 1) of_byte[static_cast<unsigned char>(one[0])] = token;
  }
  std::vector<Token> bytes;
  for (const char c : text) bytes.push_back(of_byte[static_cast<unsigned char>(c)]);
  if (std::ranges::find(bytes, -1) != bytes.end()) return {};
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Grammar>> Grammar::Create(const Model& model,
                                                 const SamplingOptions& options) {
  std::unique_ptr<Grammar> grammar(new Grammar());
  grammar->model_ = &model;
  grammar->waits_ = !options.grammar_triggers.empty();
  for (size_t i = 0; i < options.grammar_triggers.size(); ++i) {
    EBB_RETURN_IF_ERROR(
        grammar->AddTrigger(options.grammar_triggers[i], fmt::format("grammar_triggers[{}]", i)));
  }
  if (grammar->waits_ && !options.grammar_prefix.empty()) {
    return InvalidArgument("grammar_prefix", "cannot be combined with grammar_triggers");
  }
  EBB_ASSIGN_OR_RETURN(auto program, ProgramOf(model, options.grammar));
  grammar->matcher_ = GrammarMatcher::Create(std::move(program), TokenOrder::Of(model));
  if (grammar->is_overrun()) return TooCostly();
  if (grammar->matcher_->IsDead()) {
    return InvalidArgument("the grammar is refused: there is no text that it admits");
  }
  EBB_RETURN_IF_ERROR(grammar->AcceptPrefix(options.grammar_prefix));
  return grammar;
}

Status Grammar::AddTrigger(const GrammarTrigger& trigger, const std::string& field) {
  if (trigger.kind == GrammarTrigger::Kind::kToken) {
    if (trigger.token < 0 || trigger.token >= model_->shape().vocab_size) {
      return InvalidArgument(field,
                             fmt::format("token {} is not in the vocabulary", trigger.token));
    }
    trigger_tokens_.push_back(trigger.token);
    return OkStatus();
  }
  if (trigger.text.empty()) return InvalidArgument(field, "expected a text, found none");
  Trigger& added = triggers_.emplace_back(trigger.text);
  if (trigger.kind == GrammarTrigger::Kind::kText) return OkStatus();
  try {
    added.pattern.emplace(trigger.text);
  } catch (const std::regex_error& error) {
    return InvalidArgument(field, error.what());
  }
  return OkStatus();
}

Status Grammar::AcceptPrefix(const std::string& prefix) {
  if (prefix.empty()) return OkStatus();
  const std::vector<Token> tokens = TokensOf(*model_, prefix);
  if (tokens.empty()) return Unsupported("grammar_prefix", "the vocabulary has no tokens for it");
  for (const Token token : tokens) {
    if (matcher_->Accept(token, model_->TokenText(token, Model::ControlTokens::kShow))) continue;
    if (is_overrun()) return TooCostly();
    return InvalidArgument("grammar_prefix", "the grammar does not admit it");
  }
  return OkStatus();
}

std::unique_ptr<Grammar> Grammar::Clone() const {
  std::unique_ptr<Grammar> clone(new Grammar());
  clone->model_ = model_;
  clone->matcher_ = matcher_->Clone();
  clone->triggers_ = triggers_;
  clone->trigger_tokens_ = trigger_tokens_;
  clone->waits_ = waits_;
  clone->held_ = held_;
  clone->held_text_ = held_text_;
  return clone;
}

bool Grammar::IsTriggerToken(Token token) const {
  return std::ranges::find(trigger_tokens_, token) != trigger_tokens_.end();
}

// Finds the beginning of the grammar. For a pattern, that is its first group that matched some
// text, or else the whole match.
std::optional<size_t> Grammar::FindTrigger(const std::string& text) const {
  for (const Trigger& trigger : triggers_) {
    if (!trigger.pattern.has_value()) {
      const size_t at = text.find(trigger.text);
      if (at != std::string::npos) return at;
      continue;
    }
    std::smatch match;
    if (!std::regex_search(text, match, *trigger.pattern)) continue;
    size_t group = 1;
    while (group < match.size() && match.length(group) == 0) ++group;
    return match.position(group < match.size() ? group : 0);
  }
  return std::nullopt;
}

bool Grammar::Admits(Token token) const {
  if (!waits_) return matcher_->Admits(token);
  const std::string text = held_text_ + model_->TokenText(token, Model::ControlTokens::kShow);
  if (!IsTriggerToken(token) && !FindTrigger(text).has_value()) return true;
  return Clone()->Accept(token);
}

void Grammar::Bar(llama_token_data_array* candidates) const {
  if (waits_) return;
  const std::vector<bool> admitted = matcher_->Admitted();
  for (size_t i = 0; i < candidates->size; ++i) {
    const auto token = static_cast<size_t>(candidates->data[i].id);
    if (token < admitted.size() && admitted[token]) continue;
    candidates->data[i].logit = -std::numeric_limits<float>::infinity();
  }
}

bool Grammar::Accept(Token token) {
  const auto text_of = [&](Token one) {
    return model_->TokenText(one, Model::ControlTokens::kShow);
  };
  if (!waits_) return matcher_->Accept(token, text_of(token));
  const std::string text = text_of(token);
  const bool is_trigger = IsTriggerToken(token);
  if (is_trigger) held_.clear();
  held_.push_back(token);
  held_text_ = is_trigger ? text : held_text_ + text;
  const std::optional<size_t> begin =
      is_trigger ? std::optional<size_t>(0) : FindTrigger(held_text_);
  if (!begin.has_value()) {
    DropWhatCannotTrigger();
    return true;
  }
  waits_ = false;
  bool admits = true;
  size_t end = 0;  // of a token, in the held text
  for (const Token one : held_) {
    const std::string part = text_of(one);
    end += part.size();
    if (end <= *begin) continue;
    const size_t size = std::min(part.size(), end - *begin);
    admits = admits && matcher_->Accept(one, std::string_view(part).substr(part.size() - size));
  }
  held_.clear();
  held_text_.clear();
  return admits;
}

// Drops held tokens that can no longer belong to a trigger. A match of a pattern may begin
// anywhere, so with patterns nothing is dropped; a text must begin within its own length of the
// end.
void Grammar::DropWhatCannotTrigger() {
  size_t longest = 0;
  for (const Trigger& trigger : triggers_) {
    if (trigger.pattern.has_value()) return;
    longest = std::max(longest, trigger.text.size());
  }
  size_t dropped = 0;
  while (dropped < held_.size()) {
    const size_t size = model_->TokenText(held_[dropped], Model::ControlTokens::kShow).size();
    if (held_text_.size() - size < longest) break;
    held_text_.erase(0, size);
    ++dropped;
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(dropped));
}

}  // namespace ebb
