#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/common/interrupt.h"
#include "apps/common/terminal/line_reader.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/commands.h"
#include "apps/ebb/run/chat_input.h"
#include "apps/ebb/run/conversation.h"
#include "apps/ebb/run/turn.h"

namespace ebb::cli {
namespace {

class Chat {
 public:
  Chat(const CliOptions& options, LogprobsFile* logprobs, Setup* setup, Conversation talk)
      : options_(options),
        setup_(*setup),
        notices_(options),
        logprobs_(*logprobs),
        output_(options.thoughts, TextOutput::LineEnd::kAlways),
        talk_(std::move(talk)) {}

  ExitCode Run();

 private:
  Status Reset();
  // Runs a turn or a command. Returns the exit code if the conversation ends, else nothing.
  std::optional<ExitCode> Take(const ChatInput& input);
  std::optional<ExitCode> Answer(const std::string& text);
  std::optional<ExitCode> TakeBack(const Turn& turn);
  void Save();
  // Returns the exit code of a conversation that the user ends.
  [[nodiscard]] ExitCode EndCode() const {
    return last_code_ == ExitCode::kOk && !saved_ ? ExitCode::kError : last_code_;
  }

  const CliOptions& options_;
  Setup& setup_;
  TierNotices notices_;
  LogprobsFile& logprobs_;
  TextOutput output_;
  LineReader reader_;
  Conversation talk_;
  std::optional<RunFigures> last_;
  ExitCode last_code_ = ExitCode::kOk;
  bool saved_ = true;  // or there is nothing to save
};

// Starts an empty conversation in a new session. Truncating the old one would not do: rows that a
// policy evicted do not come back.
Status Chat::Reset() {
  last_.reset();
  last_code_ = ExitCode::kOk;
  notices_ = TierNotices(options_);
  setup_.session.reset();  // its memory may be all there is under a cap
  setup_.resumed.reset();
  EBB_ASSIGN_OR_RETURN(setup_.session, setup_.engine->OpenSession(options_.session));
  const uint64_t num_turns = talk_.num_turns;
  EBB_ASSIGN_OR_RETURN(talk_, OpenConversation(setup_, options_, Conversation::Kind::kChat));
  talk_.num_turns = num_turns;
  return OkStatus();
}

void Chat::Save() {
  const Status status = SaveConversation(talk_, options_, &setup_);
  saved_ = status.ok();
  if (!saved_) Fail(status);
}

ExitCode Chat::Run() {
  const auto next_line = [this](bool goes_on) { return reader_.Next(goes_on ? ". " : "> "); };
  while (true) {
    EndOnInterrupt();
    // A signal may have come just before EndOnInterrupt().
    if (MustEnd()) return ExitCodeFor(Cancelled("interrupted"));
    const std::optional<ChatInput> input = NextChatInput(next_line);
    (void)InstallInterruptHandler();
    if (!input) return EndCode();
    if (const std::optional<ExitCode> end = Take(*input)) return *end;
  }
}

std::optional<ExitCode> Chat::Take(const ChatInput& input) {
  switch (input.kind) {
    case ChatInput::Kind::kTurn:
      return Answer(input.text);
    case ChatInput::Kind::kExit:
      return EndCode();
    case ChatInput::Kind::kReset:
      if (const Status status = Reset(); !status.ok()) return Fail(status);
      Save();
      break;
    case ChatInput::Kind::kStats:
      Say("{}", last_ ? HumanSummary(*last_, setup_) : "nothing was said yet\n");
      break;
    case ChatInput::Kind::kHelp:
      Say("{}", kChatHelp);
      break;
    case ChatInput::Kind::kUnknown:
      Say("unknown command {}; expected /exit, /reset, /stats or /help; write /{} to ask it\n",
          input.text, input.text);
      break;
  }
  return std::nullopt;
}

std::optional<ExitCode> Chat::Answer(const std::string& text) {
  const Result<Turn> turn =
      NextTurn(*setup_.model, options_, text, setup_.session->tokens(), &talk_);
  if (!turn.ok()) return Fail(turn.status());
  const TurnContext context = {.options = &options_,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .notices = &notices_,
                               .logprobs = &logprobs_};
  last_ = TakeTurn(context, *turn, setup_, &output_);
  last_code_ = ReportEnd(last_->result);
  if (last_code_ == ExitCode::kUsage || last_code_ == ExitCode::kLimit) return TakeBack(*turn);
  // Ctrl-C ends an answer, not the conversation, so the turn is kept.
  EndTurn(*turn, last_->result, last_->sampler, &talk_);
  Save();
  if (MustEnd()) return saved_ ? ExitCodeFor(Cancelled("interrupted")) : ExitCode::kError;
  return last_code_ == ExitCode::kError ? std::optional(last_code_) : std::nullopt;
}

// Removes a turn that outgrew the context, a memory cap or the policy's budget. Keeps the tokens
// that it shares with earlier turns, so that a shorter turn has the same room as this one had.
std::optional<ExitCode> Chat::TakeBack(const Turn& turn) {
  Session& session = *setup_.session;
  auto kept = static_cast<Position>(turn.tokens.size() - last_->prompt_tokens);
  kept = session.NearestTruncation(kept);
  if (session.next_position() > kept) {
    if (const Status status = session.TruncateTo(kept); !status.ok()) return Fail(status);
  }
  Say("the turn was taken back; /reset forgets the earlier ones too\n");
  return std::nullopt;
}

}  // namespace

ExitCode RunChat(const CliOptions& options) {
  (void)InstallInterruptHandler();
  LogprobsFile logprobs(options);
  if (const Status status = logprobs.Check(); !status.ok()) return Fail(status);
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  CliOptions fitted = options;
  if (IsLive(fitted)) fitted.session.ledger = SessionOptions::Record::kYes;
  Result<Setup> setup = OpenSessionSetup(*model, &fitted);
  if (!setup.ok()) return Fail(setup.status(), options.shared);
  Result<Conversation> talk = OpenConversation(*setup, fitted, Conversation::Kind::kChat);
  if (!talk.ok()) return Fail(talk.status());
  // A grammar with an error must be reported before the user types anything.
  const auto sampler = Sampler::Create(**model, options.sampling);
  if (!sampler.ok()) return Fail(sampler.status());
  if (Interrupted()) return Fail(Cancelled("interrupted"));
  return Chat(fitted, &logprobs, &*setup, *std::move(talk)).Run();
}

}  // namespace ebb::cli
