// A day of coding agents: several at once, through different interfaces, with conversations that
// grow, break off and are edited, against a server under memory pressure.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/server/agents/agent_request.h"
#include "tests/server/agents/agent_texts.h"

namespace ebb::server {

struct AgentSizes {
  double preamble = 1;  // system texts and tools, as a share of those of the programs in use
  size_t largest_result = 30'000;   // bytes
  int most_prompt_tokens = 24'000;  // of a conversation that is not summarised yet
};

// What happened to an agent. A test adds up several.
struct AgentCounts {
  int turns = 0;  // that were answered
  int hang_ups = 0, pictures = 0, cut_calls = 0, lone_surrogates = 0, edits = 0, summaries = 0;
  int huge_results = 0, parks = 0;
  int64_t shareable_tokens = 0;       // of prompts, that an earlier prompt of the agent has
  int64_t shared_tokens = 0;          // of those, that were not read again
  std::vector<std::string> failures;  // the first of each agent
  std::vector<std::string> misses;    // prompts of which much was read again, the first of each

  void Add(const AgentCounts& more);
};

// One agent, which is used by one thread.
class Agent {
 public:
  Agent(AgentApi api, uint64_t seed, const AgentSizes& sizes, uint16_t port);

  // Sends the conversation, and goes on with what came back: an answer, the results of its calls,
  // or a question. A huge result has 200 KB.
  void TakeTurn(bool has_huge_result);
  // Asks the same once with the prefix cache and once without: the bits must be equal, and the time
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
  std::vector<AgentStep> opening_;  // the steps that all conversations begin with
  std::vector<AgentStep> steps_;
  // Those of the last prompt that was answered, and its size.
  std::vector<AgentStep> answered_;
  int answered_tokens_ = 0;
  int generation_tokens_ = 0;  // that the template adds behind the last step
  int next_call_ = 0;
  AgentCounts counts_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_DAY_H_
