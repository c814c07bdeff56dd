// Reads the members of a JSON object one by one, each with its type and its bounds, and lists at
// the end the members that were never read. The first error is kept; from then on all members are
// absent. A member that is null is absent too.
#ifndef EBB_SERVER_API_BASE_JSON_FIELDS_H_
#define EBB_SERVER_API_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/base/api_error.h"

namespace ebb::server {

// kMostJsonDepth and the constants below limit the JSON that is parsed. An object keeps the order
// of its members and searches all of them for a name, so the time to parse it grows with the square
// of its members. All objects together may take as long as one of kMostObjectMembers.
inline constexpr int kMostJsonDepth = 64;
inline constexpr size_t kMostJsonMembers = 200'000;
inline constexpr size_t kMostObjectMembers = 10'000;  // members of one object
inline constexpr size_t kMostMessages = 16'384;  // elements of the list `messages` of a request

// Returns whether a body with this Content-Type is read as JSON: JSON's type, no type, or curl's
// default type. OtherContent() is the error for all other types.
[[nodiscard]] bool IsJson(std::string_view content_type);
[[nodiscard]] ApiError OtherContent();
// Parses a JSON object. Half of a surrogate pair in a string ("\ud83d" alone) becomes U+FFFD.
// Errors: 400 (text that is not JSON, with the offset of the byte; another value; invalid UTF-8;
// request_too_large beyond the limits above).
[[nodiscard]] ApiResult<Json> ParseObject(std::string_view text);
// Returns the arguments of a tool call as text of a JSON object, which chat templates need. Text
// that is no JSON object, such as a truncated call, becomes the member INVALID_JSON of an object.
[[nodiscard]] std::string ArgumentsText(const Json& arguments);

struct Bounds {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

class JsonFields {
 public:
  // Reads the members of `object`, which must outlive the reader. `path`: the object's place in the
  // request, "" or "stream_options".
  JsonFields(const Json& object, std::string path, std::optional<ApiError>* error);

  [[nodiscard]] std::optional<double> Number(const std::string& name, Bounds bounds);
  // Reads an integer; a number without a fraction is one however it is written: 100, 100.0, 1e2.
  [[nodiscard]] std::optional<int64_t> Integer(const std::string& name, int64_t min, int64_t max);
  [[nodiscard]] std::optional<bool> Bool(const std::string& name);
  [[nodiscard]] std::optional<std::string> Text(const std::string& name);
  // Returns the member, or null if it is absent; the pointer is valid as long as the object.
  // Array() and Any() do the same.
  [[nodiscard]] const Json* Object(const std::string& name);
  [[nodiscard]] const Json* Array(const std::string& name);
  [[nodiscard]] const Json* Any(const std::string& name);

  // Marks the member as absent from now on, since another reader has read it.
  void Hide(const std::string& name);

  // Records the error of a member.
  void Fail(const std::string& name, const std::string& message,
            std::string code = "invalid_value");
  [[nodiscard]] bool ok() const { return !error_->has_value(); }
  // Returns the path of a member, "stream_options.include_usage".
  [[nodiscard]] std::string PathOf(const std::string& name) const;
  // Returns the paths of the members that were never read.
  [[nodiscard]] std::vector<std::string> Unknown() const;

 private:
  void FailType(const std::string& name, std::string_view expected, const Json& found);

  const Json& object_;
  const std::string path_;
  std::optional<ApiError>* const error_;
  std::set<std::string> known_;
  std::set<std::string> hidden_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_JSON_FIELDS_H_
