// Simulates a day of coding agents: several at once, through different APIs, with conversations
// that grow, break off and are edited, against a server under memory pressure.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/server/agents/agent_request.h"
#include "tests/server/agents/agent_texts.h"

namespace ebb::server {

struct AgentSizes {
  double preamble = 1;              // size of system texts and tools, relative to real agents
  size_t largest_result = 30'000;   // bytes
  int most_prompt_tokens = 24'000;  // a longer conversation is summarised
};

// AgentCounts counts events of an agent. A test adds up those of several agents.
struct AgentCounts {
  int turns = 0;  // answered turns
  int hang_ups = 0, pictures = 0, cut_calls = 0, lone_surrogates = 0, edits = 0, summaries = 0;
  int huge_results = 0, parks = 0;
  int64_t shareable_tokens = 0;       // prompt tokens that an earlier prompt of the agent has
  int64_t shared_tokens = 0;          // of these, tokens found by prefix caching
  std::vector<std::string> failures;  // the first of each agent
  std::vector<std::string> misses;    // prompts with few cached tokens, the first of each agent

  void Add(const AgentCounts& more);
};

// Agent simulates one agent. Used by one thread.
class Agent {
 public:
  Agent(AgentApi api, uint64_t seed, const AgentSizes& sizes, uint16_t port);

  // Sends the conversation and appends the next steps: the answer, and the results of its calls or
  // a question. A huge result has 200 KB.
  void TakeTurn(bool has_huge_result);
  // Sends one request with the prefix cache and one without: the bits must be equal, and the time
  // to the first token a fraction.
  void CheckThatTimeIsThatOfNewTokens();
  [[nodiscard]] const AgentCounts& counts() const { return counts_; }

 private:
  void Begin();
  void EditHistory();
  void HangUp(nlohmann::json body);
  [[nodiscard]] AgentReply Ask(const nlohmann::json& body);
  void CountShared(const AgentReply& reply);
  [[nodiscard]] int CountTokens(const std::vector<AgentStep>& steps);
  void AddAnswer(AgentReply reply);
  void AddResults(bool has_huge_result);
  [[nodiscard]] AgentCall MakeCall();
  [[nodiscard]] AgentResult MakeResult(const AgentCall& call);
  [[nodiscard]] nlohmann::json Body() const;
  void Fail(const std::string& what);

  const AgentApi api_;
  const AgentSizes sizes_;
  const uint16_t port_;
  AgentTexts texts_;
  AgentPreamble preamble_;
  std::vector<AgentStep> opening_;  // steps with which all conversations begin
  std::vector<AgentStep> steps_;
  // Holds the steps of the last answered prompt, and its size below.
  std::vector<AgentStep> answered_;
  int answered_tokens_ = 0;
  int generation_tokens_ = 0;  // tokens that the template adds after the last step
  int next_call_ = 0;
  AgentCounts counts_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_
