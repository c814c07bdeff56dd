#include "src/server/api/token_reasons.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/api_error.h"

namespace ebb::server {
namespace {

// Returns the position at the end of the path; nothing: it is no number.
std::optional<Position> PositionIn(std::string_view path) {
  const std::string_view last = path.substr(path.rfind('/') + 1);
  Position position = 0;
  const auto [end, error] = std::from_chars(last.data(), last.data() + last.size(), position);
  const bool is_number = error == std::errc() && end == last.data() + last.size();
  return is_number && position >= 0 ? std::optional(position) : std::nullopt;
}

HttpAnswer NotInMemory() {
  return ErrorAnswer({.status = 404,
                      .message = "the rows are not in this server's memory: the request is over, "
                                 "and no session keeps them here",
                      .code = "not_in_memory"});
}

HttpAnswer ReasonsAnswer(const std::optional<TokenReasons>& reasons, Position position) {
  if (!reasons.has_value()) return NotInMemory();
  if (static_cast<size_t>(position) >= reasons->num_tokens) {
    return ErrorAnswer(
        Invalid(fmt::format("expected a position below {}, the number of tokens; found {}",
                            reasons->num_tokens, position),
                "position", "out_of_range"));
  }
  Json groups = Json::array();
  for (const Explanation& one : reasons->groups) {
    Json group = {{"tier", TierName(one.tier)}, {"why", one.why}};
    const int per_layer = reasons->groups_per_layer;
    if (per_layer > 0) group["layer"] = one.group / per_layer;
    if (per_layer > 1) group["kv_head"] = one.group % per_layer;
    groups.push_back(std::move(group));
  }
  return {.body = Dump({{"object", "token.reasons"},
                        {"position", position},
                        {"tokens", reasons->num_tokens},
                        {"groups", std::move(groups)}})};
}

}  // namespace

void AnswerReasons(std::string_view path, std::optional<JobId> job, const AskReasons& ask,
                   std::function<void(HttpAnswer)> then) {
  const std::optional<Position> position = PositionIn(path);
  if (!position.has_value()) return then(ErrorAnswer(Invalid("expected a number", "position")));
  if (!job.has_value()) return then(NotInMemory());
  ask(*job, *position, [position, then = std::move(then)](const auto& reasons) {
    then(ReasonsAnswer(reasons, *position));
  });
}

}  // namespace ebb::server
