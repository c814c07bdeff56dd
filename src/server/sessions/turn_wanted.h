// Compares the messages of a request with those of its session. Pure; docs/user/serve.md tells the
// rules to those who write clients.
#ifndef EBB_SERVER_SESSIONS_TURN_WANTED_H_
#define EBB_SERVER_SESSIONS_TURN_WANTED_H_

#include <span>
#include <vector>

#include "ebb/chat.h"
#include "src/server/api/api_error.h"
#include "src/server/engine/session_record.h"

namespace ebb::server {

// The turn of a session that a request asks for.
struct TurnWanted {
  enum class Kind {
    kNew,       // an answer to `messages`, behind the newest answer, cut off or not
    kInstead,   // an answer to `messages` in place of the newest turn, which is forgotten
    kContinue,  // the rest of the newest answer
    kSayAgain,  // the newest answer, which is over
  };
  Kind kind = Kind::kNew;
  std::vector<ChatMessage> messages = {};
};
// Compares a client's messages with the record. Errors: 409, when they neither continue the
// session's messages nor are new messages alone; 400, when there is nothing to answer.
[[nodiscard]] ApiResult<TurnWanted> CompareMessages(const SessionRecord& record,
                                                    std::span<const ChatMessage> messages);

// Compares the messages of a client that knows of no session: they must begin with all messages of
// the session, or of a new one, and others must follow. Errors: 409, otherwise.
[[nodiscard]] ApiResult<TurnWanted> CompareHistory(const SessionRecord& record,
                                                   std::span<const ChatMessage> messages);

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_TURN_WANTED_H_
