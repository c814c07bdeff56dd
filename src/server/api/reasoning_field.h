#ifndef EBB_SERVER_API_REASONING_FIELD_H_
#define EBB_SERVER_API_REASONING_FIELD_H_

#include <cstdint>

namespace ebb::server {

// The member of a chat's message that tells its thought. Clients that know both names show a
// thought twice that has both.
enum class ReasoningField : uint8_t {
  kReasoningContent,  // as llama-server and DeepSeek call it
  kReasoning,         // as OpenRouter and vLLM call it
  kBoth,
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_REASONING_FIELD_H_
