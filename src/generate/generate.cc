#include "ebb/generate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/generate/token_choice.h"

namespace ebb {
namespace {

FinishReason ReasonOf(const Status& error) {
  if (error.code() == StatusCode::kCancelled) return FinishReason::kCancelled;
  if (error.code() == StatusCode::kContextFull) return FinishReason::kContext;
  return IsLimit(error.code()) ? FinishReason::kCap : FinishReason::kError;
}

}  // namespace

struct Generation::Impl {
  Impl(Session* session_in, Sampler* sampler, GenerateOptions options_in)
      : session(*session_in),
        model(sampler->model()),
        options(std::move(options_in)),
        max_tokens(options.max_tokens < 0 ? std::numeric_limits<int>::max() : options.max_tokens),
        choice(options, sampler,
               [this](std::string_view text, TextPart part) { return Pass(text, part); }),
        num_shown_before(options.so_far.text_bytes) {}

  [[nodiscard]] Status Prepare();
  // Passes options.so_far through the stream again, and appends its last token to the session if
  // the session lacks it.
  [[nodiscard]] Status Continue();
  [[nodiscard]] Status CheckSoFar() const;
  // Calls on_text for `text`, without the bytes that were shown before this generation. Returns the
  // result of on_text.
  bool Pass(std::string_view text, TextPart part);
  // Ends the generation if the stream has ended.
  void EndUnlessOpen(TextStream::State state);
  [[nodiscard]] bool IsCancelled() const {
    return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool IsFull() const { return result.generated_tokens >= max_tokens; }
  void EndBecause(FinishReason reason) {
    ended = true;
    result.finish_reason = reason;
  }
  void EndOn(const Status& error);

  Session& session;
  const Model& model;
  const GenerateOptions options;
  const int max_tokens;
  TokenChoice choice;
  size_t num_shown_before = 0;    // bytes of the stream that were shown before
  int thought_tokens_before = 0;  // thought tokens in options.so_far
  bool ended = false;
  bool could_not_begin = false;
  double choice_seconds = 0;  // time to choose the token that is appended next
  double first_token = 0;
  bool is_late = false;  // a line has ended after options.line_seconds
  GenerateResult result;
};

Status Generation::Impl::Prepare() {
  if (session.logits().empty() && options.so_far.tokens.empty()) {
    return InvalidArgument(
        "expected a session that stands after a prompt, found one without logits");
  }
  EBB_RETURN_IF_ERROR(choice.Prepare());
  result.answer.begin = session.next_position();
  if (!options.so_far.tokens.empty()) return Continue();
  const std::span<const Token> prompt = session.tokens();
  choice.SetText(prompt, prompt.size() - std::min(options.num_begun, prompt.size()));
  return OkStatus();
}

Status Generation::Impl::CheckSoFar() const {
  const AnswerSoFar& so_far = options.so_far;
  const std::span<const Token> tokens = session.tokens();
  const auto begin = static_cast<size_t>(std::max(so_far.begin, 0));
  const size_t num_there = tokens.size() - std::min(begin, tokens.size());
  const size_t num_tokens = so_far.tokens.size();
  const Token last = so_far.tokens.back();
  const bool fits = last >= 0 && last < model.shape().vocab_size && begin <= tokens.size() &&
                    num_there <= num_tokens && num_there + 1 >= num_tokens;
  if (fits &&
      std::ranges::equal(tokens.subspan(begin), std::span(so_far.tokens).first(num_there))) {
    return OkStatus();
  }
  return InvalidArgument("expected a session that ends with the answer so far, found another one");
}

Status Generation::Impl::Continue() {
  EBB_RETURN_IF_ERROR(CheckSoFar());
  const AnswerSoFar& so_far = options.so_far;
  result.answer.begin = so_far.begin;
  const auto begin = static_cast<size_t>(so_far.begin);
  const std::span<const Token> prompt = session.tokens().first(begin);
  std::vector<Token> text(prompt.begin(), prompt.end());
  text.insert(text.end(), so_far.tokens.begin(), so_far.tokens.end());
  choice.SetText(text, begin - std::min(options.num_begun, begin));
  for (const Token token : so_far.tokens) {
    EndUnlessOpen(choice.ShowAgain(token));
    if (ended) break;
  }
  result.answer.tokens = so_far.tokens;
  thought_tokens_before = choice.thought_tokens();
  if (ended) return OkStatus();
  const size_t end = so_far.begin + so_far.tokens.size();
  if (session.tokens().size() < end) return session.Decode(so_far.tokens.back()).status;
  if (!session.logits().empty()) return OkStatus();
  return InvalidArgument("expected a session that stands after its answer, found no logits");
}

bool Generation::Impl::Pass(std::string_view text, TextPart part) {
  const size_t shown = std::min(num_shown_before, text.size());
  num_shown_before -= shown;
  text.remove_prefix(shown);
  is_late = is_late || (options.line_seconds > 0 && text.find('\n') != std::string_view::npos &&
                        SecondsNow() - first_token > options.line_seconds);
  return text.empty() || !options.on_text || options.on_text(text, part);
}

void Generation::Impl::EndUnlessOpen(TextStream::State state) {
  switch (state) {
    case TextStream::State::kOpen:
      return;
    case TextStream::State::kStopString:
      return EndBecause(FinishReason::kStopString);
    case TextStream::State::kRefused:
      return EndBecause(FinishReason::kCancelled);
  }
}

void Generation::Impl::EndOn(const Status& error) {
  result.error = error;
  EndBecause(ReasonOf(error));
}

Generation::Generation(Session* session, Sampler* sampler, GenerateOptions options)
    : impl_(std::make_unique<Impl>(session, sampler, std::move(options))) {
  const Status status = impl_->Prepare();
  if (status.ok()) return;
  impl_->could_not_begin = true;
  impl_->EndOn(status);
}
Generation::~Generation() = default;

std::optional<Token> Generation::Next() {
  Impl& g = *impl_;
  if (!g.ended && g.IsCancelled()) g.EndBecause(FinishReason::kCancelled);
  if (!g.ended && g.IsFull()) g.EndBecause(FinishReason::kLength);
  if (g.ended) return std::nullopt;
  const double start = SecondsNow();
  const Result<Token> token = g.choice.Next(g.session.logits(), g.session.next_position());
  // The first token needs no decode step, because its logits come from the prompt; its time is not
  // counted.
  if (g.result.decode_steps > 0) g.result.seconds += SecondsNow() - start;
  if (!token.ok()) {
    g.EndOn(token.status());
    return std::nullopt;
  }
  if (g.choice.Ends(*token)) {
    g.EndBecause(FinishReason::kStop);
    return std::nullopt;
  }
  if (g.result.generated_tokens == 0) g.first_token = start;
  ++g.result.generated_tokens;
  g.result.answer.tokens.push_back(*token);
  if (g.options.on_token) g.options.on_token(*token);
  g.EndUnlessOpen(g.choice.Show(*token));
  // A full answer ends before its last token is appended, because the token's logits are not
  // needed.
  if (!g.ended && (g.IsFull() || g.is_late)) g.EndBecause(FinishReason::kLength);
  return g.ended ? std::nullopt : std::optional(*token);
}

void Generation::Appended(const StepOutcome& outcome, double seconds) {
  if (!outcome.ok()) return impl_->EndOn(outcome.status);
  impl_->result.seconds += seconds;
  ++impl_->result.decode_steps;
}

GenerateResult Generation::End() {
  Impl& g = *impl_;
  if (g.could_not_begin) {
    if (!g.options.so_far.tokens.empty()) g.result.answer = g.options.so_far;
    g.result.text = g.choice.stream().text();
    g.result.thought_bytes = g.choice.stream().thought_bytes();
    return std::move(g.result);
  }
  if (!g.ended) g.EndBecause(FinishReason::kCancelled);
  // If a stop string was found, the visible text is complete already.
  if (g.result.finish_reason != FinishReason::kStopString) {
    const TextStream::State state = g.choice.stream().Finish();
    if (state == TextStream::State::kRefused) g.EndBecause(FinishReason::kCancelled);
    const bool has_ended = g.result.finish_reason == FinishReason::kStop ||
                           g.result.finish_reason == FinishReason::kLength;
    if (state == TextStream::State::kStopString && has_ended) {
      g.EndBecause(FinishReason::kStopString);
    }
  }
  g.result.text = g.choice.stream().text();
  g.result.thought_bytes = g.choice.stream().thought_bytes();
  g.result.stop_string = g.choice.stream().stop_string();
  // A stop string may have begun in text that was shown before, so that the text may be shorter
  // than the text shown before.
  g.result.answer.text_bytes = std::max(g.options.so_far.text_bytes, g.result.text.size());
  g.result.thought_tokens = g.choice.thought_tokens() - g.thought_tokens_before;
  return std::move(g.result);
}

void Generation::EndThought() { impl_->choice.EndThought(); }

int Generation::most_guesses() const {
  return impl_->max_tokens - impl_->result.generated_tokens - 1;
}

Guess Generation::Guesses() const {
  const Impl* const g = impl_.get();
  if (!g->session.TakesGuesses()) return nullptr;
  auto choice = std::make_shared<std::optional<TokenChoice>>();
  Position position = g->session.next_position() + 1;
  return [g, ended = false, choice, position](std::span<const float> logits) mutable {
    if (ended || g->IsCancelled()) return std::optional<Guessed>();
    if (!choice->has_value()) *choice = g->choice.Clone();
    const Result<Token> token = (*choice)->Next(logits, position++);
    if (!token.ok() || (*choice)->Ends(*token) ||
        (*choice)->Show(*token) != TextStream::State::kOpen) {
      ended = true;
      return std::optional<Guessed>();
    }
    return std::optional<Guessed>({*token, (*choice)->margin()});
  };
}

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

GenerateResult PromptFailed(const Status& error) {
  return {.finish_reason = ReasonOf(error), .error = error};
}

std::string ShownText(const Model& model, Token token, std::string_view thinking_start,
                      std::string_view thinking_end) {
  std::string text = model.TokenText(token, Model::ControlTokens::kHide);
  if (!text.empty() || thinking_end.empty()) return text;
  std::string shown = model.TokenText(token, Model::ControlTokens::kShow);
  return shown == thinking_start || shown == thinking_end ? shown : text;
}

void SetTags(const ChatPrompt& prompt, GenerateOptions* options) {
  options->thinking_start = prompt.thinking_start;
  options->thinking_end = prompt.thinking_end;
  options->opens_in_thinking = prompt.opens_in_thinking;
  options->channels = prompt.channels;
  options->after_thought = prompt.after_thought;
}

GenerateResult Generate(Session& session, Sampler& sampler, const GenerateOptions& options) {
  Generation generation(&session, &sampler, options);
  while (const std::optional<Token> token = generation.Next()) {
    const double start = SecondsNow();
    const StepOutcome outcome =
        session.Decode(*token, generation.Guesses(), generation.most_guesses());
    generation.Appended(outcome, SecondsNow() - start);
  }
  return generation.End();
}

}  // namespace ebb
