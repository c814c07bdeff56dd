// A request within a session: makes a job from its messages and the session's record.
#ifndef EBB_SERVER_SESSIONS_SESSION_TURN_H_
#define EBB_SERVER_SESSIONS_SESSION_TURN_H_

#include <optional>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/api_error.h"
#include "src/server/api/openai/request.h"
#include "src/server/engine/job.h"
#include "src/server/engine/session_record.h"

namespace ebb::server {

// Returns one job; none: request->said is the answer, which is sent again. A session that is a hint
// is used only where the request's messages begin with all of its own, and others follow. `record`:
// the session's messages. Applies the template and tokenizes: may take a second. Errors: those of
// CompareMessages() and Prepare().
//
// The text of new messages is the template's text after an answer: the template is applied to all
// messages with a mark in place of the last answer, and the session reads the text behind the mark.
// So the session keeps the answer as it was generated, with its thought.
[[nodiscard]] ApiResult<std::vector<Job>> PrepareTurn(const Model& model,
                                                      const SessionRecord& record,
                                                      CompletionRequest* request);

struct SessionHeaders {
  std::string session;  // X-Ebb-Session
  std::string hint;     // X-Session-Id
};
// Sets the session of a request. X-Ebb-Session and the member `ebb.session` name it to ebb; else
// X-Session-Id or the member `session_id` may, which other programs send as well: where it cannot
// name a session, the request has none, and the hint is among its ignored fields. Errors, of a
// session that is named to ebb: 400 (two are; it is no id; the server keeps no sessions; what
// sessions cannot do).
[[nodiscard]] std::optional<ApiError> TakeSession(const SessionHeaders& headers, bool has_sessions,
                                                  CompletionRequest* request);

// An answer that the client has begun is a message like any other within a session, which goes on
// with its own last answer. Errors: 400 (the client asks by name to continue it).
[[nodiscard]] std::optional<ApiError> TakeBegunAnswer(CompletionRequest* request);

// Describes the options that must be equal for a session to go on, as text.
[[nodiscard]] std::string DescribePolicy(const SessionOptions& options);
// Describes the tiers by the server's options, such as "--t1 host --evict 10%", or by kNoTiers.
[[nodiscard]] std::string DescribeTiers(const SessionOptions& options);
inline constexpr std::string_view kNoTiers = "no tiers";

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_TURN_H_
