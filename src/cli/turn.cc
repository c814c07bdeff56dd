#include "src/cli/turn.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "ebb/state.h"
#include "src/cli/live_view.h"
#include "src/cli/lossless_record.h"
#include "src/cli/progress.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The part of `tokens` that the session has read already; it forgets all that differs. At least
// one token is left to read, for its logits.
Result<std::span<const Token>> Unread(std::span<const Token> tokens, Session* session) {
  const std::span<const Token> known = session->tokens();
  const size_t most = std::min(known.size(), tokens.size() - 1);
  const auto differ = std::mismatch(known.begin(), known.begin() + most, tokens.begin());
  size_t common = differ.first - known.begin();
  // Where rows are gone that the shorter text needs, all of it is read anew.
  if (!session->CanTruncateTo(static_cast<Position>(common))) common = 0;
  if (common < known.size()) {
    EBB_RETURN_IF_ERROR(session->TruncateTo(static_cast<Position>(common)));
  }
  return tokens.subspan(common);
}

Status ReadPrompt(const TurnContext& context, const TurnInput& input, Session* session,
                  RunFigures* figures) {
  EBB_ASSIGN_OR_RETURN(const std::span<const Token> tokens, Unread(input.tokens, session));
  figures->prompt_tokens = static_cast<int>(tokens.size());
  const auto display =
      context.options->quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar("reading the prompt", "tokens", figures->prompt_tokens, display);
  PrefillOptions prefill;
  prefill.cancel = context.cancel;
  prefill.progress = [&](size_t done) { bar.Update(static_cast<int64_t>(done)); };
  const Clock::time_point start = Clock::now();
  EBB_RETURN_IF_ERROR(session->Prefill(tokens, prefill));
  figures->prompt_seconds = SecondsSince(start);
  return OkStatus();
}

std::string StateOf(const Sampler& sampler) {
  StateWriter to;
  sampler.SaveState(&to);
  return to.text();
}

Status Restore(const OpenAnswer& answer, Sampler* sampler) {
  StateReader from(std::as_bytes(std::span(answer.sampler)), "the sampler's state");
  EBB_RETURN_IF_ERROR(sampler->LoadState(&from));
  return from.End();
}

void FailBeforeAnswer(const Status& status, const TurnInput& input, const Session& session,
                      GenerateResult* result) {
  result->error = status;
  result->finish_reason = FinishReason::kError;
  if (status.code() == StatusCode::kCancelled) result->finish_reason = FinishReason::kCancelled;
  if (status.code() == StatusCode::kResourceExhausted) {
    const bool too_long = input.tokens.size() > static_cast<size_t>(session.context());
    result->finish_reason = too_long ? FinishReason::kContext : FinishReason::kCap;
  }
}

Result<TurnInput> InputOf(const Model& model, std::string_view text, ChatPrompt prompt) {
  TurnInput input;
  EBB_ASSIGN_OR_RETURN(input.tokens,
                       model.Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse));
  if (input.tokens.empty()) return InvalidArgument("expected a prompt, found an empty one");
  prompt.text.clear();
  input.prompt = std::move(prompt);
  return input;
}

// The last token of an answer was shown, and is read when the answer goes on.
std::span<const Token> NotRead(const AnswerSoFar& answer, const Session& session) {
  const size_t end = answer.begin + answer.tokens.size();
  const size_t left = end - std::min(end, session.tokens().size());
  return std::span(answer.tokens).last(std::min(left, answer.tokens.size()));
}

// Where a turn's text and announcements go.
class TurnDisplay {
 public:
  TurnDisplay(const CliOptions& options, const TurnInput& input, const Setup& setup,
              TextOutput* output)
      : options_(options), output_(output) {
    if (!IsLive(options)) return;
    live_.emplace(*setup.session, *setup.model, options.thoughts,
                  input.goes_on.has_value() ? NotRead(input.goes_on->so_far, *setup.session)
                                            : std::span<const Token>());
  }
  void AddToken(Token token, const ChatPrompt& prompt) {
    if (live_.has_value()) live_->AddToken(token, prompt);
  }
  bool Write(std::string_view text, TextPart part) {
    return live_.has_value() ? live_->Write(text, part) : output_->Write(text, part);
  }
  void Say(const Announcer::Announcement& announcement) {
    if (options_.quiet) return;
    std::string text = AnnouncementText(announcement, options_);
    if (live_.has_value()) {
      live_->Note(std::move(text));
    } else {
      fmt::print(stderr, "{}{}\n", output_->in_line() && !options_.json ? "\n" : "", text);
    }
  }
  // An error of stdout.
  Status Finish(const Session& session) {
    if (!live_.has_value()) {
      output_->Finish();
      return output_->status();
    }
    live_->Finish();
    if (!options_.quiet && !options_.json && isatty(STDERR_FILENO) != 0) {
      fmt::print(stderr, "[{}]\n", fmt::join(TierLegend(session), "  "));
    }
    return live_->status();
  }

 private:
  const CliOptions& options_;
  TextOutput* const output_;
  std::optional<LiveView> live_;
};

}  // namespace

Result<TurnInput> RawInput(const Model& model, std::string_view text) {
  return InputOf(model, text, {});
}

Result<TurnInput> ChatInput(const Model& model, std::span<const ChatMessage> messages,
                            const CliOptions& options) {
  // Templates that can leave the thought out do it better than closing it by force.
  const auto thinking =
      options.thinking_budget == 0 ? Model::Thinking::kOff : Model::Thinking::kModelDefault;
  EBB_ASSIGN_OR_RETURN(ChatPrompt prompt, model.FormatChat(messages, thinking));
  const std::string text = prompt.text;
  return InputOf(model, text, std::move(prompt));
}

GenerateOptions GenerateOptionsFor(const CliOptions& options, const ChatPrompt& prompt) {
  GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  generate.stops = options.stops;
  generate.stops.insert(generate.stops.end(), prompt.stops.begin(), prompt.stops.end());
  using OnEnd = GenerateOptions::OnEnd;
  generate.on_end = options.ignore_eos ? OnEnd::kIgnore : OnEnd::kStop;
  generate.thinking_start = prompt.thinking_start;
  generate.thinking_end = prompt.thinking_end;
  generate.opens_in_thinking = prompt.opens_in_thinking;
  generate.thinking_budget = options.thinking_budget;
  return generate;
}

Result<TurnInput> PromptInput(const Model& model, const CliOptions& options, std::string text) {
  if (options.raw) {
    if (!options.system.empty()) {
      return InvalidArgument("--system: a raw prompt has no system message");
    }
    return RawInput(model, text);
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", std::move(text)});
  return ChatInput(model, messages, options);
}

bool IsLive(const CliOptions& options) { return options.live && Screen::IsThere(); }

RunFigures TakeTurn(const TurnContext& context, const TurnInput& input, const Setup& setup,
                    TextOutput* output) {
  RunFigures figures;
  SamplingOptions sampling = context.options->sampling;
  sampling.seed = context.seed;
  const auto sampler = Sampler::Create(*setup.model, sampling);
  Status status = sampler.status();
  if (status.ok()) {
    status = input.goes_on.has_value() ? Restore(*input.goes_on, sampler->get())
                                       : ReadPrompt(context, input, setup.session.get(), &figures);
  }
  if (!status.ok()) {
    FailBeforeAnswer(status, input, *setup.session, &figures.result);
    return figures;
  }
  TurnDisplay display(*context.options, input, setup, output);
  const auto look = [&] {
    context.announcer->Look(setup.session->last_step(),
                            [&](const auto& announcement) { display.Say(announcement); });
  };
  GenerateOptions generate = GenerateOptionsFor(*context.options, input.prompt);
  generate.cancel = context.cancel;
  if (input.goes_on.has_value()) generate.so_far = input.goes_on->so_far;
  generate.on_token = [&](Token token) {
    if (figures.time_to_first_token_seconds == 0) {
      figures.time_to_first_token_seconds = SecondsSince(context.start);
    }
    look();
    context.logprobs->Add(*setup.model, setup.session->logits(), token);
    display.AddToken(token, input.prompt);
  };
  generate.on_text = [&](std::string_view text, TextPart part) {
    return display.Write(text, part);
  };
  const LosslessReport* const lossless = setup.session->lossless_report();
  const LosslessReport before = lossless == nullptr ? LosslessReport() : *lossless;
  figures.result = Generate(*setup.session, **sampler, generate);
  if (lossless != nullptr) figures.lossless = Since(before, *lossless);
  figures.sampler = StateOf(**sampler);
  // To the generation it was a sink that wanted no more; to the user it is a failure.
  for (const Status& written : {display.Finish(*setup.session), context.logprobs->Finish()}) {
    if (written.ok()) continue;
    figures.result.finish_reason = FinishReason::kError;
    figures.result.error = written;
  }
  return figures;
}

ExitCode ReportEnd(const GenerateResult& result) {
  switch (result.finish_reason) {
    case FinishReason::kStop:
    case FinishReason::kStopString:
    case FinishReason::kLength:
      return ExitCode::kOk;
    case FinishReason::kCancelled:
      return Fail(Cancelled("interrupted"));
    case FinishReason::kContext:
    case FinishReason::kCap:
    case FinishReason::kError:
      return Fail(result.error);
  }
  return ExitCode::kError;
}

}  // namespace ebb::cli
