#include "apps/ebb/run/conversation.h"

#include <cstdio>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/common/memory.h"
#include "apps/common/prompt.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/run/turn.h"
#include "ebb/session_file.h"

namespace ebb::cli {
namespace {

// Locks the session's file against other processes and checks that it can be saved, before the file
// is read and anything is generated. Takes the lock first, since the check writes next to the file,
// where another process may be saving it.
Result<std::shared_ptr<const void>> HoldSessionFile(const std::string& file) {
  Result<std::shared_ptr<const void>> lock = LockSessionFile(file);
  const Status status = lock.ok() ? CheckSessionPlace(file) : lock.status();
  if (status.ok()) return lock;
  return status.WithPrefix("the session could not be saved");
}

}  // namespace

Result<Setup> OpenSessionSetup(std::shared_ptr<const Model> model, CliOptions* options) {
  std::shared_ptr<const void> lock;
  if (!options->session_file.empty()) {
    EBB_ASSIGN_OR_RETURN(lock, HoldSessionFile(options->session_file));
  }
  const auto& tiers = options->session.policy.tiers;
  bool is_full = false;  // the session in the file
  if (options->fit.memory_bytes > 0 && !tiers.has_value() && !options->session_file.empty()) {
    const Result<SessionFileInfo> info = ReadSessionInfo(options->session_file);
    if (info.ok()) SetTiers(info->tiers, &options->engine, &options->session);
    is_full = info.ok() && !tiers.has_value();
    if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
  }
  EBB_RETURN_IF_ERROR(FitIntoMemory(*model, {.prompt_tokens = kPromptsOfConversation}, options));
  if (is_full && tiers.has_value()) {
    return OutOfMemory(
        fmt::format("{} was saved without tiers, and its whole context does not fit into --memory "
                    "without them; give more memory or a smaller --context, or begin another "
                    "session",
                    options->session_file));
  }
  EBB_ASSIGN_OR_RETURN(Setup setup, OpenSetup(std::move(model), *options));
  setup.file_lock = std::move(lock);
  if (setup.resumed.has_value() && !options->quiet && !options->json) {
    Say("[session: {} tokens resumed from {}]\n", setup.session->next_position(),
        options->session_file);
  }
  return setup;
}

Result<Conversation> OpenConversation(const Setup& setup, const CliOptions& options,
                                      Conversation::Kind kind) {
  if (!setup.resumed.has_value()) return NewConversation(options, kind);
  EBB_ASSIGN_OR_RETURN(Conversation conversation, DecodeConversation(*setup.resumed));
  const std::string& file = options.session_file;
  if (conversation.kind != kind) {
    return InvalidArgument(fmt::format("{}: {}", file,
                                       kind == Conversation::Kind::kChat
                                           ? "the session is a text; go on with run --raw"
                                           : "the session is a conversation; leave --raw out"));
  }
  const ChatMessage* const system = SystemMessage(conversation);
  if (!options.system.empty() && (system == nullptr || system->content != options.system)) {
    return InvalidArgument(fmt::format("{}: the session has {} system message; leave --system out",
                                       file, system == nullptr ? "no" : "another"));
  }
  return conversation;
}

Status SaveConversation(const Conversation& conversation, const CliOptions& options, Setup* setup) {
  if (options.session_file.empty()) return OkStatus();
  const Status status =
      SaveSession(*setup->session, options.session_file, EncodeConversation(conversation));
  if (status.ok()) return status;
  return status.WithPrefix("the session was not saved");
}

}  // namespace ebb::cli
