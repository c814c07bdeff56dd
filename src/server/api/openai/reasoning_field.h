#ifndef EBB_SERVER_API_OPENAI_REASONING_FIELD_H_
#define EBB_SERVER_API_OPENAI_REASONING_FIELD_H_

#include <cstdint>

namespace ebb::server {

// ReasoningField selects the member of a chat's message that holds the thought. Clients that join
// both members show the thought twice if a message has both.
enum class ReasoningField : uint8_t {
  kReasoningContent,  // the name of llama-server and DeepSeek
  kReasoning,         // the name of OpenRouter and vLLM
  kBoth,
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REASONING_FIELD_H_
