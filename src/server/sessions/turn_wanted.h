// Compares a request's messages with those of its session, to find which turn the client asks for.
// The functions are pure. docs/user/serve.md explains the rules to authors of clients.
#ifndef EBB_SERVER_SESSIONS_TURN_WANTED_H_
#define EBB_SERVER_SESSIONS_TURN_WANTED_H_

#include <span>
#include <vector>

#include "ebb/chat.h"
#include "src/server/api/base/api_error.h"
#include "src/server/engine/session_record.h"

namespace ebb::server {

// TurnWanted identifies the turn of a session that a request asks for.
struct TurnWanted {
  enum class Kind {
    kNew,       // answer `messages`, after the newest answer
    kInstead,   // answer `messages`, which replace the newest turn
    kContinue,  // continue the newest answer
    kSayAgain,  // send the newest answer, which is complete, again
  };
  Kind kind = Kind::kNew;
  std::vector<ChatMessage> messages = {};
};
// Returns the turn that a client's messages ask for. Errors: 409 (they neither continue the
// session's messages nor are only new messages); 400 (there is nothing to answer).
[[nodiscard]] ApiResult<TurnWanted> CompareMessages(const SessionRecord& record,
                                                    std::span<const ChatMessage> messages);

// Returns the turn that a client without knowledge of sessions asks for: its messages must begin
// with all messages of the session, and more must follow. Errors: 409.
[[nodiscard]] ApiResult<TurnWanted> CompareHistory(const SessionRecord& record,
                                                   std::span<const ChatMessage> messages);

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_TURN_WANTED_H_
