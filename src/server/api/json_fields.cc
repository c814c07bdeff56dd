#include "src/server/api/json_fields.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

struct Shape {
  int depth = 0;
  size_t num_members = 0;
};

// Without a parser, which takes memory for all of it.
Shape ShapeOf(std::string_view text) {
  Shape shape;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      shape.depth = std::max(shape.depth, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':') {
      ++shape.num_members;
    }
  }
  return shape;
}

ApiError NoJson(std::string message) { return Invalid(std::move(message), "", "invalid_json"); }

}  // namespace

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  constexpr std::string_view kJson = "application/json";
  return std::ranges::equal(
      type.substr(0, type.find_last_not_of(' ') + 1), kJson,
      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
}

ApiError OtherContent() {
  return {.status = 415,
          .message = "expected a Content-Type of application/json",
          .code = "unsupported_media_type"};
}

ApiResult<Json> ParseObject(std::string_view text) {
  const Shape shape = ShapeOf(text);
  if (shape.depth > kMostJsonDepth) {
    return NoJson(
        fmt::format("expected JSON of at most {} levels, found {}", kMostJsonDepth, shape.depth));
  }
  if (shape.num_members > kMostJsonMembers) {
    return NoJson(fmt::format("expected JSON of at most {} members, found {}", kMostJsonMembers,
                              shape.num_members));
  }
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return NoJson(fmt::format("expected a JSON object, found {}", json.type_name()));
  } catch (const Json::exception& error) {
    return NoJson(fmt::format("the body is not JSON: {}", error.what()));
  }
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

const Json* JsonFields::Any(const std::string& name) {
  known_.insert(name);
  if (!ok()) return nullptr;
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
  if (!json->is_number_integer()) {
    FailType(name, "an integer", *json);
    return std::nullopt;
  }
  const bool is_huge =
      json->is_number_unsigned() &&
      json->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t value = is_huge ? std::numeric_limits<int64_t>::max() : json->get<int64_t>();
  if (!is_huge && value >= min && value <= max) return value;
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
