// A request for /v1/responses as a request for a chat, which ReadRequest() reads: pure JSON.
// Fields that both interfaces have, and those of ebb, pass as they are.
#ifndef EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_
#define EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/server/api/api_error.h"
#include "src/server/api/tool_names.h"

namespace ebb::server {

// Functions of namespaces (tools of type namespace), by the names that they have in a chat.
struct NamespacedName {
  std::string space;
  std::string name;
};
using NamespacedNames = std::map<std::string, NamespacedName>;

struct ResponsesRequest {
  Json chat;
  // Members of the response that repeat the request.
  Json echo;
  Json input;                  // the request's own items, in an array
  bool stores = true;          // the response may be asked for, and continued, by its id
  bool wants_summary = false;  // of thoughts
  NamespacedNames namespaced = {};
  ToolPaths tool_paths = {};              // of the tools of `chat`
  std::vector<std::string> ignored = {};  // what was left out of the request
};

// Finds stored responses and their items; nothing: there is no such one.
struct StoredItems {
  // Returns the items, oldest first, of the conversation up to a response and with it.
  std::function<std::optional<Json>(const std::string& response_id)> conversation;
  // Returns an item of a response's output.
  std::function<std::optional<Json>(const std::string& item_id)> item;
};

// Errors: 400, whose fields are those of `body`.
[[nodiscard]] ApiResult<ResponsesRequest> ReadResponsesRequest(const Json& body,
                                                               const StoredItems& stored);
// An error of ReadRequest() or Prepare() about `chat`, under the names of the client.
[[nodiscard]] ApiError InResponses(ApiError error);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_
