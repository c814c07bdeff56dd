// Measures the text of a request before it is prepared, which tells how long the preparation may
// take.
#ifndef EBB_SERVER_API_OPENAI_TEXT_BYTES_H_
#define EBB_SERVER_API_OPENAI_TEXT_BYTES_H_

#include <cstddef>
#include <optional>
#include <span>

#include "src/server/api/base/api_error.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

[[nodiscard]] size_t TextBytes(std::span<const ChatMessage> messages);
// Counts the bytes of texts and messages, with those of a stored response that is continued.
[[nodiscard]] size_t TextBytes(const CompletionRequest& request);

// Returns an error if the prompt has too many bytes for the context. Call it before rendering and
// tokenizing, which take seconds for megabytes. Counts texts and the messages of users and tools
// only, since a chat template may leave out others. `bytes_per_token`:
// Model::longest_token_bytes().
[[nodiscard]] std::optional<ApiError> CheckTextFits(const CompletionRequest& request,
                                                    size_t bytes_per_token, int context);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_TEXT_BYTES_H_
