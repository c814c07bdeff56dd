// Runs twenty turns of a day of coding agents; agent_day_verify_test.cc runs five hundred.
#include "tests/server/agents/agent_day_fixture.h"

namespace ebb::server {
namespace {

TEST_F(AgentDayTest, TwentyTurnsOfThreeAgentsAreAnsweredAndShareTheirPrompts) {
  ASSERT_NO_FATAL_FAILURE(
      Start({"--t0", "8MiB", "--t1", "file:" + folder_.File(""), "--prefix-cache", "32MiB"}));
  RunDay(20, 1, 0, {.preamble = 0.2, .largest_result = 6000});
  ExpectShared();
}

TEST_F(AgentDayTest, AThousandSmallTurnsAreTaken) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  AgentTexts texts(1);
  AgentPreamble preamble = {.system = {"Be short."},
                            .tools = nlohmann::json::array({texts.Tool("tool_0", 600)})};
  std::vector<AgentStep> steps = {{.kind = AgentStep::Kind::kUser, .text = "Go on."}};
  for (int i = 0; i < 1000; ++i) {
    const std::string id = fmt::format("call_{}", i);
    steps.push_back({.kind = AgentStep::Kind::kAssistant,
                     .calls = {{.id = id, .name = "tool_0", .arguments = R"({"path":"/a"})"}}});
    steps.push_back({.kind = AgentStep::Kind::kResults, .results = {{.call_id = id, .text = "b"}}});
  }
  for (const AgentApi api : {AgentApi::kMessages, AgentApi::kResponses, AgentApi::kChat}) {
    nlohmann::json body = AgentBody(api, preamble, steps);
    LimitAnswer(api, 1, &body);
    const AgentReply reply =
        ReadAgentReply(api, Client(server_->port()).Post(AgentPath(api), body));
    EXPECT_EQ(reply.status, 200) << AgentPath(api) << " " << reply.error;
  }
}

}  // namespace
}  // namespace ebb::server
