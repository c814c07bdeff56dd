// Reads the members of a JSON object one by one: each with its type and its bounds, and all that
// nobody asked for by name at the end. The first thing that is wrong is kept; from then on all
// members are absent. A member that is null is absent too.
#ifndef EBB_SERVER_API_JSON_FIELDS_H_
#define EBB_SERVER_API_JSON_FIELDS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/api_error.h"

namespace ebb::server {

// Limits on what is parsed at all.
inline constexpr int kMostJsonDepth = 64;
inline constexpr size_t kMostJsonMembers = 10'000;
inline constexpr size_t kMostMessages = 4096;  // in the list `messages` of a request

// Whether a Content-Type is that of JSON, and the error where it is not.
[[nodiscard]] bool IsJson(std::string_view content_type);
[[nodiscard]] ApiError OtherContent();
// A whole JSON object. Errors: 400 (no JSON, another value, too deep, too many members, no UTF-8).
[[nodiscard]] ApiResult<Json> ParseObject(std::string_view text);

struct Bounds {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

class JsonFields {
 public:
  // `object` outlives it. path: where it stands in the request, "" or "stream_options".
  JsonFields(const Json& object, std::string path, std::optional<ApiError>* error);

  [[nodiscard]] std::optional<double> Number(const std::string& name, Bounds bounds);
  [[nodiscard]] std::optional<int64_t> Integer(const std::string& name, int64_t min, int64_t max);
  [[nodiscard]] std::optional<bool> Bool(const std::string& name);
  [[nodiscard]] std::optional<std::string> Text(const std::string& name);
  // Null: absent. The pointer lives as long as the object.
  [[nodiscard]] const Json* Object(const std::string& name);
  [[nodiscard]] const Json* Array(const std::string& name);
  [[nodiscard]] const Json* Any(const std::string& name);

  // Says what is wrong with a member.
  void Fail(const std::string& name, const std::string& message,
            std::string code = "invalid_value");
  [[nodiscard]] bool ok() const { return !error_->has_value(); }
  // "stream_options.include_usage"
  [[nodiscard]] std::string PathOf(const std::string& name) const;
  // Members that were not asked for, with their path.
  [[nodiscard]] std::vector<std::string> Unknown() const;

 private:
  void FailType(const std::string& name, std::string_view expected, const Json& found);

  const Json& object_;
  const std::string path_;
  std::optional<ApiError>* const error_;
  std::set<std::string> known_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_JSON_FIELDS_H_
