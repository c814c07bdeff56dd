// Converts the messages of a chat to JSON, for comparisons.
#ifndef EBB_SERVER_API_PARTS_MESSAGES_FOR_TEST_H_
#define EBB_SERVER_API_PARTS_MESSAGES_FOR_TEST_H_

#include <vector>

#include "ebb/chat.h"
#include "src/server/api/base/api_error.h"

namespace ebb::server {

inline Json MessagesJson(const std::vector<ChatMessage>& messages) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    Json& json = list.emplace_back();
    json = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning_content.empty()) json["thought"] = message.reasoning_content;
    for (const ToolCall& call : message.tool_calls) {
      json["calls"].push_back(
          {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    }
    if (!message.tool_call_id.empty()) json["call_id"] = message.tool_call_id;
  }
  return list;
}

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_MESSAGES_FOR_TEST_H_
