#include "apps/ebb/run/turn.h"
#include "apps/common/options/option_errors.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/progress.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/live/view.h"
#include "ebb/generate.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status ReadPrompt(const TurnContext& context, const Turn& turn, Session* session,
                  RunFigures* figures) {
  EBB_ASSIGN_OR_RETURN(const std::span<const Token> tokens, KeepPrefix(turn.tokens, session));
  figures->prompt_tokens = static_cast<int>(tokens.size());
  const auto display =
      context.options->quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar("reading the prompt", "tokens", figures->prompt_tokens, display);
  PrefillOptions prefill;
  prefill.cancel = context.cancel;
  prefill.progress = [&](size_t done) { bar.Update(static_cast<int64_t>(done)); };
  const Clock::time_point start = Clock::now();
  SetInterruptText("\nstopping when the tokens that are being read are done\n");
  const Status read = session->Prefill(tokens, prefill).status;
  SetInterruptText(nullptr);
  EBB_RETURN_IF_ERROR(read);
  figures->prompt_seconds = SecondsSince(start);
  return OkStatus();
}

// Returns the tokens of the earlier answer that the session has not decoded: its last token was
// shown, but is decoded only when the answer goes on.
std::span<const Token> NotRead(const AnswerSoFar& answer, const Session& session) {
  const size_t end = answer.begin + answer.tokens.size();
  const size_t left = end - std::min(end, session.tokens().size());
  return std::span(answer.tokens).last(std::min(left, answer.tokens.size()));
}

// TurnDisplay shows a turn's text and notices, by LiveView or on plain stdout and stderr.
class TurnDisplay {
 public:
  TurnDisplay(const CliOptions& options, const Turn& turn, const Setup& setup, TextOutput* output)
      : options_(options), shape_(setup.model->shape()), output_(output) {
    if (!IsLive(options)) return;
    live_.emplace(*setup.session, *setup.model, options.thoughts,
                  turn.goes_on.has_value() ? NotRead(turn.goes_on->so_far, *setup.session)
                                           : std::span<const Token>());
  }
  void AddToken(Token token, const ChatPrompt& prompt) {
    if (live_.has_value()) live_->AddToken(token, prompt);
  }
  bool Write(std::string_view text, TextPart part) {
    return live_.has_value() ? live_->Write(text, part) : output_->Write(text, part);
  }
  void Announce(const TierNotices::Announcement& announcement) {
    if (options_.quiet) return;
    std::string text = AnnouncementText(announcement, options_);
    if (options_.json && !live_.has_value()) {
      if (announced_.ok()) announced_ = WriteToStderr(text + "\n");
    } else if (live_.has_value()) {
      live_->Note(std::move(text));
    } else {
      Say("{}{}\n", output_->in_line() ? "\n" : "", text);
    }
  }
  // Ends the output. Returns an error of stdout, or of announcements that a program reads (--json).
  Status Finish(const Session& session) {
    if (!live_.has_value()) {
      output_->Finish();
      return output_->status().ok() ? announced_ : output_->status();
    }
    live_->Finish();
    if (!options_.quiet && !options_.json && isatty(STDERR_FILENO) != 0) {
      SayWithEscapes(fmt::format("[{}]\n", fmt::join(TierLegend(session, shape_), "  ")));
    }
    return live_->status();
  }

 private:
  const CliOptions& options_;
  const ModelShape& shape_;
  TextOutput* const output_;
  std::optional<LiveView> live_;
  Status announced_;
};

}  // namespace

bool IsLive(const CliOptions& options) { return options.live && Screen::IsThere(); }

RunFigures TakeTurn(const TurnContext& context, const Turn& turn, const Setup& setup,
                    TextOutput* output) {
  RunFigures figures = {.seed = context.options->sampling.seed};
  const auto sampler = SamplerFor(turn, *setup.model, context.options->sampling);
  Status status = sampler.status();
  if (status.ok() && !turn.goes_on.has_value()) {
    status = ReadPrompt(context, turn, setup.session.get(), &figures);
  }
  if (!status.ok()) {
    figures.result = PromptFailed(status);
    return figures;
  }
  TurnDisplay display(*context.options, turn, setup, output);
  const auto look = [&] {
    context.notices->OnStep(setup.session->last_step(),
                            [&](const auto& announcement) { display.Announce(announcement); });
  };
  GenerateOptions generate = GenerateOptionsFor(*context.options, turn);
  generate.cancel = context.cancel;
  generate.on_token = [&](Token token) {
    if (figures.time_to_first_token_seconds == 0) {
      figures.time_to_first_token_seconds = SecondsSince(context.start);
    }
    look();
    context.logprobs->Add(*setup.model, setup.session->logits(), token);
    display.AddToken(token, turn.prompt);
  };
  generate.on_text = [&](std::string_view text, TextPart part) {
    return display.Write(text, part);
  };
  const LosslessReport* const lossless = setup.session->lossless_report();
  const LosslessReport before = lossless == nullptr ? LosslessReport() : *lossless;
  const SpeculationReport guesses_before = setup.session->speculation_report();
  figures.result = Generate(*setup.session, **sampler, generate);
  figures.speculation = Since(guesses_before, setup.session->speculation_report());
  if (lossless != nullptr) figures.lossless = Since(before, *lossless);
  figures.sampler = SavedState(**sampler);
  // Generate() takes a failed write for a sink that wants no more text; the user must see an error.
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
      // If the terminal is gone, the write errors come from that, so the exit code of SIGHUP is
      // returned.
      return Fail(HungUp() ? Cancelled("interrupted") : result.error);
  }
  return ExitCode::kError;
}

}  // namespace ebb::cli
