// Makes ids of calls, see ebb/chat.h.
#include <xxhash.h>

#include "ebb/chat.h"

namespace ebb {

uint64_t CallIdSeed(std::span<const ChatMessage> messages, std::span<const ChatMessage> more) {
  uint64_t hash = 0;
  const auto add = [&](const std::string& text) {
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash + 1);
  };
  for (const auto& some : {messages, more}) {
    for (const ChatMessage& message : some) {
      for (const std::string* text : {&message.role, &message.content, &message.tool_call_id}) {
        add(*text);
      }
      for (const ToolCall& call : message.tool_calls) {
        for (const std::string* text : {&call.name, &call.arguments, &call.id}) add(*text);
      }
    }
  }
  return hash;
}

std::string MakeCallId(uint64_t seed, size_t choice, size_t index) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  // Some models' templates accept only ids of this length.
  constexpr int kLength = 9;
  const uint64_t numbers[] = {choice, index};
  uint64_t hash = XXH3_64bits_withSeed(numbers, sizeof(numbers), seed);
  std::string id;
  for (int i = 0; i < kLength; ++i) {
    id += kLetters[hash % kLetters.size()];
    hash /= kLetters.size();
  }
  return id;
}

void SetCallIds(uint64_t seed, std::vector<ToolCall>* calls) {
  for (size_t i = 0; i < calls->size(); ++i) {
    ToolCall& call = (*calls)[i];
    if (call.id.empty()) call.id = MakeCallId(seed, /*choice=*/0, i);
  }
}

}  // namespace ebb
