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

// Returns the position at the end of the path ".../tokens/12"; nothing: it is no number.
[[nodiscard]] std::optional<Position> PositionIn(std::string_view path);
// Answers with the tier of each group's row and the rule that selected it. Errors: 404 if nothing
// is known, 400 if the sequence has no such token.
[[nodiscard]] HttpAnswer ReasonsAnswer(const std::optional<TokenReasons>& reasons,
                                       Position position);
// Returns the 404 answer of a request or a session whose rows are not in memory.
[[nodiscard]] HttpAnswer NotInMemory();

}  // namespace ebb::server

#endif  // EBB_SERVER_API_TOKEN_REASONS_H_
