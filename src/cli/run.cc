#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/cli/commands.h"
#include "src/cli/fit_memory.h"
#include "src/cli/prompt.h"
#include "src/cli/turn.h"

namespace ebb::cli {
namespace {

Result<TurnInput> InputFor(const Model& model, const CliOptions& options, std::string text) {
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

}  // namespace

ExitCode RunRun(const CliOptions& options) {
  const TurnContext context = {.options = &options,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .seed = options.sampling.seed};
  Result<std::string> text = ReadPromptText(options);
  if (!text.ok()) return Fail(text.status());
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  const Result<TurnInput> input = InputFor(**model, options, *std::move(text));
  if (!input.ok()) return Fail(input.status());
  const Result<Setup> setup = OpenFitted(*model, *input, options);
  if (!setup.ok()) return Fail(setup.status());

  TextOutput output(options.thoughts, TextOutput::LineEnd::kOnTerminals);
  const RunFigures figures = TakeTurn(context, *input, *setup, &output);
  const ExitCode code = ReportEnd(figures.result);
  if (options.json) {
    fmt::print(stderr, "{}\n", JsonSummary(figures, *setup));
  } else if (!options.quiet && figures.prompt_seconds > 0) {
    fmt::print(stderr, "{}", HumanSummary(figures, *setup));
  }
  return code;
}

}  // namespace ebb::cli
