// How much text a request has, which tells how long its preparation may take, before it is
// prepared.
#ifndef EBB_SERVER_API_TEXT_BYTES_H_
#define EBB_SERVER_API_TEXT_BYTES_H_

#include <cstddef>
#include <optional>
#include <span>

#include "ebb/model.h"
#include "src/server/api/api_error.h"
#include "src/server/api/request.h"

namespace ebb::server {

[[nodiscard]] size_t TextBytes(std::span<const ChatMessage> messages);
// Texts and messages, those of a stored response among them.
[[nodiscard]] size_t TextBytes(const CompletionRequest& request);

// The most bytes of text that one token of the model stands for.
[[nodiscard]] size_t MostBytesPerToken(const Model& model);
// An error where the prompt cannot fit into the context, as far as its bytes tell: it is refused
// before it is tokenized, which takes seconds for megabytes. Counts texts and what users and tools
// say: a chat template may leave out other messages. bytes_per_token: see MostBytesPerToken().
[[nodiscard]] std::optional<ApiError> CheckTextFits(const CompletionRequest& request,
                                                    size_t bytes_per_token, int context);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_TEXT_BYTES_H_
