// A request of Anthropic's Messages as a request for a chat, which ReadRequest() reads: pure JSON.
// Fields that both interfaces have, and those of ebb, pass as they are.
#ifndef EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_
#define EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_

#include <string>
#include <vector>

#include "src/server/api/api_error.h"

namespace ebb::server {

struct MessagesRequest {
  Json chat = {};
  std::vector<std::string> stops = {};    // stop_sequences
  std::vector<std::string> ignored = {};  // what was left out of it
};

// The purpose of a request: tokens can be counted without a limit on the answer.
enum class MessagesUse { kAnswer, kCount };

// Errors: 400, whose fields are those of `body`.
[[nodiscard]] ApiResult<MessagesRequest> ReadMessagesRequest(const Json& body, MessagesUse use);
// An error of ReadRequest() or Prepare() about `chat`, under the names of the client.
[[nodiscard]] ApiError InMessages(ApiError error);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_
