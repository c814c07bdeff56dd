// Describes errors as clients of OpenAI's API expect them.
#ifndef EBB_SERVER_API_BASE_API_ERROR_H_
#define EBB_SERVER_API_BASE_API_ERROR_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "ebb/status.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

// Json keeps the order of members, which schemas of tools need.
using Json = nlohmann::ordered_json;

struct ApiError {
  int status = 400;  // HTTP status
  std::string message;
  std::string code = {};                   // "invalid_value", ...; empty: null in JSON
  std::string param = {};                  // the field of the request; empty: null in JSON
  std::optional<double> retry_after = {};  // seconds
  bool is_final = false;    // tells clients not to retry, even if the HTTP status suggests it
  std::string detail = {};  // for the access log only; not sent to the client
};

// Returns `message` for a client: paths of the server's files become "<path>".
[[nodiscard]] std::string WithoutPaths(std::string_view message);
// Returns the name that OpenAI's interface has for errors of this HTTP status.
[[nodiscard]] std::string_view ErrorType(int status);
// Returns an error's text for the access log: its code and its detail.
[[nodiscard]] std::string LoggedError(const ApiError& error);

// Returns the error as OpenAI's JSON, {"error": {...}}.
[[nodiscard]] Json ErrorJson(const ApiError& error);
[[nodiscard]] HttpAnswer ErrorAnswer(const ApiError& error);
// Returns a 405 answer. `allowed`: the methods of the path, "GET, DELETE".
[[nodiscard]] HttpAnswer WrongMethodAnswer(std::string_view path, std::string_view allowed);
// Returns the error for a client to an error of the library. Its message keeps paths only for an
// invalid request, which may have named them itself.
[[nodiscard]] ApiError ErrorFrom(const Status& status);
// Returns a 400 error; `param` may be empty.
[[nodiscard]] ApiError Invalid(std::string message, std::string param,
                               std::string code = "invalid_value");
// Returns a 503 error for a server that is stopping. `retry_after`: seconds until another server,
// or this one's successor, may accept the request.
[[nodiscard]] ApiError StoppingError(std::optional<double> retry_after = {});

// Returns JSON as bytes; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string Dump(const Json& json);
// Returns JSON for the data of a server-sent event: like Dump(), but escapes U+0085 and all of C1,
// U+2028 and U+2029, since some clients take them for the end of a line.
[[nodiscard]] std::string EventData(const Json& json);

template <typename T>
using ApiResult = Result<T, ApiError>;

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_API_ERROR_H_
