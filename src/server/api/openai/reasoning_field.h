#ifndef EBB_SERVER_API_OPENAI_REASONING_FIELD_H_
#define EBB_SERVER_API_OPENAI_REASONING_FIELD_H_

#include <cstdint>

namespace ebb::server {

// The member of a chat's message that holds the thought. Clients that join both members show a
// thought twice if it has both.
enum class ReasoningField : uint8_t {
  kReasoningContent,  // as llama-server and DeepSeek call it
  kReasoning,         // as OpenRouter and vLLM call it
  kBoth,
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_REASONING_FIELD_H_
