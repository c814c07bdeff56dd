#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/cli/commands.h"
#include "src/cli/conversation.h"
#include "src/cli/fit_memory.h"
#include "src/cli/prompt.h"
#include "src/cli/turn.h"

namespace ebb::cli {
namespace {

Result<TurnInput> InputFor(const Model& model, const CliOptions& options, std::string text) {
  if (options.raw) return RawInput(model, text);
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", std::move(text)});
  return ChatInput(model, messages, options);
}

// The context that --memory must hold is no longer than what may be generated.
Result<Setup> OpenFitted(std::shared_ptr<const Model> model, const TurnInput& input,
                         const CliOptions& options) {
  CliOptions fitted = options;
  const auto prompt_tokens = static_cast<int>(input.tokens.size());
  const int context =
      options.session.context > 0 ? options.session.context : model->shape().trained_context;
  if (options.max_tokens >= 0 && prompt_tokens < context) {
    fitted.session.context = std::min(context - prompt_tokens, options.max_tokens) + prompt_tokens;
  }
  EBB_RETURN_IF_ERROR(FitIntoMemory(*model, prompt_tokens, &fitted));
  fitted.session.context = options.session.context;
  return OpenSetup(std::move(model), fitted);
}

void Report(const CliOptions& options, const RunFigures& figures, const Setup& setup) {
  if (options.json) {
    fmt::print(stderr, "{}\n", JsonSummary(figures, setup));
  } else if (!options.quiet && (figures.prompt_seconds > 0 || figures.result.decode_steps > 0)) {
    fmt::print(stderr, "{}", HumanSummary(figures, setup));
  }
}

ExitCode AnswerOnce(const TurnContext& context, const std::string& text,
                    std::shared_ptr<const Model> model) {
  const CliOptions& options = *context.options;
  const Result<TurnInput> input = InputFor(*model, options, text);
  if (!input.ok()) return Fail(input.status());
  const Result<Setup> setup = OpenFitted(std::move(model), *input, options);
  if (!setup.ok()) return Fail(setup.status());
  TextOutput output(options.thoughts, TextOutput::LineEnd::kOnTerminals);
  const RunFigures figures = TakeTurn(context, *input, *setup, &output);
  const ExitCode code = ReportEnd(figures.result);
  Report(options, figures, *setup);
  return code;
}

// One more turn of the conversation in the file, or its first one.
ExitCode AnswerInSession(TurnContext context, const std::string& text,
                         std::shared_ptr<const Model> model) {
  CliOptions options = *context.options;
  context.options = &options;
  Result<Setup> setup = OpenSessionSetup(std::move(model), &options);
  if (!setup.ok()) return Fail(setup.status());
  using Kind = Conversation::Kind;
  Result<Conversation> talk =
      OpenConversation(*setup, options, options.raw ? Kind::kRaw : Kind::kChat);
  if (!talk.ok()) return Fail(talk.status());
  const Result<TurnInput> input = BeginTurn(*setup, options, text, &*talk);
  if (!input.ok()) return Fail(input.status());
  context.seed = SeedOfTurn(options, *talk);
  TextOutput output(options.thoughts, TextOutput::LineEnd::kOnTerminals);
  const RunFigures figures = TakeTurn(context, *input, *setup, &output);
  const ExitCode code = ReportEnd(figures.result);
  // What was never answered has not been said, but what Ctrl-C let be read of it need not be read
  // again. A text has no messages that would tell the two apart.
  const bool answered = !figures.result.answer.tokens.empty() || code == ExitCode::kOk;
  if (answered || (code == ExitCode::kInterrupted && talk->kind == Kind::kChat)) {
    EndTurn(figures, *input, &*talk);
    if (const Status saved = SaveConversation(*talk, options, &*setup); !saved.ok()) {
      Fail(saved);
      return ExitCode::kError;
    }
  }
  Report(options, figures, *setup);
  return code;
}

}  // namespace

ExitCode RunRun(const CliOptions& options) {
  const TurnContext context = {.options = &options,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .seed = options.sampling.seed};
  if (options.raw && !options.system.empty()) {
    return Fail(InvalidArgument("--system: a raw prompt has no system message"));
  }
  const Result<std::string> text = ReadPromptText(options);
  if (!text.ok()) return Fail(text.status());
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  return options.session_file.empty() ? AnswerOnce(context, *text, *model)
                                      : AnswerInSession(context, *text, *model);
}

}  // namespace ebb::cli
