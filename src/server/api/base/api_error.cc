#include "src/server/api/base/api_error.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/base/text/utf8.h"

namespace ebb::server {
namespace {

// Shortens the text of an error, which may repeat megabytes of a client's request.
std::string Shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  const std::string_view kept = Utf8Prefix(text, most);
  return fmt::format("{}... ({} bytes more)", kept, text.size() - kept.size());
}

Json TextOrNull(const std::string& text) {
  constexpr size_t kMostBytes = 128;
  return text.empty() ? Json() : Json(Shortened(text, kMostBytes));
}

// Returns whether the slash at `slash` begins an absolute path.
bool BeginsPath(std::string_view text, size_t slash) {
  constexpr std::string_view kBefore = " \"'(=:";
  constexpr std::string_view kNotBehind = " /";
  const bool is_after = slash == 0 || kBefore.find(text[slash - 1]) != std::string_view::npos;
  return is_after && slash + 1 < text.size() &&
         kNotBehind.find(text[slash + 1]) == std::string_view::npos;
}

}  // namespace

// Replaces paths. A path may hold blanks, so it ends only at a quotation mark, or at a comma or
// colon followed by a blank.
std::string WithoutPaths(std::string_view message) {
  std::string told;
  for (size_t i = 0; i < message.size(); ++i) {
    if (message[i] != '/' || !BeginsPath(message, i)) {
      told += message[i];
      continue;
    }
    size_t end = message.size();
    for (const std::string_view stop : {": ", ", ", "; ", "\"", "'", ")"}) {
      end = std::min(end, message.find(stop, i));
    }
    told += "<path>";
    i = end - 1;
  }
  return told;
}

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string LoggedError(const ApiError& error) {
  return error.detail.empty() ? error.code : fmt::format("{}: {}", error.code, error.detail);
}

Json ErrorJson(const ApiError& error) {
  constexpr size_t kMostBytes = 600;
  return {{"error",
           {{"message", Shortened(error.message, kMostBytes)},
            {"type", ErrorType(error.status)},
            {"param", TextOrNull(error.param)},
            {"code", TextOrNull(error.code)}}}};
}

HttpAnswer ErrorAnswer(const ApiError& error) {
  HttpAnswer answer = {.status = error.status,
                       .body = Dump(ErrorJson(error)),
                       .headers = {},
                       .detail = LoggedError(error)};
  // OpenAI's and Anthropic's client libraries retry 409 and 503 by themselves; this header stops
  // them.
  if (error.is_final) answer.headers.emplace_back("X-Should-Retry", "false");
  if (error.retry_after.has_value()) {
    answer.headers.emplace_back(
        "Retry-After", std::to_string(static_cast<int64_t>(std::ceil(*error.retry_after))));
  }
  return answer;
}

HttpAnswer WrongMethodAnswer(std::string_view path, std::string_view allowed) {
  HttpAnswer answer = ErrorAnswer({.status = 405,
                                   .message = fmt::format("{} takes {}", path, allowed),
                                   .code = "method_not_allowed"});
  answer.headers.emplace_back("Allow", allowed);
  return answer;
}

ApiError ErrorFrom(const Status& status) {
  const std::string message = status.Text();
  const std::string told = WithoutPaths(message);
  const std::string detail = told == message ? "" : message;
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return {.status = 400, .message = message, .code = "invalid_value", .param = status.field()};
    case StatusCode::kUnsupported:
      return {.status = 400, .message = message, .code = "unsupported", .param = status.field()};
    case StatusCode::kContextFull:
    case StatusCode::kT0Full:
    case StatusCode::kT1Full:
    case StatusCode::kOutOfMemory:
    case StatusCode::kStorageFull:
      return {.status = 400, .message = told, .code = "request_too_large", .detail = detail};
    case StatusCode::kQueueFull:
      return {.status = 503, .message = message, .code = "queue_full"};
    case StatusCode::kDeadlineExceeded:
      return {.status = 503, .message = message, .code = "deadline_exceeded", .is_final = true};
    case StatusCode::kCancelled:
      return {.status = 503, .message = message, .code = "cancelled"};
    default:
      return {.status = 500, .message = told, .code = "internal_error", .detail = detail};
  }
}

ApiError Invalid(std::string message, std::string param, std::string code) {
  return {.status = 400,
          .message = std::move(message),
          .code = std::move(code),
          .param = std::move(param)};
}

ApiError StoppingError(std::optional<double> retry_after) {
  return {.status = 503,
          .message = "the server is stopping",
          .code = "stopping",
          .retry_after = retry_after};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EventData(const Json& json) {
  const std::string text = Dump(json);
  std::string escaped;
  size_t copied = 0;
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_c1 = byte(i) == 0xC2 && byte(i + 1) < 0xA0;
    const bool is_separator =
        byte(i) == 0xE2 && byte(i + 1) == 0x80 && (byte(i + 2) == 0xA8 || byte(i + 2) == 0xA9);
    if (!is_c1 && !is_separator) continue;
    escaped.append(text, copied, i - copied);
    escaped += fmt::format("\\u{:04x}", is_c1 ? byte(i + 1) : 0x2000 + byte(i + 2) - 0x80);
    copied = i + (is_c1 ? 2 : 3);
  }
  return escaped.append(text, copied);
}

}  // namespace ebb::server
