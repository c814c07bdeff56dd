// Converts errors to the form of the API that a path belongs to, no matter which part of the server
// sends them.
#ifndef EBB_SERVER_API_ERROR_FORM_H_
#define EBB_SERVER_API_ERROR_FORM_H_

#include <memory>
#include <string_view>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Converts an error to the form of the API of `path`; returns other answers unchanged.
[[nodiscard]] HttpAnswer InFormOf(std::string_view path, HttpAnswer answer);
// Returns a Reply that applies InFormOf() to each answer and sends it by `reply`.
[[nodiscard]] std::shared_ptr<Reply> WithErrorsInFormOf(std::string_view path,
                                                        std::shared_ptr<Reply> reply);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_ERROR_FORM_H_
