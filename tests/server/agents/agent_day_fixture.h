// AgentDayTest runs the day of three agents (agent_day.h) against a server with little memory.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_DAY_FIXTURE_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_DAY_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/agents/agent_day.h"
#include "tests/server/agents/agent_server.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {

class AgentDayTest : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& options) {
    server_ = std::make_unique<AgentServer>(options);
    ASSERT_NE(server_->port(), 0);
  }
  // Runs `turns` turns of all agents in `hours` parts. After each part no request is under way.
  void RunDay(int turns, int hours, int huge_results, const AgentSizes& sizes) {
    std::vector<Agent> agents;
    constexpr AgentApi kApis[] = {AgentApi::kMessages, AgentApi::kResponses, AgentApi::kChat};
    for (const AgentApi api : kApis)
      agents.emplace_back(api, agents.size() + 1, sizes, server_->port());
    const int turns_each = turns / hours / static_cast<int>(agents.size()) + 1;
    for (int hour = 0; hour < hours; ++hour) {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < agents.size(); ++i) {
        threads.emplace_back([&, i] {
          for (int turn = 0; turn < turns_each; ++turn) {
            const bool is_huge = turn == turns_each / 2 && i == 0 && hour % 2 == 1 &&
                                 agents[i].counts().huge_results < huge_results;
            agents[i].TakeTurn(is_huge);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      memory_.push_back(server_->AnonymousBytes());
    }
    for (Agent& agent : agents) agent.CheckThatTimeIsThatOfNewTokens();
    for (const Agent& agent : agents) counts_.Add(agent.counts());
    EXPECT_THAT(counts_.failures, testing::IsEmpty());
    EXPECT_GE(counts_.turns, turns);
    EXPECT_FALSE(server_->HasEnded());
  }

  void ExpectShared() const {
    EXPECT_GE(static_cast<double>(counts_.shared_tokens),
              0.95 * static_cast<double>(counts_.shareable_tokens))
        << counts_.shared_tokens << " of " << counts_.shareable_tokens << ": "
        << testing::PrintToString(counts_.misses);
  }

  const TempFolder folder_;  // holds the server's T1
  std::unique_ptr<AgentServer> server_;
  AgentCounts counts_;
  std::vector<size_t> memory_;  // bytes after each hour
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_DAY_FIXTURE_H_
