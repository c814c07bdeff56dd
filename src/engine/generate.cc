#include "ebb/generate.h"

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
        stream_({.stops = options.stops,
                 .thinking_start = options.thinking_start,
                 .thinking_end = options.thinking_end,
                 .opens_in_thinking = options.opens_in_thinking,
                 .sink = options.on_text}) {}

  GenerateResult Run();

 private:
  [[nodiscard]] Status Prepare();
  // One token: chosen, shown, appended. False when the generation has ended.
  bool Step();
  [[nodiscard]] Result<Token> NextToken();
  [[nodiscard]] std::string TextOf(Token token) const;
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
  std::vector<float> masked_logits_;
  GenerateResult result_;
};

Status Generation::Prepare() {
  if (session_.logits().empty()) {
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
  return OkStatus();
}

GenerateResult Generation::Run() {
  if (Status status = Prepare(); !status.ok()) {
    EndOn(status);
    return std::move(result_);
  }
  while (Step()) {
  }
  // A stop string, or a sink that wants no more, has already settled what is shown.
  const bool settled = result_.finish_reason == FinishReason::kStopString;
  if (!settled && stream_.Finish() == TextStream::State::kRefused) End(FinishReason::kCancelled);
  result_.text = stream_.text();
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
  if (options_.on_token) options_.on_token(*token);
  if (!Show(*token)) return false;
  if (result_.generated_tokens >= max_tokens) return End(FinishReason::kLength);
  return Append(*token);
}

void Generation::ForceEndOfThought() {
  if (closing_.empty() || budget_spent_ || !stream_.in_thought() ||
      result_.thought_tokens < options_.thinking_budget) {
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

// Tags may be control tokens, which have no text of their own.
std::string Generation::TextOf(Token token) const {
  std::string text = model_.TokenText(token, Model::ControlTokens::kHide);
  if (!text.empty() || options_.thinking_end.empty()) return text;
  std::string shown = model_.TokenText(token, Model::ControlTokens::kShow);
  const bool is_tag = shown == options_.thinking_start || shown == options_.thinking_end;
  return is_tag ? shown : text;
}

bool Generation::Show(Token token) {
  const bool was_thought = stream_.in_thought();
  const TextStream::State state = stream_.Push(TextOf(token));
  if (was_thought && stream_.in_thought() && !budget_spent_) ++result_.thought_tokens;
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

GenerateResult Generate(Session& session, Sampler& sampler, const GenerateOptions& options) {
  return Generation(session, sampler, options).Run();
}

}  // namespace ebb
