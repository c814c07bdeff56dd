// Makes the job of a request within a session, from the request's messages and the session's
// record.
#ifndef EBB_SERVER_SESSIONS_SESSION_TURN_H_
#define EBB_SERVER_SESSIONS_SESSION_TURN_H_

#include <optional>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/base/api_error.h"
#include "src/server/api/openai/request.h"
#include "src/server/engine/job.h"
#include "src/server/engine/session_record.h"

namespace ebb::server {

// Returns one job; or none if the request asks for the stored answer again, which request->said
// then has. A session that is named only by a hint is used only if the request's messages begin
// with all of the session's messages and more follow. `record` has the session's messages. Applies
// the template and tokenizes, which may take a second. Errors: those of CompareMessages() and
// Prepare().
//
// The session reads new messages as the template writes them after an answer. To find that text,
// the template is applied to all messages with a mark in place of the last answer, and the text
// after the mark is read. The session therefore keeps the answer's tokens as they were generated,
// with the thought.
[[nodiscard]] ApiResult<std::vector<Job>> PrepareTurn(const Model& model,
                                                      const SessionRecord& record,
                                                      CompletionRequest* request);

struct SessionHeaders {
  std::string session;  // header X-Ebb-Session
  std::string hint;     // header X-Session-Id
};
// Sets the session of a request. The header X-Ebb-Session and the member `ebb.session` name it.
// Without them, X-Session-Id or the member `session_id`, which other programs send too, are hints:
// a hint that cannot name a session is listed in the request's ignored fields, and the request has
// no session. Errors, for a session that is named and not hinted: 400 (two different names; no
// valid id; the server keeps no sessions; the request asks for something that sessions do not
// support).
[[nodiscard]] std::optional<ApiError> TakeSession(const SessionHeaders& headers, bool has_sessions,
                                                  CompletionRequest* request);

// If the request has a session, turns an answer that the client has begun into an ordinary message,
// because a session continues only its own last answer. Errors: 400 (the client explicitly asks to
// continue its own answer).
[[nodiscard]] std::optional<ApiError> TakeBegunAnswer(CompletionRequest* request);

// Returns, as text, the options in which a request must agree with its session.
[[nodiscard]] std::string DescribePolicy(const SessionOptions& options);
// Returns the tiers as options of the server, such as "--t1 host --evict 10%", or kNoTiers.
[[nodiscard]] std::string DescribeTiers(const EngineOptions& engine, const SessionOptions& session);
inline constexpr std::string_view kNoTiers = "no tiers";

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_TURN_H_
