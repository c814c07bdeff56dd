#include "ebb/generate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/engine_impl.h"
#include "src/engine/token_choice.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

class Generation {
 public:
  Generation(Session& session, Sampler& sampler, const GenerateOptions& options)
      : session_(session),
        model_(sampler.model()),
        options_(options),
        max_tokens_(options.max_tokens < 0 ? std::numeric_limits<int>::max() : options.max_tokens),
        choice_(options, &sampler,
                [this](std::string_view text, TextPart part) { return Pass(text, part); }),
        num_shown_before_(options.so_far.text_bytes) {}

  GenerateResult Run();

 private:
  [[nodiscard]] Status Prepare();
  // Brings the answer so far into the stream, and its last token into the session.
  [[nodiscard]] Status GoOn();
  [[nodiscard]] Status CheckSoFar() const;
  // Text that was not shown before.
  bool Pass(std::string_view text, TextPart part);
  // One token: chosen, shown, appended. False when the generation has ended.
  bool Step();
  bool EndWhereShown(TextStream::State state);
  bool Append(Token token);
  // Tokens that will probably be appended behind those that were, as far as the answer goes on.
  [[nodiscard]] Guess Guesses() const;
  [[nodiscard]] bool IsCancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }
  bool End(FinishReason reason) {
    result_.finish_reason = reason;
    return false;
  }
  bool EndOn(const Status& error);

  Session& session_;
  const Model& model_;
  const GenerateOptions& options_;
  const int max_tokens_;
  TokenChoice choice_;
  size_t num_shown_before_ = 0;    // bytes that the stream brings once more
  int thought_tokens_before_ = 0;  // of the answer so far
  bool ended_ = false;             // within the answer so far
  GenerateResult result_;
};

Status Generation::Prepare() {
  if (session_.logits().empty() && options_.so_far.tokens.empty()) {
    return InvalidArgument(
        "expected a session that stands after a prompt, found one without logits");
  }
  EBB_RETURN_IF_ERROR(choice_.Prepare());
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
    ended_ = !EndWhereShown(choice_.ShowAgain(token));
    if (ended_) break;
  }
  result_.answer.tokens = so_far.tokens;
  thought_tokens_before_ = choice_.thought_tokens();
  if (ended_) return OkStatus();
  const size_t end = so_far.begin + so_far.tokens.size();
  if (session_.tokens().size() < end) return session_.Decode(so_far.tokens.back());
  if (!session_.logits().empty()) return OkStatus();
  return InvalidArgument("expected a session that stands after its answer, found no logits");
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
    result_.text = choice_.stream().text();
    return std::move(result_);
  }
  while (!ended_ && Step()) {
  }
  // A stop string, or a sink that wants no more, has already settled what is shown.
  const bool settled = result_.finish_reason == FinishReason::kStopString;
  if (!settled && choice_.stream().Finish() == TextStream::State::kRefused)
    End(FinishReason::kCancelled);
  result_.text = choice_.stream().text();
  // A stop string may have begun in what was shown.
  result_.answer.text_bytes = std::max(options_.so_far.text_bytes, result_.text.size());
  result_.thought_tokens = choice_.thought_tokens() - thought_tokens_before_;
  return std::move(result_);
}

bool Generation::Step() {
  if (IsCancelled()) return End(FinishReason::kCancelled);
  if (result_.generated_tokens >= max_tokens_) return End(FinishReason::kLength);
  const Clock::time_point start = Clock::now();
  const Result<Token> token = choice_.Next(session_.logits(), session_.next_position());
  // The first token comes from the prompt's logits: it belongs to no decode step.
  if (result_.decode_steps > 0) {
    result_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (!token.ok()) return EndOn(token.status());
  if (model_.EndsGeneration(*token)) return End(FinishReason::kStop);
  ++result_.generated_tokens;
  result_.answer.tokens.push_back(*token);
  if (options_.on_token) options_.on_token(*token);
  if (!EndWhereShown(choice_.Show(*token))) return false;
  if (result_.generated_tokens >= max_tokens_) return End(FinishReason::kLength);
  return Append(*token);
}

bool Generation::EndWhereShown(TextStream::State state) {
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
  // The last token of a full answer is not appended.
  const int most_guesses = max_tokens_ - result_.generated_tokens - 1;
  const Status status = session_.Decode(token, Guesses(), most_guesses);
  if (!status.ok()) return EndOn(status);
  result_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  ++result_.decode_steps;
  return true;
}

Guess Generation::Guesses() const {
  if (session_.lossless_report() == nullptr) return nullptr;
  auto choice = std::make_shared<std::optional<TokenChoice>>();
  Position position = session_.next_position() + 1;
  return [this, ended = false, choice, position](std::span<const float> logits) mutable {
    if (ended || IsCancelled()) return std::optional<Guessed>();
    if (!choice->has_value()) *choice = choice_.Clone();
    const Result<Token> token = (*choice)->Next(logits, position++);
    if (!token.ok() || model_.EndsGeneration(*token) ||
        (*choice)->Show(*token) != TextStream::State::kOpen) {
      ended = true;
      return std::optional<Guessed>();
    }
    return std::optional<Guessed>({*token, (*choice)->margin()});
  };
}

bool Generation::EndOn(const Status& error) {
  result_.error = error;
  switch (error.code()) {
    case StatusCode::kCancelled:
      return End(FinishReason::kCancelled);
    case StatusCode::kResourceExhausted: {
      const bool context_full = !session_.impl().HasRoom(1);
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
