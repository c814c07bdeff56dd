#include "src/generate/token_choice.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace ebb {

TokenChoice::TokenChoice(const GenerateOptions& options, Sampler* sampler,
                         std::function<bool(std::string_view text, TextPart part)> sink)
    : options_(&options),
      model_(&sampler->model()),
      sampler_(sampler),
      stream_({.stops = options.min_tokens > 0 ? std::vector<std::string>() : options.stops,
               .turn_ends = options.turn_ends,
               .thinking_start = options.thinking_start,
               .thinking_end = options.thinking_end,
               .opens_in_thinking = options.opens_in_thinking,
               .channels = options.channels,
               .sink = std::move(sink)}),
      thinking_budget_(options.thinking_budget) {}

Status TokenChoice::Prepare() {
  const bool ignores_end = options_->on_end == GenerateOptions::OnEnd::kIgnore;
  if (ignores_end || options_->min_tokens > 0) {
    for (Token token = 0; token < model_->shape().vocab_size; ++token) {
      if (!model_->EndsGeneration(token)) continue;
      (ignores_end ? end_tokens_ : early_ends_).push_back(token);
    }
  }
  if (options_->min_tokens > 0) {
    for (const Token token : options_->stop_tokens) {
      const bool is_there = token >= 0 && token < model_->shape().vocab_size;
      if (is_there) early_ends_.push_back(token);
    }
    early_ends_.insert(early_ends_.end(), end_tokens_.begin(), end_tokens_.end());
  }
  if (!options_->thinking_end.empty()) {
    EBB_ASSIGN_OR_RETURN(closing_, model_->Tokenize(options_->thinking_end, Model::AddBos::kNo,
                                                    Model::Specials::kParse));
    EBB_ASSIGN_OR_RETURN(opening_, model_->Tokenize(options_->thinking_start, Model::AddBos::kNo,
                                                    Model::Specials::kParse));
  }
  return OkStatus();
}

TokenChoice TokenChoice::Clone() const {
  std::unique_ptr<Sampler> sampler = sampler_->Clone();
  TokenChoice clone(*options_, sampler.get(), nullptr);
  clone.own_sampler_ = std::move(sampler);
  clone.stream_ = stream_.WithoutSink();
  clone.end_tokens_ = end_tokens_;
  clone.opening_ = opening_;
  clone.early_ends_ = early_ends_;
  clone.num_shown_ = num_shown_;
  clone.closing_ = closing_;
  clone.forced_ = forced_;
  clone.thinking_budget_ = thinking_budget_;
  clone.budget_spent_ = budget_spent_;
  clone.thought_tokens_ = thought_tokens_;
  return clone;
}

void TokenChoice::ForceEndOfThought() {
  const bool is_spent = thinking_budget_ >= 0 && thought_tokens_ >= thinking_budget_;
  if (closing_.empty() || budget_spent_ || !stream_.in_thought() || !is_spent) return;
  budget_spent_ = true;
  forced_.assign(closing_.rbegin(), closing_.rend());
}

Status TokenChoice::ForceMarks() {
  if (options_->channels.empty() || !forced_.empty()) return OkStatus();
  std::string_view marks;
  if (stream_.awaits_marks() && (budget_spent_ || sampler_->HasActiveGrammar())) {
    marks = options_->after_thought;
  } else if (stream_.is_undecided() && thinking_budget_ == 0) {
    // The mark that begins the first message is already in the prompt.
    marks = options_->after_thought;
    marks.remove_prefix(std::min(options_->channels.message.size(), marks.size()));
  }
  if (!marks.starts_with(stream_.pending())) return OkStatus();
  marks.remove_prefix(stream_.pending().size());
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                       model_->Tokenize(marks, Model::AddBos::kNo, Model::Specials::kParse));
  forced_.assign(tokens.rbegin(), tokens.rend());
  return OkStatus();
}

Result<Token> TokenChoice::Next(std::span<const float> logits, Position position) {
  ForceEndOfThought();
  EBB_RETURN_IF_ERROR(ForceMarks());
  if (!forced_.empty()) {
    const Token token = forced_.back();
    forced_.pop_back();
    sampler_->Accept(token);
    was_forced_ = true;
    return token;
  }
  was_forced_ = false;
  if (IsTooShort()) {
    const Result<Token> token = SampleWithout(early_ends_, logits, position);
    if (token.ok()) return token;
    // Continues with the other mask, because the grammar may admit nothing but a stop token.
  }
  return SampleWithout(end_tokens_, logits, position);
}

Result<Token> TokenChoice::SampleWithout(std::span<const Token> masked,
                                         std::span<const float> logits, Position position) {
  if (!masked.empty()) {
    masked_logits_.assign(logits.begin(), logits.end());
    for (const Token token : masked) {
      masked_logits_[token] = -std::numeric_limits<float>::infinity();
    }
    logits = masked_logits_;
  }
  return Sample(logits, position);
}

Result<Token> TokenChoice::Sample(std::span<const float> logits, Position position) {
  using Constraint = Sampler::Constraint;
  if (stream_.is_undecided()) {
    return sampler_->Sample(logits, position, Constraint::kOpen,
                            [this](Token token) { return MayOpenThought(token); });
  }
  sampler_->Settle(stream_.has_thought() ? Constraint::kFree : Constraint::kGrammar);
  if (!stream_.in_thought()) return sampler_->Sample(logits, position);
  // The grammar applies from the answer's first character on, so that the token that ends the
  // thought must not contain text of the answer. An answer that ends inside its thought would never
  // meet the grammar, so that an end token ends the thought instead.
  return sampler_->Sample(logits, position, Constraint::kFree, [this](Token token) {
    if (!model_->EndsGeneration(token)) return !stream_.LeavesThoughtWithText(TextOf(token));
    thinking_budget_ = 0;
    return false;
  });
}

std::string TokenChoice::TextOf(Token token) const {
  return ShownText(*model_, token, options_->thinking_start, options_->thinking_end);
}

bool TokenChoice::MayOpenThought(Token token) const {
  // With a budget of 0 no thought begins unless the grammar asks for its tag.
  if (thinking_budget_ == 0 && !stream_.HasBegunTag()) return false;
  // If the vocabulary has the tag as one token, only that token may begin a thought.
  if (opening_.size() == 1 && token != opening_[0]) return false;
  return stream_.MayOpenThought(TextOf(token));
}

bool TokenChoice::Ends(Token token) const {
  return model_->EndsGeneration(token) ||
         std::ranges::find(options_->stop_tokens, token) != options_->stop_tokens.end();
}

double TokenChoice::margin() const {
  return was_forced_ ? std::numeric_limits<double>::infinity() : sampler_->margin();
}

TextStream::State TokenChoice::Show(Token token) {
  const bool was_thought = stream_.in_thought();
  ++num_shown_;
  const TextStream::State state = stream_.Push(TextOf(token));
  if (num_shown_ == options_->min_tokens) stream_.SetStops(options_->stops);
  if (was_thought && stream_.in_thought() && !budget_spent_) ++thought_tokens_;
  return state;
}

TextStream::State TokenChoice::ShowAgain(Token token) {
  ForceEndOfThought();
  SeeForced(token);
  const TextStream::State state = Show(token);
  if (!stream_.in_thought()) forced_.clear();
  return state;
}

// Removes `token`, of an answer that is passed through again, from the rest of the forced tag. If
// the thought continued beyond the budget, which may have been larger then, the tag begins again
// with its first token.
void TokenChoice::SeeForced(Token token) {
  if (forced_.empty()) return;
  if (forced_.back() != token) forced_.assign(closing_.rbegin(), closing_.rend());
  if (forced_.back() == token) forced_.pop_back();
}

}  // namespace ebb
