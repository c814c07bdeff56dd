// Checks that requests of long-running agents are accepted although their histories and tools hold
// more than texts and functions.
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/server/tools_model.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class AgentsTest : public ServerTest {
 protected:
  static void SetUpTestSuite() {
    auto model = LoadModelWithTools();
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    with_tools_ = *model;
  }
  static void TearDownTestSuite() { with_tools_.reset(); }
  void SetUp() override {
    ServerOptions options = Options();
    options.driver.prefix_cache_bytes = size_t{64} << 20;
    auto server = Server::Start(with_tools_, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  ClientAnswer Post(const std::string& path, const json& body) {
    return Client(port()).Post(path, body);
  }
  // Returns the header X-Ebb-Ignored of an answer with status 200.
  std::string Ignored(const std::string& path, const json& body) {
    const ClientAnswer answer = Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto found = answer.headers.find("x-ebb-ignored");
    return found == answer.headers.end() ? "" : found->second;
  }
  std::string Prompt(const json& messages) {
    return Post("/apply-template", {{"messages", messages}}).json()["prompt"];
  }

  static std::shared_ptr<const Model> with_tools_;
};

std::shared_ptr<const Model> AgentsTest::with_tools_;

TEST_F(AgentsTest, ACallThatWasCutOffIsTakenBack) {
  for (const json& arguments : {json("{\"t\": \"ab"), json("[1]"), json("null"), json{{"t", 1}}}) {
    const json call = {{"id", "c1"},
                       {"type", "function"},
                       {"function", {{"name", "w"}, {"arguments", arguments}}}};
    const json messages = {{{"role", "user"}, {"content", "go"}},
                           {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                           {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "cut off"}},
                           {{"role", "user"}, {"content", "again"}}};
    EXPECT_EQ(Ignored("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 2}}), "");
    const json item = {
        {"type", "function_call"}, {"call_id", "c1"}, {"name", "w"}, {"arguments", arguments}};
    const json input = {
        item,
        {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "cut off"}},
        {{"role", "user"}, {"content", "again"}}};
    EXPECT_EQ(Ignored("/v1/responses", {{"input", input}, {"max_output_tokens", 2}}), "");
  }
  const json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "w"}, {"arguments", "{\"t\": \"ab"}}}};
  EXPECT_THAT(Prompt({{{"role", "user"}, {"content", "go"}},
                      {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}},
                      {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "cut off"}}}),
              HasSubstr(R"({"name": "w", "arguments": {"INVALID_JSON": "{\"t\": \"ab"}})"));
}

TEST_F(AgentsTest, APictureInTheResultOfAToolBecomesText) {
  const json picture = {
      {"type", "image"},
      {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AA=="}}}};
  const json messages = {
      {{"role", "user"}, {"content", "look"}},
      {{"role", "assistant"},
       {"content",
        {{{"type", "tool_use"}, {"id", "t1"}, {"name", "Read"}, {"input", json::object()}}}}},
      {{"role", "user"},
       {"content",
        {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {picture}}},
         {{"type", "text"}, {"text", "go on"}}}}}};
  EXPECT_EQ(Ignored("/v1/messages", {{"messages", messages}, {"max_tokens", 2}}),
            "messages[2].content[0].content[0]");
  const json own = {{{"role", "user"}, {"content", {picture}}}};
  EXPECT_EQ(Post("/v1/messages", {{"messages", own}, {"max_tokens", 2}}).status, 400);
}

TEST_F(AgentsTest, CodexToolsOfOtherKindsDoNotRefuseItsFunctions) {
  const json parameters = {{"type", "object"}};
  const json tools = {
      {{"type", "function"}, {"name", "sh"}, {"parameters", parameters}},
      {{"type", "namespace"}, {"name", "m"}, {"tools", json::array()}},
      {{"type", "custom"}, {"name", "apply_patch"}},
      {{"type", "web_search"}},
      {{"type", "local_shell"}},
      {{"type", "function"}, {"name", "files.read/all"}, {"parameters", parameters}},
      {{"type", "namespace"},
       {"name", "mcp__x"},
       {"tools", {{{"type", "function"}, {"name", "go"}, {"parameters", parameters}}}}}};
  EXPECT_EQ(Ignored("/v1/responses", {{"input", "hi"}, {"max_output_tokens", 2}, {"tools", tools}}),
            "tools[2], tools[3], tools[4]");
  EXPECT_EQ(Ignored("/v1/responses", {{"input", json::array()}, {"max_output_tokens", 1}}), "");
}

TEST_F(AgentsTest, TwoSessionsOfClaudeCodeShareTheirPrompt) {
  std::string system;
  for (int i = 0; i < 40; ++i) system += "You are a coding agent. ";
  for (const bool is_block : {true, false}) {
    std::vector<json> usages;
    for (const char* hash : {"a1b2c", "d3e4f"}) {
      const std::string line =
          std::string(
              "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=") +
          hash + ";";
      const std::string text = system + (is_block ? "In blocks." : "In one.");
      const json blocks = {{{"type", "text"}, {"text", line}}, {{"type", "text"}, {"text", text}}};
      const ClientAnswer answer =
          Post("/v1/messages", {{"system", is_block ? blocks : json(line + "\n" + text)},
                                {"messages", {{{"role", "user"}, {"content", "hey"}}}},
                                {"max_tokens", 2}});
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_THAT(answer.headers.at("x-ebb-ignored"), HasSubstr("x-anthropic-billing-header"));
      usages.push_back(answer.json()["usage"]);
    }
    const int cached = usages[1]["cache_read_input_tokens"];
    const int all = cached + usages[1]["input_tokens"].get<int>();
    EXPECT_GE(cached, all * 95 / 100) << usages[1].dump();
  }
}

TEST_F(AgentsTest, HalfAnEmojiInTheHistoryIsReadAsAReplacementCharacter) {
  Client client(port());
  for (const std::string half : {R"(a \ud83d b)", R"(a \ude00 b)"}) {
    EXPECT_EQ(client
                  .Post("/v1/chat/completions",
                        R"({"max_tokens": 2, "messages": [{"role": "user", "content": ")" + half +
                            "\"}]}")
                  .status,
              200);
    const std::string arguments = R"("{\"t\": \"\\ud83d\"}")";
    EXPECT_EQ(client
                  .Post("/v1/chat/completions",
                        R"({"max_tokens": 2, "messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
              "function": {"name": "w", "arguments": )" +
                            arguments + R"(}}]},
            {"role": "tool", "tool_call_id": "c", "content": "x"}]})")
                  .status,
              200);
  }
}

}  // namespace
}  // namespace ebb::server
