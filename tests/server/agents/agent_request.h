// A coding agent's conversation as requests of three interfaces, and their answers. The requests
// have the structure of those of programs in use: Messages as Claude Code sends them, Responses as
// Codex does, chats as agents do that are built on OpenAI's package.
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
  std::string arguments;  // JSON, which may be cut off
  bool operator==(const AgentCall&) const = default;
};

struct AgentResult {
  std::string call_id, text;
  bool has_picture = false;
  bool is_error = false;
  bool operator==(const AgentResult&) const = default;
};

// One message, or the results of all calls of one answer.
struct AgentStep {
  enum class Kind { kUser, kSystem, kAssistant, kResults };
  Kind kind = Kind::kUser;
  std::string text;
  std::string thought;               // of kAssistant
  std::vector<AgentCall> calls;      // of kAssistant
  std::vector<AgentResult> results;  // of kResults
  bool operator==(const AgentStep&) const = default;
};

// The beginning that all conversations of an agent have.
struct AgentPreamble {
  std::vector<std::string> system;
  nlohmann::json tools;  // [{"name", "description", "schema"}]
};

// The path of an interface, and of its counter of tokens; a chat has no counter.
[[nodiscard]] const char* AgentPath(AgentApi api);
[[nodiscard]] nlohmann::json AgentBody(AgentApi api, const AgentPreamble& preamble,
                                       const std::vector<AgentStep>& steps);
// Sets the most tokens of the answer.
void LimitAnswer(AgentApi api, int max_tokens, nlohmann::json* body);
// Demands that the answer calls a tool.
void DemandCall(AgentApi api, nlohmann::json* body);

struct AgentReply {
  int status = 0;     // 0: the connection was closed without an answer
  std::string error;  // of an answer that is no success, or of a stream that ends with an error
  std::string thought, text;
  std::vector<AgentCall> calls;
  int prompt_tokens = 0, cached_tokens = 0;
  int parks = 0;
  std::string logits_hash;
};
[[nodiscard]] AgentReply ReadAgentReply(AgentApi api, const ClientAnswer& answer);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_REQUEST_H_
