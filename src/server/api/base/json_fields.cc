#include "src/server/api/base/json_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

struct Shape {
  int depth = 0;
  size_t num_members = 0;
  size_t most_members = 0;                   // most members in one object
  size_t num_comparisons = 0;                // comparisons of member names that parsing will take
  std::vector<size_t> half_surrogates = {};  // offsets of unpaired \u surrogates
};

// Returns the value of a \u escape at `at`; nothing for other text.
std::optional<uint16_t> EscapedUnit(std::string_view text, size_t at) {
  constexpr size_t kSize = 6;
  if (text.size() < at + kSize || text.substr(at, 2) != "\\u") return std::nullopt;
  const char* const end = text.data() + at + kSize;
  uint16_t unit = 0;
  const auto [stop, error] = std::from_chars(text.data() + at + 2, end, unit, /*base=*/16);
  return error == std::errc() && stop == end ? std::optional(unit) : std::nullopt;
}

bool IsHighSurrogate(std::optional<uint16_t> unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool IsLowSurrogate(std::optional<uint16_t> unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Reads the shape of a body without a parser, which would use memory for all of it. Beyond
// kMostJsonDepth only the depth is right.
class ShapeReader {
 public:
  explicit ShapeReader(std::string_view text) : text_(text) {}

  Shape Read() {
    for (; at_ < text_.size(); ++at_) in_string_ ? InString() : OutOfString();
    return std::move(shape_);
  }

 private:
  void InString() {
    if (text_[at_] == '"') in_string_ = false;
    if (text_[at_] != '\\') return;
    const std::optional<uint16_t> unit = EscapedUnit(text_, at_);
    constexpr size_t kEscape = 6;
    const bool is_pair = IsHighSurrogate(unit) && IsLowSurrogate(EscapedUnit(text_, at_ + kEscape));
    if (!is_pair && (IsHighSurrogate(unit) || IsLowSurrogate(unit))) {
      shape_.half_surrogates.push_back(at_);
    }
    at_ += is_pair ? 2 * kEscape - 1 : 1;
  }

  void OutOfString() {
    const char c = text_[at_];
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') {
      shape_.depth = std::max(shape_.depth, ++depth_);
      if (depth_ > 0 && depth_ <= kMostJsonDepth) members_[depth_] = 0;
    } else if (c == '}' || c == ']') {
      --depth_;
    } else if (c == ':') {
      ++shape_.num_members;
      if (depth_ < 0 || depth_ > kMostJsonDepth) return;
      shape_.num_comparisons += members_[depth_];
      shape_.most_members = std::max(shape_.most_members, ++members_[depth_]);
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
  std::array<size_t, kMostJsonDepth + 1> members_ = {};  // members of the open object at each depth
  Shape shape_;
};

ApiError TooLarge(std::string_view what, size_t most, size_t found) {
  return Invalid(
      fmt::format("the body: expected JSON of at most {} {}, found {}", most, what, found), "",
      "request_too_large");
}

// Returns some bytes of `text` before `end`, as printable ASCII.
std::string Excerpt(std::string_view text, size_t end) {
  constexpr size_t kMostBytes = 40;
  const size_t begin = end - std::min(end, kMostBytes);
  std::string shown;
  for (const char c : text.substr(begin, end - begin)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte >= ' ' && byte <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return shown;
}

// Converts a number without a fraction to an integer; nothing beyond 64 bits.
std::optional<int64_t> WholeNumber(const Json& json) {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{kMost}) return std::nullopt;
  if (json.is_number_integer()) return json.get<int64_t>();
  // 2^63 would overflow; kMostOfDouble is the largest double below it.
  constexpr double kMostOfDouble = 9223372036854774784.0;
  const auto value = json.get<double>();
  if (value < -kMostOfDouble || value > kMostOfDouble) return std::nullopt;
  return static_cast<int64_t>(value);
}

ApiError NoJson(std::string message) { return Invalid(std::move(message), "", "invalid_json"); }

}  // namespace

bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  type = type.substr(0, type.find_last_not_of(' ') + 1);
  if (type.empty()) return true;
  constexpr std::string_view kTypes[] = {"application/json", "application/x-www-form-urlencoded"};
  return std::ranges::any_of(kTypes, [&](std::string_view read) {
    return std::ranges::equal(type, read, [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b;
    });
  });
}

ApiError OtherContent() {
  return {.status = 415,
          .message = "expected a Content-Type of application/json",
          .code = "unsupported_media_type"};
}

ApiResult<Json> ParseObject(std::string_view text) {
  // Without this check the parser would take a NUL byte for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return NoJson(fmt::format("the body: expected JSON, found a NUL byte, number {}", nul));
  }
  const Shape shape = ShapeReader(text).Read();
  if (shape.depth > kMostJsonDepth) return TooLarge("levels", kMostJsonDepth, shape.depth);
  if (shape.num_members > kMostJsonMembers) {
    return TooLarge("members", kMostJsonMembers, shape.num_members);
  }
  if (shape.num_comparisons > kMostObjectMembers * kMostObjectMembers / 2) {
    return Invalid(fmt::format("the body: expected JSON of at most {} members in one object, or of "
                               "fewer in several, found {} in one and {} in all",
                               kMostObjectMembers, shape.most_members, shape.num_members),
                   "", "request_too_large");
  }
  std::string repaired;
  if (!shape.half_surrogates.empty()) {
    constexpr std::string_view kReplacement = "\\ufffd";
    repaired = text;
    for (const size_t at : shape.half_surrogates) {
      repaired.replace(at, kReplacement.size(), kReplacement);
    }
    text = repaired;
  }
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return NoJson(fmt::format("the body: expected a JSON object, found {}", json.type_name()));
  } catch (const Json::parse_error& error) {
    const size_t end = std::min(error.byte, text.size());
    if (error.byte > text.size()) {
      return NoJson(fmt::format("the body: expected JSON, found its end at byte {}, behind \"{}\"",
                                end, Excerpt(text, end)));
    }
    return NoJson(
        fmt::format("the body: expected JSON, found an error at byte {}, the last of \"{}\"",
                    end - std::min<size_t>(end, 1), Excerpt(text, end)));
  } catch (const Json::exception&) {
    return NoJson("the body: expected numbers up to 1.8e308 in its JSON, found a larger one");
  }
}

std::string ArgumentsText(const Json& arguments) {
  if (arguments.is_null()) return "{}";
  if (arguments.is_object()) return Dump(arguments);
  std::string text = arguments.is_string() ? arguments.get<std::string>() : Dump(arguments);
  if (text.empty()) return "{}";
  const ApiResult<Json> parsed = ParseObject(text);
  if (!parsed.ok()) return Dump(Json{{"INVALID_JSON", text}});
  // Chat templates parse the text again, and would refuse half of a surrogate pair; Dump() replaces
  // it.
  return ShapeReader(text).Read().half_surrogates.empty() ? text : Dump(*parsed);
}

JsonFields::JsonFields(const Json& object, std::string path, std::optional<ApiError>* error)
    : object_(object), path_(std::move(path)), error_(error) {}

std::string JsonFields::PathOf(const std::string& name) const {
  return path_.empty() ? name : fmt::format("{}.{}", path_, name);
}

void JsonFields::Fail(const std::string& name, const std::string& message, std::string code) {
  if (!ok()) return;
  *error_ = Invalid(fmt::format("{}: {}", PathOf(name), message), PathOf(name), std::move(code));
}

void JsonFields::FailType(const std::string& name, std::string_view expected, const Json& found) {
  Fail(name, fmt::format("expected {}, found {}", expected, found.type_name()), "invalid_type");
}

void JsonFields::Hide(const std::string& name) {
  known_.insert(name);
  hidden_.insert(name);
}

const Json* JsonFields::Any(const std::string& name) {
  known_.insert(name);
  if (!ok() || hidden_.contains(name)) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> JsonFields::Number(const std::string& name, Bounds bounds) {
  const Json* json = Any(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_number()) {
    FailType(name, "a number", *json);
    return std::nullopt;
  }
  const auto value = json->get<double>();
  if (value >= bounds.min && value <= bounds.max) return value;
  Fail(name, fmt::format("expected {} to {}, found {}", bounds.min, bounds.max, value),
       "out_of_range");
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(const std::string& name, int64_t min, int64_t max) {
  const Json* json = Any(name);
  if (json == nullptr) return std::nullopt;
  const bool is_whole = json->is_number_float() && std::trunc(json->get<double>()) == *json;
  if (!json->is_number_integer() && !is_whole) {
    FailType(name, "an integer", *json);
    return std::nullopt;
  }
  if (const auto value = WholeNumber(*json); value >= min && value <= max) return value;
  Fail(name, fmt::format("expected {} to {}, found {}", min, max, json->dump()), "out_of_range");
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(const std::string& name) {
  const Json* json = Any(name);
  if (json == nullptr) return std::nullopt;
  if (json->is_boolean()) return json->get<bool>();
  FailType(name, "true or false", *json);
  return std::nullopt;
}

std::optional<std::string> JsonFields::Text(const std::string& name) {
  const Json* json = Any(name);
  if (json == nullptr) return std::nullopt;
  if (json->is_string()) return json->get<std::string>();
  FailType(name, "a string", *json);
  return std::nullopt;
}

const Json* JsonFields::Object(const std::string& name) {
  const Json* json = Any(name);
  if (json == nullptr || json->is_object()) return json;
  FailType(name, "an object", *json);
  return nullptr;
}

const Json* JsonFields::Array(const std::string& name) {
  const Json* json = Any(name);
  if (json == nullptr || json->is_array()) return json;
  FailType(name, "an array", *json);
  return nullptr;
}

std::vector<std::string> JsonFields::Unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name) && !value.is_null()) names.push_back(PathOf(name));
  }
  return names;
}

}  // namespace ebb::server
