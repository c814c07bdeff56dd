// How much text a request has, which tells how long its preparation may take, before it is
// prepared.
#ifndef EBB_SERVER_API_OPENAI_TEXT_BYTES_H_
#define EBB_SERVER_API_OPENAI_TEXT_BYTES_H_

#include <cstddef>
#include <optional>
#include <span>

#include "src/server/api/api_error.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

[[nodiscard]] size_t TextBytes(std::span<const ChatMessage> messages);
// Texts and messages, those of a stored response among them.
[[nodiscard]] size_t TextBytes(const CompletionRequest& request);

// Returns an error if the prompt has too many bytes for the context. Rendering and tokenizing
// megabytes takes seconds, so this comes first. Counts texts and the messages of users and tools: a
// chat template may leave out other messages. bytes_per_token: Model::longest_token_bytes().
[[nodiscard]] std::optional<ApiError> CheckTextFits(const CompletionRequest& request,
                                                    size_t bytes_per_token, int context);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_TEXT_BYTES_H_
