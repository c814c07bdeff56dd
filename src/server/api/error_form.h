// Puts errors into the form of the interface that a path belongs to, whichever part of the server
// sends them.
#ifndef EBB_SERVER_API_ERROR_FORM_H_
#define EBB_SERVER_API_ERROR_FORM_H_

#include <memory>
#include <string_view>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Puts an error into the form of the interface of `path`; returns other answers unchanged.
[[nodiscard]] HttpAnswer InFormOf(std::string_view path, HttpAnswer answer);
// Wraps `reply` so that InFormOf() is applied to each answer.
[[nodiscard]] std::shared_ptr<Reply> WithErrorsInFormOf(std::string_view path,
                                                        std::shared_ptr<Reply> reply);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_ERROR_FORM_H_
