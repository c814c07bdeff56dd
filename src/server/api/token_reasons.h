// Answers the question of a client why a token lies in its tier.
#ifndef EBB_SERVER_API_TOKEN_REASONS_H_
#define EBB_SERVER_API_TOKEN_REASONS_H_

#include <functional>
#include <optional>
#include <string_view>

#include "src/server/engine/job_view.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

// AskReasons calls `tell`, on the thread of connections, with the places of a token of a job's
// session; with nullopt if the session is not in memory.
using TellReasons = std::function<void(std::optional<TokenReasons>)>;
using AskReasons = std::function<void(JobId, Position, TellReasons)>;

// Answers a request whose path ends in ".../tokens/12" with the tier of each group's row of that
// token and the rule that selected it. `job`: the job or resting session that has the token;
// nothing: none is known. Errors: 400 if the path ends in no number or the sequence has no such
// token, 404 if the rows are not in memory.
void AnswerReasons(std::string_view path, std::optional<JobId> job, const AskReasons& ask,
                   std::function<void(HttpAnswer)> then);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_TOKEN_REASONS_H_
