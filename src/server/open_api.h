// Declares the text of docs/user/openapi.yaml, which the build embeds in the program.
#ifndef EBB_SERVER_OPEN_API_H_
#define EBB_SERVER_OPEN_API_H_

#include <string_view>

namespace ebb::server {

extern const std::string_view kOpenApi;

}  // namespace ebb::server

#endif  // EBB_SERVER_OPEN_API_H_
