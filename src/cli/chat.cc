#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/cli/commands.h"
#include "src/cli/fit_memory.h"
#include "src/cli/line_reader.h"
#include "src/cli/turn.h"

namespace ebb::cli {
namespace {

class Conversation {
 public:
  Conversation(const CliOptions& options, Setup* setup)
      : options_(options), setup_(*setup), output_(options.thoughts, TextOutput::LineEnd::kAlways) {
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  ExitCode Run();

 private:
  Status Reset();
  // Nothing while the conversation goes on.
  std::optional<ExitCode> Take(const std::string& line);
  std::optional<ExitCode> Answer(const std::string& text);
  std::optional<ExitCode> TakeBack(const TurnInput& input);

  const CliOptions& options_;
  Setup& setup_;
  TextOutput output_;
  LineReader reader_;
  std::vector<ChatMessage> messages_;
  uint64_t turns_ = 0;
  std::optional<RunFigures> last_;
  ExitCode last_code_ = ExitCode::kOk;
};

// A new session rather than a truncated one: rows that a policy removed do not come back.
Status Conversation::Reset() {
  messages_.clear();
  last_.reset();
  last_code_ = ExitCode::kOk;
  if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  setup_.session.reset();  // its memory may be all there is under a cap
  EBB_ASSIGN_OR_RETURN(setup_.session, OpenSession(*setup_.engine, options_.session));
  return OkStatus();
}

// What the template is given as the answer: templates find the thought by its tags.
std::string AsMessage(const GenerateResult& result, const ChatPrompt& prompt) {
  std::string text = result.text;
  if (prompt.thinking_end.empty()) return text;
  if (prompt.opens_in_thinking) text = prompt.thinking_start + "\n" + text;
  const bool open = text.find(prompt.thinking_start) != std::string::npos &&
                    text.find(prompt.thinking_end) == std::string::npos;
  return open ? text + "\n" + prompt.thinking_end : text;
}

ExitCode Conversation::Run() {
  while (true) {
    EndOnInterrupt();
    const std::optional<std::string> line = reader_.Next("> ");
    (void)InstallInterruptHandler();
    if (!line) return last_code_;
    if (const std::optional<ExitCode> end = Take(*line)) return *end;
  }
}

std::optional<ExitCode> Conversation::Take(const std::string& line) {
  if (line.empty()) return std::nullopt;
  if (line == "/exit") return last_code_;
  if (line == "/reset") {
    if (const Status status = Reset(); !status.ok()) return Fail(status);
  } else if (line == "/stats") {
    fmt::print(stderr, "{}", last_ ? HumanSummary(*last_, setup_) : "nothing was said yet\n");
  } else if (line.front() == '/') {
    fmt::print(stderr, "unknown command {}; expected /exit, /reset or /stats\n", line);
  } else {
    return Answer(line);
  }
  return std::nullopt;
}

std::optional<ExitCode> Conversation::Answer(const std::string& text) {
  messages_.push_back({"user", text});
  const Result<TurnInput> input = ChatInput(*setup_.model, messages_, options_);
  if (!input.ok()) return Fail(input.status());
  const TurnContext context = {.options = &options_,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .seed = options_.sampling.seed + turns_++};
  last_ = TakeTurn(context, *input, setup_, &output_);
  last_code_ = ReportEnd(last_->result);
  if (last_code_ == ExitCode::kError) return last_code_;
  if (last_code_ == ExitCode::kUsage || last_code_ == ExitCode::kLimit) return TakeBack(*input);
  // Ctrl-C ends an answer, not the conversation.
  if (last_->result.generated_tokens == 0 && last_code_ == ExitCode::kInterrupted) {
    messages_.pop_back();
  } else {
    messages_.push_back({"assistant", AsMessage(last_->result, input->prompt)});
  }
  return std::nullopt;
}

// A turn that outgrew the context, the cap or the policy's budget. What it shares with earlier
// turns stays, so that a shorter one finds the room that there was.
std::optional<ExitCode> Conversation::TakeBack(const TurnInput& input) {
  messages_.pop_back();
  Session& session = *setup_.session;
  const auto kept = static_cast<Position>(input.tokens.size() - last_->prompt_tokens);
  if (session.next_position() > kept) {
    if (const Status status = session.TruncateTo(kept); !status.ok()) return Fail(status);
  }
  fmt::print(stderr, "the turn was taken back; /reset forgets the earlier ones too\n");
  return std::nullopt;
}

}  // namespace

ExitCode RunChat(const CliOptions& options) {
  (void)InstallInterruptHandler();
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  // Turns of the user are given, so never compressed or evicted: half of the context, say.
  CliOptions fitted = options;
  const int context =
      options.session.context > 0 ? options.session.context : (*model)->shape().trained_context;
  if (const Status status = FitIntoMemory(**model, context / 2, &fitted); !status.ok()) {
    return Fail(status);
  }
  Result<Setup> setup = OpenSetup(*model, fitted);
  if (!setup.ok()) return Fail(setup.status());
  // A grammar that is refused is refused before anything is typed.
  const auto sampler = Sampler::Create(**model, options.sampling);
  if (!sampler.ok()) return Fail(sampler.status());
  return Conversation(fitted, &*setup).Run();
}

}  // namespace ebb::cli
