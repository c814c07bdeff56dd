#include "apps/common/prompt.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/terminal/exit_code.h"
#include "apps/common/terminal/line_end.h"
#include "apps/common/terminal/say.h"

namespace ebb::cli {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Result<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  errno = 0;
  // The loop must not read until fread() returns nothing: after the end it would ask a terminal
  // again.
  while (std::feof(file) == 0 && std::ferror(file) == 0) {
    text.append(buffer, std::fread(buffer, 1, sizeof(buffer), file));
  }
  if (std::ferror(file) != 0) {
    if (errno == EINTR) return Cancelled("interrupted");
    return IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  }
  return WithoutLineEnd(std::move(text));
}

Result<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return InvalidArgument(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  auto text = ReadAll(file.get(), path);
  if (!text.ok()) return AsUsage(text.status());
  return text;
}

bool ResumesSession(const CliOptions& options) {
  std::error_code error;
  return !options.session_file.empty() && std::filesystem::exists(options.session_file, error);
}

Result<std::string> ReadSource(const CliOptions& options) {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file.empty()) return ReadFile(options.prompt_file);
  if (isatty(STDIN_FILENO) != 0) {
    if (ResumesSession(options)) return std::string();
    Say("reading the prompt from the terminal; Ctrl-D ends it\n");
  }
  return ReadAll(stdin, "stdin");
}

}  // namespace

Result<std::string> ReadPromptText(const CliOptions& options) {
  EBB_ASSIGN_OR_RETURN(std::string text, ReadSource(options));
  if (text.empty() && !ResumesSession(options))
    return InvalidArgument("expected a prompt, found an empty one");
  return text;
}

Conversation NewConversation(const CliOptions& options, Conversation::Kind kind) {
  Conversation conversation = {.kind = kind};
  SetSystemMessage(options.system, &conversation);
  return conversation;
}

const ChatMessage* SystemMessage(const Conversation& conversation) {
  const std::vector<ChatMessage>& messages = conversation.request.messages;
  return messages.empty() || messages.front().role != "system" ? nullptr : &messages.front();
}

void SetSystemMessage(const std::string& text, Conversation* conversation) {
  std::vector<ChatMessage>& messages = conversation->request.messages;
  if (SystemMessage(*conversation) != nullptr) messages.erase(messages.begin());
  if (!text.empty()) messages.insert(messages.begin(), {"system", text});
}

Result<Turn> NextTurn(const Model& model, const CliOptions& options, const std::string& text,
                      std::span<const Token> read, Conversation* conversation, int context) {
  // A template that can leave the thought out does better than ending the thought by force.
  conversation->request.thinking =
      options.thinking_budget == 0 ? Thinking::kOff : Thinking::kModelDefault;
  if (text.empty()) {
    if (conversation->last_is_over && !options.ignore_eos) {
      return InvalidArgument(
          "expected a prompt: the session's last answer is over; --ignore-eos goes on with it");
    }
    return ContinueTurn(
        model, *conversation,
        options.ignore_eos ? GenerateOptions::OnEnd::kIgnore : GenerateOptions::OnEnd::kStop);
  }
  if (conversation->kind == Conversation::Kind::kText) {
    return BeginTextTurn(model, *conversation, text, read, context);
  }
  const ChatMessage message = {"user", text};
  return BeginTurn(model, *conversation, {&message, 1}, context);
}

Result<Turn> PromptTurn(const Model& model, const CliOptions& options, const std::string& text) {
  using Kind = Conversation::Kind;
  if (options.raw && !options.system.empty()) {
    return InvalidArgument("--system: a raw prompt has no system message");
  }
  Conversation conversation = NewConversation(options, options.raw ? Kind::kText : Kind::kChat);
  const SessionOptions& session = options.session;
  const bool is_endless = session.past_context == PastContext::kReRotate;
  const int context = session.context > 0 ? session.context : model.shape().trained_context;
  return NextTurn(model, options, text, {}, &conversation, is_endless ? 0 : context);
}

GenerateOptions GenerateOptionsFor(const CliOptions& options, const Turn& turn) {
  using OnEnd = GenerateOptions::OnEnd;
  return OptionsFor(turn, {.max_tokens = options.max_tokens,
                           .stops = options.stops,
                           .on_end = options.ignore_eos ? OnEnd::kIgnore : OnEnd::kStop,
                           .thinking_budget = options.thinking_budget});
}

}  // namespace ebb::cli
