#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/common/models/known_models.h"
#include "apps/common/options/config_file.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/options/whole_file.h"
#include "apps/common/prompt.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/line_reader.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/run/chat_input.h"
#include "apps/ebb/run/commands.h"
#include "apps/ebb/run/conversation.h"
#include "apps/ebb/run/turn.h"
#include "ebb/session_file.h"
#include "ebb/setting_fields.h"
#include "src/base/text/near_names.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

constexpr size_t kMostReadBytes = size_t{16} << 20;

// Returns the text, or its beginning with "..." if it is longer than a few lines of a terminal.
std::string Beginning(const std::string& text) {
  constexpr size_t kLongest = 240;
  if (text.size() <= kLongest) return text;
  const size_t end = text.find_last_of(" \n", kLongest);
  return text.substr(0, end == std::string::npos ? 0 : end) + " ...";
}

// Returns the file that keeps the turns and commands of earlier chats; an empty text if the program
// has no folder for it.
std::string HistoryFile() {
  const std::string folder = CacheFolder();
  return folder.empty() ? "" : folder + "/chat_history";
}

class Chat {
 public:
  Chat(CliOptions options, LogprobsFile* logprobs, Setup* setup, Conversation talk)
      : options_(std::move(options)),
        setup_(*setup),
        notices_(options_),
        logprobs_(*logprobs),
        output_(options_.thoughts, TextOutput::LineEnd::kAlways),
        reader_(HistoryFile(), CompleteChatInput),
        talk_(std::move(talk)) {}

  ExitCode Run();

 private:
  // Prints the model, context and cache of the conversation on a terminal.
  void Greet() const;
  // Reads the next turn or command; returns nothing at the end of the input, and if the user left
  // by Ctrl-C.
  std::optional<ChatInput> NextInput();
  Status Reset();
  // Runs a turn or a command. Returns the exit code if the conversation ends, else nothing.
  std::optional<ExitCode> Take(const ChatInput& input);
  Status RunCommand(const ChatInput& input);
  std::optional<ExitCode> Answer(const std::string& text);
  // Takes the last question and its answer out of the conversation and answers the question again.
  std::optional<ExitCode> Regenerate();
  // Removes the tokens of a turn that did not become an answer, and says `why` it is removed.
  std::optional<ExitCode> TakeBack(const Turn& turn, std::string_view why);
  Status ReadFile(const std::string& file);
  void SetSystem(const std::string& text);
  Status SetOption(const std::string& text);
  Status Load(const std::string& file);
  void Save();
  // Returns the exit code of a conversation that the user ends.
  [[nodiscard]] ExitCode EndCode() const {
    return last_code_ == ExitCode::kOk && !saved_ ? ExitCode::kError : last_code_;
  }

  CliOptions options_;
  Setup& setup_;
  TierNotices notices_;
  LogprobsFile& logprobs_;
  TextOutput output_;
  LineReader reader_;
  Conversation talk_;
  std::string read_text_;  // text of files that /read put before the next question
  std::optional<RunFigures> last_;
  ExitCode last_code_ = ExitCode::kOk;
  bool saved_ = true;  // or there is nothing to save
};

void Chat::Greet() const {
  if (!reader_.is_editor() || options_.quiet) return;
  const auto tiers = TiersOf(setup_.engine->options(), options_.session);
  const std::string& path = options_.model.path;
  Say("{}: {}; {} tokens of context, {}; /help shows the commands\n",
      path.empty() ? KnownModels().front().name : path, setup_.model->description(),
      WithCommas(setup_.session->context()),
      tiers.has_value() ? "cache: " + TierOptionsText(*tiers)
                        : fmt::format("full cache in {}", RowTypeName(options_.engine.kv_type)));
}

std::optional<ChatInput> Chat::NextInput() {
  bool may_leave = false;
  while (true) {
    std::string typed;
    const auto next_line = [&](bool goes_on) {
      std::optional<std::string> line = reader_.Next(goes_on ? ". " : "> ");
      if (line) typed += (typed.empty() ? "" : "\n") + *line;
      return line;
    };
    std::optional<ChatInput> input = NextChatInput(next_line);
    if (!reader_.is_editor()) return input;
    if (!Interrupted()) {
      if (input) reader_.Remember(typed);
      if (!input) Say("\n");  // the terminal shows Ctrl-D without a line end
      return input;
    }
    // Ctrl-C clears the typed text. On an empty line the second Ctrl-C ends the chat.
    const bool is_empty = typed.empty() && !reader_.had_typed();
    if (is_empty && may_leave) {
      last_code_ = Fail(Cancelled("interrupted"));
      return std::nullopt;
    }
    Say("{}", is_empty ? "\nCtrl-C again, or Ctrl-D, ends the conversation\n" : "\n");
    may_leave = is_empty;
    EndOnTermination();
  }
}

// Starts an empty conversation in a new session. Truncating the old one would not do: rows that a
// policy evicted do not come back.
Status Chat::Reset() {
  last_.reset();
  read_text_.clear();
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
  Greet();
  if (reader_.is_editor()) KeepOnInterrupt();
  while (true) {
    reader_.is_editor() ? EndOnTermination() : EndOnInterrupt();
    // A signal may have come just before.
    if (MustEnd()) return ExitCodeFor(Cancelled("interrupted"));
    const std::optional<ChatInput> input = NextInput();
    (void)InstallInterruptHandler();
    if (!input) return EndCode();
    if (const std::optional<ExitCode> end = Take(*input)) return *end;
  }
}

std::optional<ExitCode> Chat::Take(const ChatInput& input) {
  switch (input.kind) {
    case ChatInput::Kind::kTurn:
      return Answer(input.text);
    case ChatInput::Kind::kRegenerate:
      return Regenerate();
    case ChatInput::Kind::kExit:
      return EndCode();
    case ChatInput::Kind::kReset:
      if (const Status status = Reset(); !status.ok()) return Fail(status);
      Save();
      Say("a new conversation begins\n");
      return std::nullopt;
    default:
      if (const Status status = RunCommand(input); !status.ok()) Fail(status, options_.shared);
      return std::nullopt;
  }
}

Status Chat::RunCommand(const ChatInput& input) {
  switch (input.kind) {
    case ChatInput::Kind::kRead:
      return ReadFile(input.text);
    case ChatInput::Kind::kSystem:
      SetSystem(input.text);
      return OkStatus();
    case ChatInput::Kind::kSet:
      return SetOption(input.text);
    case ChatInput::Kind::kSave:
      EBB_RETURN_IF_ERROR(CheckSessionPlace(input.text));
      EBB_RETURN_IF_ERROR(SaveSession(*setup_.session, input.text, EncodeConversation(talk_)));
      Say("saved; /load {0}, or `ebb chat --session {0}`, continues it\n", input.text);
      return OkStatus();
    case ChatInput::Kind::kLoad:
      return Load(input.text);
    case ChatInput::Kind::kStats:
      Say("{}", last_ ? HumanSummary(*last_, setup_) : "nothing was said yet\n");
      return OkStatus();
    case ChatInput::Kind::kHelp:
      Say("{}", ChatHelp());
      return OkStatus();
    default:
      break;
  }
  const std::string word = input.text.substr(0, input.text.find(' '));
  if (const ChatCommand* const command = FindChatCommand(word)) {
    if (command->argument.empty()) {
      Say("{} takes no argument; write /{} to ask it\n", word, input.text);
    } else {
      Say("{0} needs a file: {0} {1}\n", word, command->argument);
    }
    return OkStatus();
  }
  std::vector<std::string> names;
  for (const ChatCommand& command : ChatCommands()) {
    names.emplace_back(command.names.substr(0, command.names.find(' ')));
  }
  const auto meant = LikelyMeant(word, names);
  Say("unknown command {}; {}expected {}; write /{} to ask it\n", input.text,
      meant.has_value() ? fmt::format("did you mean {}? ", *meant) : "", fmt::join(names, ", "),
      input.text);
  return OkStatus();
}

Status Chat::ReadFile(const std::string& file) {
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostReadBytes));
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument(fmt::format("{}: expected a text, found zero bytes", file));
  }
  const bool ends_line = text.ends_with('\n');
  read_text_ += fmt::format("{}:\n```\n{}{}```\n\n", file, text, ends_line ? "" : "\n");
  Say("{} of {} go before the next question\n", SizeText(text.size()), file);
  return OkStatus();
}

void Chat::SetSystem(const std::string& text) {
  if (text.empty()) {
    const std::vector<ChatMessage>& messages = talk_.request.messages;
    const bool has_one = !messages.empty() && messages.front().role == "system";
    Say("{}\n", has_one ? messages.front().content + "\n(/system none removes it)"
                        : "there is no system message");
    return;
  }
  const bool removes = text == "none";
  options_.system = removes ? "" : text;
  SetSystemMessage(options_.system, &talk_);
  Say("{}\n", removes ? "there is no system message from here on"
                      : "the next question is asked under this system message");
}

Status Chat::SetOption(const std::string& text) {
  std::vector<const OptionRow*> rows;
  static const std::vector<OptionRow> all = SharedOptions();
  for (const OptionRow& row : all) {
    const bool is_setting = row.group == OptionGroup::kSampling || LongName(row) == "--tokens" ||
                            LongName(row) == "--thinking-budget";
    if (is_setting) rows.push_back(&row);
  }
  if (text.empty()) {
    for (const OptionRow* row : rows) {
      if (row->show != nullptr) Say("{} {}\n", ConfigName(*row), row->show(options_));
    }
    return OkStatus();
  }
  const size_t end = std::min(text.find_first_of(" ="), text.size());
  std::string name = text.substr(0, end);
  // Accepts Ollama's form "parameter NAME VALUE", and its names: "temperature" for "temp", "top_k"
  // for "top-k".
  if (name == "parameter" && end < text.size()) return SetOption(text.substr(end + 1));
  std::ranges::replace(name, '_', '-');
  if (name == "temperature") name = "temp";
  if (name == "num-predict") name = "tokens";
  if (name == "num-ctx" || name == "context") {
    return InvalidArgument("/set: --context sets the context when the chat starts");
  }
  const auto row =
      std::ranges::find_if(rows, [&](const OptionRow* one) { return ConfigName(*one) == name; });
  if (row == rows.end()) {
    std::vector<std::string> names;
    for (const OptionRow* one : rows) names.push_back(ConfigName(*one));
    const auto meant = LikelyMeant(name, std::move(names));
    return InvalidArgument(
        fmt::format("/set: there is no sampling option {}{}; /set alone shows all", name,
                    meant.has_value() ? fmt::format("; did you mean {}?", *meant) : ""));
  }
  if (end == text.size() && (*row)->show != nullptr) {
    Say("{} {}\n", name, (*row)->show(options_));
    return OkStatus();
  }
  const size_t begin = std::min(text.find_first_not_of(" =", end), text.size());
  CliOptions changed = options_;
  const Status status = cli::SetOption(**row, text.substr(begin), &changed);
  if (!status.ok()) return status.WithPrefix("/set " + name);
  EBB_RETURN_IF_ERROR(Sampler::Create(*setup_.model, changed.sampling).status());
  options_ = std::move(changed);
  Say("{} is {} from here on\n", name,
      (*row)->show != nullptr ? (*row)->show(options_) : text.substr(begin));
  return OkStatus();
}

// Replaces the conversation by the one in `file`, whose session must have the tiers of this engine.
// A conversation that has a file of its own (--session) is still saved to that file.
Status Chat::Load(const std::string& file) {
  EBB_ASSIGN_OR_RETURN(ResumedSession resumed,
                       ResumeSession(*setup_.engine, file, options_.session));
  EBB_ASSIGN_OR_RETURN(Conversation talk, DecodeConversation(resumed.extra));
  if (talk.kind != Conversation::Kind::kChat) {
    return InvalidArgument(fmt::format("{}: the session is a text, no conversation", file));
  }
  setup_.session = std::move(resumed.session);
  talk_ = std::move(talk);
  last_.reset();
  notices_ = TierNotices(options_);
  Say("the conversation of {}, {} tokens, goes on\n", file,
      WithCommas(setup_.session->next_position()));
  const std::vector<ChatMessage>& messages = talk_.request.messages;
  for (size_t at = messages.size() - std::min<size_t>(messages.size(), 2); at < messages.size();
       ++at) {
    Say("{}: {}\n", messages[at].role, Beginning(messages[at].content));
  }
  Save();
  return OkStatus();
}

std::optional<ExitCode> Chat::Regenerate() {
  std::vector<ChatMessage>& messages = talk_.request.messages;
  const auto is_question = [](const ChatMessage& message) { return message.role == "user"; };
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_question);
  if (last == messages.rend()) {
    Say("nothing was asked yet\n");
    return std::nullopt;
  }
  const Conversation before = talk_;
  const std::string question = last->content;
  messages.erase(last.base() - 1, messages.end());
  talk_.last = {};
  const std::optional<ExitCode> end = Answer(question);
  // A turn that did not become an answer leaves the conversation as it was.
  if (talk_.request.messages.size() < before.request.messages.size()) talk_ = before;
  return end;
}

std::optional<ExitCode> Chat::Answer(const std::string& text) {
  const Result<Turn> turn =
      NextTurn(*setup_.model, options_, read_text_ + text, setup_.session->tokens(), &talk_);
  const std::string read_before = std::exchange(read_text_, {});
  if (!turn.ok()) return Fail(turn.status());
  const TurnContext context = {.options = &options_,
                               .cancel = InstallInterruptHandler(),
                               .start = std::chrono::steady_clock::now(),
                               .notices = &notices_,
                               .logprobs = &logprobs_};
  last_ = TakeTurn(context, *turn, setup_, &output_);
  last_code_ = ReportEnd(last_->result);
  if (last_code_ == ExitCode::kUsage || last_code_ == ExitCode::kLimit) {
    return TakeBack(*turn, "the turn was taken back; /reset forgets the earlier ones too");
  }
  const bool is_half_read = last_->prompt_tokens > 0 && last_->prompt_seconds == 0;
  if (is_half_read && Interrupted() && !MustEnd()) {
    read_text_ = read_before;
    return TakeBack(*turn, "the question was not read to its end and is taken back; ask it again");
  }
  // Ctrl-C ends an answer, not the conversation, so the turn is kept.
  EndTurn(*turn, last_->result, last_->sampler, &talk_);
  Save();
  if (reader_.is_editor() && !options_.quiet && last_->result.decode_steps > 0) {
    Say("[{} of {} tokens; {:.1f} tokens/s]\n",
        WithCommas(static_cast<int64_t>(setup_.session->tokens().size())),
        WithCommas(setup_.session->context()), DecodeRate(last_->result));
  }
  if (MustEnd()) return saved_ ? ExitCodeFor(Cancelled("interrupted")) : ExitCode::kError;
  return last_code_ == ExitCode::kError ? std::optional(last_code_) : std::nullopt;
}

// Removes a turn that outgrew the context, a memory cap or the policy's budget. Keeps the tokens
// that it shares with earlier turns, so that a shorter turn has the same room as this one had.
std::optional<ExitCode> Chat::TakeBack(const Turn& turn, std::string_view why) {
  Session& session = *setup_.session;
  auto kept = static_cast<Position>(turn.tokens.size() - last_->prompt_tokens);
  kept = session.NearestTruncation(kept);
  if (session.next_position() > kept) {
    if (const Status status = session.TruncateTo(kept); !status.ok()) return Fail(status);
  }
  Say("{}\n", why);
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
  if (const Status status = OpenDraftModel(*model, &fitted); !status.ok()) return Fail(status);
  if (IsLive(fitted)) fitted.session.ledger = SessionOptions::Record::kYes;
  Result<Setup> setup = OpenSessionSetup(*model, &fitted);
  if (!setup.ok()) return Fail(setup.status(), options.shared);
  Result<Conversation> talk = OpenConversation(*setup, fitted, Conversation::Kind::kChat);
  if (!talk.ok()) return Fail(talk.status());
  // A grammar with an error must be reported before the user types anything.
  const auto sampler = Sampler::Create(**model, options.sampling);
  if (!sampler.ok()) return Fail(sampler.status());
  if (Interrupted()) return Fail(Cancelled("interrupted"));
  return Chat(std::move(fitted), &logprobs, &*setup, *std::move(talk)).Run();
}

}  // namespace ebb::cli
