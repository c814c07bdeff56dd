#include "ebb/generate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/engine_impl.h"
#include "src/engine/text_stream.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

class Generation {
 public:
  Generation(Session& session, Sampler& sampler, const GenerateOptions& options)
      : session_(session),
        model_(sampler.model()),
        sampler_(sampler),
        options_(options),
        stream_(
            {.stops = options.stops,
             .thinking_start = options.thinking_start,
             .thinking_end = options.thinking_end,
             .opens_in_thinking = options.opens_in_thinking,
             .sink = [this](std::string_view text, TextPart part) { return Pass(text, part); }}),
        num_shown_before_(options.so_far.text_bytes) {}

  GenerateResult Run();

 private:
  [[nodiscard]] Status Prepare();
  // Brings the answer so far into the stream, and its last token into the session.
  [[nodiscard]] Status GoOn();
  [[nodiscard]] Status CheckSoFar() const;
  void SeeForced(Token token);
  // Text that was not shown before.
  bool Pass(std::string_view text, TextPart part);
  // One token: chosen, shown, appended. False when the generation has ended.
  bool Step();
  [[nodiscard]] Result<Token> NextToken();
  bool Show(Token token);
  bool Append(Token token);
  void ForceEndOfThought();
  bool End(FinishReason reason) {
    result_.finish_reason = reason;
    return false;
  }
  bool EndOn(const Status& error);

  Session& session_;
  const Model& model_;
  Sampler& sampler_;
  const GenerateOptions& options_;
  TextStream stream_;
  std::vector<Token> end_tokens_;  // masked; empty unless OnEnd::kIgnore
  std::vector<Token> closing_;     // the tokens of thinking_end
  std::vector<Token> forced_;      // still to come, last first
  bool budget_spent_ = false;
  size_t num_shown_before_ = 0;    // bytes that the stream brings once more
  int thought_tokens_ = 0;         // of the whole answer
  int thought_tokens_before_ = 0;  // of the answer so far
  bool ended_ = false;             // within the answer so far
  std::vector<float> masked_logits_;
  GenerateResult result_;
};

Status Generation::Prepare() {
  if (session_.logits().empty() && options_.so_far.tokens.empty()) {
    return InvalidArgument(
        "expected a session that stands after a prompt, found one without logits");
  }
  if (options_.on_end == GenerateOptions::OnEnd::kIgnore) {
    for (Token token = 0; token < model_.shape().vocab_size; ++token) {
      if (model_.EndsGeneration(token)) end_tokens_.push_back(token);
    }
  }
  if (options_.thinking_budget >= 0 && !options_.thinking_end.empty()) {
    EBB_ASSIGN_OR_RETURN(closing_, model_.Tokenize(options_.thinking_end, Model::AddBos::kNo,
                                                   Model::Specials::kParse));
  }
  result_.answer.begin = session_.next_position();
  return options_.so_far.tokens.empty() ? OkStatus() : GoOn();
}

Status Generation::CheckSoFar() const {
  const AnswerSoFar& so_far = options_.so_far;
  const std::span<const Token> tokens = session_.tokens();
  const auto begin = static_cast<size_t>(std::max(so_far.begin, 0));
  const size_t num_there = tokens.size() - std::min(begin, tokens.size());
  const size_t num_tokens = so_far.tokens.size();
  const Token last = so_far.tokens.back();
  const bool fits = last >= 0 && last < model_.shape().vocab_size && begin <= tokens.size() &&
                    num_there <= num_tokens && num_there + 1 >= num_tokens;
  if (fits &&
      std::ranges::equal(tokens.subspan(begin), std::span(so_far.tokens).first(num_there))) {
    return OkStatus();
  }
  return InvalidArgument("expected a session that ends with the answer so far, found another one");
}

Status Generation::GoOn() {
  EBB_RETURN_IF_ERROR(CheckSoFar());
  const AnswerSoFar& so_far = options_.so_far;
  result_.answer.begin = so_far.begin;
  for (const Token token : so_far.tokens) {
    ForceEndOfThought();
    SeeForced(token);
    ended_ = !Show(token);
    if (!stream_.in_thought()) forced_.clear();
    if (ended_) break;
  }
  result_.answer.tokens = so_far.tokens;
  thought_tokens_before_ = thought_tokens_;
  if (ended_) return OkStatus();
  const size_t end = so_far.begin + so_far.tokens.size();
  if (session_.tokens().size() < end) return session_.Decode(so_far.tokens.back());
  if (!session_.logits().empty()) return OkStatus();
  return InvalidArgument("expected a session that stands after its answer, found no logits");
}

// The budget may have been larger then: what the answer has of the tag is not forced again, the
// rest is.
void Generation::SeeForced(Token token) {
  if (forced_.empty()) return;
  if (forced_.back() != token) forced_.assign(closing_.rbegin(), closing_.rend());
  if (forced_.back() == token) forced_.pop_back();
}

bool Generation::Pass(std::string_view text, TextPart part) {
  const size_t shown = std::min(num_shown_before_, text.size());
  num_shown_before_ -= shown;
  text.remove_prefix(shown);
  return text.empty() || !options_.on_text || options_.on_text(text, part);
}

GenerateResult Generation::Run() {
  if (Status status = Prepare(); !status.ok()) {
    EndOn(status);
    if (!options_.so_far.tokens.empty()) result_.answer = options_.so_far;
    result_.text = stream_.text();
    return std::move(result_);
  }
  while (!ended_ && Step()) {
  }
  // A stop string, or a sink that wants no more, has already settled what is shown.
  const bool settled = result_.finish_reason == FinishReason::kStopString;
  if (!settled && stream_.Finish() == TextStream::State::kRefused) End(FinishReason::kCancelled);
  result_.text = stream_.text();
  // A stop string may have begun in what was shown.
  result_.answer.text_bytes = std::max(options_.so_far.text_bytes, result_.text.size());
  result_.thought_tokens = thought_tokens_ - thought_tokens_before_;
  return std::move(result_);
}

bool Generation::Step() {
  if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) {
    return End(FinishReason::kCancelled);
  }
  const int max_tokens =
      options_.max_tokens < 0 ? std::numeric_limits<int>::max() : options_.max_tokens;
  if (result_.generated_tokens >= max_tokens) return End(FinishReason::kLength);
  ForceEndOfThought();
  const Clock::time_point start = Clock::now();
  Result<Token> token = NextToken();
  // The first token comes from the prompt's logits: it belongs to no decode step.
  if (result_.decode_steps > 0) {
    result_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (!token.ok()) return EndOn(token.status());
  if (model_.EndsGeneration(*token)) return End(FinishReason::kStop);
  ++result_.generated_tokens;
  result_.answer.tokens.push_back(*token);
  if (options_.on_token) options_.on_token(*token);
  if (!Show(*token)) return false;
  if (result_.generated_tokens >= max_tokens) return End(FinishReason::kLength);
  return Append(*token);
}

void Generation::ForceEndOfThought() {
  if (closing_.empty() || budget_spent_ || !stream_.in_thought() ||
      thought_tokens_ < options_.thinking_budget) {
    return;
  }
  budget_spent_ = true;
  forced_.assign(closing_.rbegin(), closing_.rend());
}

Result<Token> Generation::NextToken() {
  if (!forced_.empty()) {
    const Token token = forced_.back();
    forced_.pop_back();
    sampler_.Accept(token);
    return token;
  }
  std::span<const float> logits = session_.logits();
  if (!end_tokens_.empty()) {
    masked_logits_.assign(logits.begin(), logits.end());
    for (const Token token : end_tokens_) {
      masked_logits_[token] = -std::numeric_limits<float>::infinity();
    }
    logits = masked_logits_;
  }
  return sampler_.Sample(
      logits, stream_.in_thought() ? Sampler::Constraint::kFree : Sampler::Constraint::kGrammar);
}

bool Generation::Show(Token token) {
  const bool was_thought = stream_.in_thought();
  const TextStream::State state =
      stream_.Push(ShownText(model_, token, options_.thinking_start, options_.thinking_end));
  if (was_thought && stream_.in_thought() && !budget_spent_) ++thought_tokens_;
  switch (state) {
    case TextStream::State::kOpen:
      return true;
    case TextStream::State::kStopString:
      return End(FinishReason::kStopString);
    case TextStream::State::kRefused:
      return End(FinishReason::kCancelled);
  }
  return true;
}

bool Generation::Append(Token token) {
  const Clock::time_point start = Clock::now();
  const Status status = session_.Decode(token);
  if (!status.ok()) return EndOn(status);
  result_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  ++result_.decode_steps;
  return true;
}

bool Generation::EndOn(const Status& error) {
  result_.error = error;
  switch (error.code()) {
    case StatusCode::kCancelled:
      return End(FinishReason::kCancelled);
    case StatusCode::kResourceExhausted: {
      const bool context_full = !session_.impl().CheckRoom(1).ok();
      return End(context_full ? FinishReason::kContext : FinishReason::kCap);
    }
    default:
      return End(FinishReason::kError);
  }
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCap:
      return "cap";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

std::string ShownText(const Model& model, Token token, std::string_view thinking_start,
                      std::string_view thinking_end) {
  std::string text = model.TokenText(token, Model::ControlTokens::kHide);
  if (!text.empty() || thinking_end.empty()) return text;
  std::string shown = model.TokenText(token, Model::ControlTokens::kShow);
  return shown == thinking_start || shown == thinking_end ? shown : text;
}

GenerateResult Generate(Session& session, Sampler& sampler, const GenerateOptions& options) {
  return Generation(session, sampler, options).Run();
}

}  // namespace ebb
