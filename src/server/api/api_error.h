// Errors as clients of OpenAI's interface expect them.
#ifndef EBB_SERVER_API_API_ERROR_H_
#define EBB_SERVER_API_API_ERROR_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "ebb/status.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

// Members keep their order, which schemas of tools need.
using Json = nlohmann::ordered_json;

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string code = {};                   // "invalid_value", ...; empty: null
  std::string param = {};                  // the field of the request; empty: null
  std::optional<double> retry_after = {};  // seconds
  bool is_final = false;                   // not retryable, even if the HTTP status suggests it
  std::string detail =
      {};  // details for the access log, which the client does not see; empty: nothing
};

// Returns `message` for a client: paths of the server's files become "<path>".
[[nodiscard]] std::string WithoutPaths(std::string_view message);
// Returns the name that OpenAI's interface has for errors of this HTTP status.
[[nodiscard]] std::string_view ErrorType(int status);
// Returns an error's text for the access log: its code and its detail.
[[nodiscard]] std::string LoggedError(const ApiError& error);

// {"error": {...}}
[[nodiscard]] Json ErrorJson(const ApiError& error);
[[nodiscard]] HttpAnswer ErrorAnswer(const ApiError& error);
// 405. allowed: the methods that the path takes, "GET, DELETE".
[[nodiscard]] HttpAnswer WrongMethodAnswer(std::string_view path, std::string_view allowed);
// Returns the answer to an error of the library. Its message contains the server's paths only where
// the request is at fault, which may have named them itself.
[[nodiscard]] ApiError ErrorFrom(const Status& status);
// 400 and a code; `param` may be empty.
[[nodiscard]] ApiError Invalid(std::string message, std::string param,
                               std::string code = "invalid_value");
// 503. retry_after: in seconds, where another server may take it, or the one that comes after this.
[[nodiscard]] ApiError StoppingError(std::optional<double> retry_after = {});

// Returns JSON as bytes; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string Dump(const Json& json);
// Dump() for the data of a server-sent event: characters that some clients take for the end of a
// line, U+0085, U+2028 and U+2029 among them, are escaped, as all of C1 is.
[[nodiscard]] std::string EventData(const Json& json);

template <typename T>
using ApiResult = Result<T, ApiError>;

}  // namespace ebb::server

#endif  // EBB_SERVER_API_API_ERROR_H_
