// Writes a coding agent's conversation as requests of three APIs, and reads their answers. The
// requests have the structure of real ones: Messages as Claude Code sends them, Responses as Codex
// does, and chats as agents do that use OpenAI's package.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_REQUEST_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_REQUEST_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/server/client.h"

namespace ebb::server {

enum class AgentApi { kMessages, kResponses, kChat };

struct AgentCall {
  std::string id, name;
  std::string arguments;  // JSON, possibly cut off
  bool operator==(const AgentCall&) const = default;
};

struct AgentResult {
  std::string call_id, text;
  bool has_picture = false;
  bool is_error = false;
  bool operator==(const AgentResult&) const = default;
};

// AgentStep is one message, or the results of all calls of one answer.
struct AgentStep {
  enum class Kind { kUser, kSystem, kAssistant, kResults };
  Kind kind = Kind::kUser;
  std::string text;
  std::string thought;               // kAssistant only
  std::vector<AgentCall> calls;      // kAssistant only
  std::vector<AgentResult> results;  // kResults only
  bool operator==(const AgentStep&) const = default;
};

// AgentPreamble is the beginning of all conversations of an agent.
struct AgentPreamble {
  std::vector<std::string> system;
  nlohmann::json tools;  // [{"name", "description", "schema"}]
};

// Returns the path of an API.
[[nodiscard]] const char* AgentPath(AgentApi api);
[[nodiscard]] nlohmann::json AgentBody(AgentApi api, const AgentPreamble& preamble,
                                       const std::vector<AgentStep>& steps);
// Limits the tokens of the answer.
void LimitAnswer(AgentApi api, int max_tokens, nlohmann::json* body);
// Requires that the answer calls a tool.
void DemandCall(AgentApi api, nlohmann::json* body);

struct AgentReply {
  int status = 0;     // 0: the connection was closed without an answer
  std::string error;  // error of an answer or at the end of a stream
  std::string thought, text;
  std::vector<AgentCall> calls;
  int prompt_tokens = 0, cached_tokens = 0;
  int parks = 0;
  std::string logits_hash;
};
[[nodiscard]] AgentReply ReadAgentReply(AgentApi api, const ClientAnswer& answer);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_REQUEST_H_
