#include "src/model/sampling/grammar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <llama.h>

#include "src/base/llama_runtime.h"
#include "src/model/loaded_model.h"
#include "src/model/sampling/grammar_check.h"

namespace ebb {
namespace {

const llama_vocab* VocabOf(const Model& model) {
  return llama_model_get_vocab(model.loaded().vocab_model.get());
}

std::string AsPattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Where in the grammar it fails, libllama itself writes to stderr.
Result<SamplerPtr> MakeSampler(const llama_vocab* vocab, const std::string& grammar,
                               const std::vector<std::string>& patterns,
                               const std::vector<Token>& tokens) {
  EBB_RETURN_IF_ERROR(CheckGrammar(grammar));
  const LlamaErrorScope errors;
  std::vector<const char*> pointers;
  for (const std::string& pattern : patterns) pointers.push_back(pattern.c_str());
  try {
    SamplerPtr sampler(patterns.empty() && tokens.empty()
                           ? llama_sampler_init_grammar(vocab, grammar.c_str(), "root")
                           : llama_sampler_init_grammar_lazy_patterns(
                                 vocab, grammar.c_str(), "root", pointers.data(), pointers.size(),
                                 tokens.data(), tokens.size()));
    if (sampler != nullptr) return sampler;
  } catch (const std::exception& error) {
    return InvalidArgument(fmt::format("the grammar is refused: {}", error.what()));
  }
  return InvalidArgument(fmt::format("the grammar is refused: {}", errors.FirstError()));
}

// Tokens whose texts, control tokens' included, are together `text`. Empty: there are none.
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
  // Tokenizers may add a space in front: byte by byte then.
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

void SamplerDeleter::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }

Result<std::unique_ptr<Grammar>> Grammar::Create(const Model& model,
                                                 const SamplingOptions& options) {
  std::unique_ptr<Grammar> grammar(new Grammar());
  grammar->model_ = &model;
  grammar->waits_ = !options.grammar_triggers.empty();
  std::vector<std::string> patterns;
  for (size_t i = 0; i < options.grammar_triggers.size(); ++i) {
    const GrammarTrigger& trigger = options.grammar_triggers[i];
    const std::string field = fmt::format("grammar_triggers[{}]", i);
    if (trigger.kind == GrammarTrigger::Kind::kToken) {
      if (trigger.token < 0 || trigger.token >= model.shape().vocab_size) {
        return InvalidArgument(field,
                               fmt::format("token {} is not in the vocabulary", trigger.token));
      }
      grammar->trigger_tokens_.push_back(trigger.token);
      continue;
    }
    if (trigger.text.empty()) {
      return InvalidArgument(field, "expected a text, found none");
    }
    if (trigger.kind == GrammarTrigger::Kind::kText) {
      grammar->texts_.push_back(trigger.text);
      patterns.push_back(AsPattern(trigger.text));
      continue;
    }
    try {
      grammar->patterns_.emplace_back(trigger.text);
    } catch (const std::regex_error& error) {
      return InvalidArgument(field, error.what());
    }
    patterns.push_back(trigger.text);
  }
  if (grammar->waits_ && !options.grammar_prefix.empty()) {
    return InvalidArgument("grammar_prefix", "cannot be combined with grammar_triggers");
  }
  EBB_ASSIGN_OR_RETURN(grammar->sampler_, MakeSampler(VocabOf(model), options.grammar, patterns,
                                                      grammar->trigger_tokens_));
  EBB_RETURN_IF_ERROR(grammar->AcceptPrefix(options.grammar_prefix));
  return grammar;
}

Status Grammar::AcceptPrefix(const std::string& prefix) {
  if (prefix.empty()) return OkStatus();
  const std::vector<Token> tokens = TokensOf(*model_, prefix);
  if (tokens.empty()) return Unsupported("grammar_prefix", "the vocabulary has no tokens for it");
  try {
    for (const Token token : tokens) llama_sampler_accept(sampler_.get(), token);
  } catch (const std::exception& error) {
    return InvalidArgument("grammar_prefix",
                           fmt::format("the grammar does not admit it: {}", error.what()));
  }
  return OkStatus();
}

std::unique_ptr<Grammar> Grammar::Clone() const {
  std::unique_ptr<Grammar> clone(new Grammar());
  clone->model_ = model_;
  clone->sampler_.reset(llama_sampler_clone(sampler_.get()));
  clone->texts_ = texts_;
  clone->patterns_ = patterns_;
  clone->trigger_tokens_ = trigger_tokens_;
  clone->waits_ = waits_;
  clone->held_ = held_;
  clone->held_text_ = held_text_;
  return clone;
}

bool Grammar::IsTriggerToken(Token token) const {
  return std::ranges::find(trigger_tokens_, token) != trigger_tokens_.end();
}

bool Grammar::HasTrigger(const std::string& text) const {
  const auto in_text = [&](const std::string& trigger) {
    return text.find(trigger) != std::string::npos;
  };
  const auto matches = [&](const std::regex& pattern) { return std::regex_search(text, pattern); };
  return std::ranges::any_of(texts_, in_text) || std::ranges::any_of(patterns_, matches);
}

bool Grammar::Admits(Token token) const {
  if (waits_) {
    const std::string text = held_text_ + model_->TokenText(token, Model::ControlTokens::kShow);
    if (!IsTriggerToken(token) && !HasTrigger(text)) return true;
    try {
      Clone()->Accept(token);
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
  llama_token_data one = {token, 1.0F, 0.0F};
  llama_token_data_array array = {&one, 1, -1, false};
  llama_sampler_apply(sampler_.get(), &array);
  return std::isfinite(one.logit);
}

void Grammar::Bar(llama_token_data_array* candidates) const {
  if (!waits_) llama_sampler_apply(sampler_.get(), candidates);
}

void Grammar::Accept(Token token) {
  if (!waits_) return llama_sampler_accept(sampler_.get(), token);
  held_.push_back(token);
  held_text_ += model_->TokenText(token, Model::ControlTokens::kShow);
  const bool by_token = IsTriggerToken(token);
  if (!by_token && !HasTrigger(held_text_)) return DropWhatCannotTrigger();
  waits_ = false;
  if (by_token) held_ = {token};
  for (const Token one : held_) llama_sampler_accept(sampler_.get(), one);
  held_.clear();
  held_text_.clear();
}

// A match of a pattern may begin anywhere; a text begins within its own length of the end.
void Grammar::DropWhatCannotTrigger() {
  if (!patterns_.empty()) return;
  size_t longest = 0;
  for (const std::string& text : texts_) longest = std::max(longest, text.size());
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
