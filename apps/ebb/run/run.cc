#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/common/memory.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/prompt.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/run/commands.h"
#include "apps/ebb/run/conversation.h"
#include "apps/ebb/run/turn.h"

namespace ebb::cli {
namespace {

// Returns whether stdout and stderr are the same pipe or file, as with 2>&1.
bool OutputsAreOneFile() {
  struct stat out = {};
  struct stat err = {};
  return isatty(STDOUT_FILENO) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
         fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

ExitCode Report(ExitCode code, const CliOptions& options, const RunFigures& figures,
                const Setup& setup) {
  if (options.json) {
    // A calling program waits for this object, so the run has failed if it cannot be written.
    const Status written = WriteToStderr(JsonSummary(figures, setup) + "\n");
    if (!written.ok() && code == ExitCode::kOk) return Fail(written);
  } else if (!options.quiet && (figures.prompt_seconds > 0 || figures.result.decode_steps > 0)) {
    if (OutputsAreOneFile()) Say("\n");  // the answer of a pipe may end within a line
    Say("{}", HumanSummary(figures, setup));
  }
  return code;
}

ExitCode AnswerOnce(TurnContext context, const std::string& text,
                    std::shared_ptr<const Model> model) {
  CliOptions options = *context.options;  // --memory adds tiers
  context.options = &options;
  TierNotices notices(options);
  context.notices = &notices;
  const Result<Turn> turn = PromptTurn(*model, options, text);
  if (!turn.ok()) return Fail(turn.status());
  const auto prompt_tokens = static_cast<int>(turn->tokens.size());
  const Status fits = FitGenerationIntoMemory(*model, prompt_tokens, &options);
  if (!fits.ok()) return Fail(fits, options.shared);
  const Result<Setup> setup = OpenSetup(std::move(model), options);
  if (!setup.ok()) return Fail(setup.status(), options.shared);
  TextOutput output(options.thoughts, TextOutput::LineEnd::kOnTerminals);
  const RunFigures figures = TakeTurn(context, *turn, *setup, &output);
  const ExitCode code = ReportEnd(figures.result);
  return Report(code, options, figures, *setup);
}

// Answers one more turn of the conversation in the --session file, or its first one.
ExitCode AnswerInSession(TurnContext context, const std::string& text,
                         std::shared_ptr<const Model> model) {
  CliOptions options = *context.options;
  context.options = &options;
  TierNotices notices(options);
  context.notices = &notices;
  Result<Setup> setup = OpenSessionSetup(std::move(model), &options);
  if (!setup.ok()) return Fail(setup.status(), options.shared);
  using Kind = Conversation::Kind;
  Result<Conversation> talk =
      OpenConversation(*setup, options, options.raw ? Kind::kText : Kind::kChat);
  if (!talk.ok()) return Fail(talk.status());
  const bool is_endless = options.session.past_context == PastContext::kReRotate;
  const Result<Turn> turn = NextTurn(*setup->model, options, text, setup->session->tokens(), &*talk,
                                     is_endless ? 0 : setup->session->context());
  if (!turn.ok()) return Fail(turn.status());
  TextOutput output(options.thoughts, TextOutput::LineEnd::kOnTerminals);
  const RunFigures figures = TakeTurn(context, *turn, *setup, &output);
  const ExitCode code = ReportEnd(figures.result);
  // A turn without an answer does not become part of the conversation. If Ctrl-C ended it, a chat
  // is saved all the same, so that the tokens read so far need not be read again. A conversation of
  // the kind kText is not saved then: it has no messages that would separate the turn from the
  // answer.
  const size_t tokens_before = turn->goes_on ? turn->goes_on->so_far.tokens.size() : 0;
  const bool answered =
      figures.result.answer.tokens.size() > tokens_before || code == ExitCode::kOk;
  const bool interrupted = code == ExitCode::kInterrupted || code == ExitCode::kHungUp;
  if (answered || (interrupted && talk->kind == Kind::kChat)) {
    EndTurn(*turn, figures.result, figures.sampler, &*talk);
    if (const Status saved = SaveConversation(*talk, options, &*setup); !saved.ok()) {
      Fail(saved);
      return ExitCode::kError;
    }
  }
  return Report(code, options, figures, *setup);
}

}  // namespace

ExitCode RunRun(const CliOptions& given) {
  CliOptions options = given;
  if (IsLive(options)) options.session.ledger = SessionOptions::Record::kYes;
  LogprobsFile logprobs(options);
  const TurnContext context = {.options = &options,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .logprobs = &logprobs};
  if (options.raw && !options.system.empty()) {
    return Fail(InvalidArgument("--system: a raw prompt has no system message"));
  }
  if (const Status status = logprobs.Check(); !status.ok()) return Fail(status);
  const Result<std::string> text = ReadPromptText(options);
  if (!text.ok()) return Fail(text.status());
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  if (const Status status = OpenDraftModel(*model, &options); !status.ok()) return Fail(status);
  return options.session_file.empty() ? AnswerOnce(context, *text, *model)
                                      : AnswerInSession(context, *text, *model);
}

}  // namespace ebb::cli
