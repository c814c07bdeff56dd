// Calls of tools, in one piece and as events, and answers that obey a schema.
#include <string>
#include <vector>

#include "src/server/api/exchange.h"
#include "tests/server/server_fixture.h"
#include "tests/server/tools_model.h"

namespace ebb::server {
namespace {

using nlohmann::json;

class ToolsTest : public ServerTest {
 protected:
  static void SetUpTestSuite() {
    auto model = LoadModelWithTools();
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    with_tools_ = *model;
  }
  static void TearDownTestSuite() { with_tools_.reset(); }
  // What is made of an answer with this text, which comes in pieces of `size` bytes.
  Exchange Answered(const std::string& text, size_t size, bool streams,
                    FinishReason finish = FinishReason::kStop) {
    const Tool weather = {.name = "weather",
                          .parameters = R"({"type": "object", "properties": {"city": {}}})"};
    auto prompt = with_tools_->FormatChat(
        {.messages = {{"user", "How is Oslo?"}}, .tools = {weather, {.name = "time"}}});
    EXPECT_TRUE(prompt.ok()) << prompt.status().ToString();
    Exchange exchange(with_tools_,
                      {.id = "chatcmpl-1",
                       .streams = streams,
                       .prompt = std::make_shared<const ChatPrompt>(*std::move(prompt)),
                       .calls = Calls::kParsed,
                       .first_call = 3});
    exchange.Take(0, {.accepted = true});
    for (size_t i = 0; i < text.size(); i += size) {
      exchange.Take(0, {.pieces = {{TextPart::kAnswer, text.substr(i, size)}}});
      if (streams) events_ += exchange.TakeEvents();
    }
    exchange.Take(0, {.end = JobEnd{.finish = finish}});
    if (streams) events_ += exchange.TakeEvents();
    return exchange;
  }

  static std::shared_ptr<const Model> with_tools_;
  std::string events_;
};

std::shared_ptr<const Model> ToolsTest::with_tools_;

constexpr const char* kCalls =
    "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

TEST_F(ToolsTest, CallsAreToldApartFromTheText) {
  const Json whole = Answered(kCalls, 5, /*streams=*/false).Whole();
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I look.\n");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["id"], "call00003");
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>())["city"], "Oslo");
  EXPECT_EQ(calls[1]["id"], "call00004");
  EXPECT_EQ(calls[1]["function"]["name"], "time");
}

TEST_F(ToolsTest, AStreamTellsEachNameOnceAndArgumentsInPieces) {
  const Json whole = Answered(kCalls, 1000, /*streams=*/false).Whole();
  for (const size_t size : {1, 2, 3, 7, 50, 1000}) {
    events_.clear();
    (void)Answered(kCalls, size, /*streams=*/true);
    std::vector<std::string> ids(2), names(2), arguments(2);
    std::string content, finish;
    for (const std::string& event : ClientAnswer{.body = events_}.events()) {
      if (event == "[DONE]") continue;
      const Json choice = Json::parse(event)["choices"][0];
      const Json& delta = choice["delta"];
      content += delta.value("content", "");
      if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
      if (!delta.contains("tool_calls")) continue;
      for (const Json& call : delta["tool_calls"]) {
        const size_t index = call["index"];
        ids[index] += call.value("id", "");
        names[index] += call["function"].value("name", "");
        arguments[index] += call["function"].value("arguments", "");
      }
    }
    const Json& message = whole["choices"][0]["message"];
    EXPECT_EQ(content, message["content"]) << size;
    EXPECT_EQ(finish, "tool_calls");
    for (size_t i = 0; i < 2; ++i) {
      const Json& call = message["tool_calls"][i];
      EXPECT_EQ(ids[i], call["id"]) << size;
      EXPECT_EQ(names[i], call["function"]["name"]) << size;
      EXPECT_EQ(arguments[i], call["function"]["arguments"]) << size;
    }
  }
}

TEST_F(ToolsTest, AnAnswerThatOnlyCallsHasNoContent) {
  const std::string call = std::string(kCalls).substr(8);
  const Json whole = Answered(call, 9, /*streams=*/false).Whole();
  EXPECT_TRUE(whole["choices"][0]["message"]["content"].is_null());
}

TEST_F(ToolsTest, AnAnswerThatWasCutOffSaysSo) {
  const Json whole =
      Answered(std::string(kCalls).substr(0, 60), 4, /*streams=*/false, FinishReason::kLength)
          .Whole();
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "I look.\n");
}

TEST_F(ToolsTest, NothingOfAMalformedAnswerIsLost) {
  const std::string text = "I look. <tool_call>\nno JSON at all";
  const Json whole = Answered(text, 4, /*streams=*/false).Whole();
  EXPECT_EQ(whole["ebb"]["parse"], "failed") << whole.dump();
  EXPECT_EQ(whole["choices"][0]["message"]["content"], text);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
}

TEST_F(ToolsTest, ASchemaHoldsForTheAnswer) {
  auto server = Server::Start(with_tools_, Options());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  server_ = *std::move(server);
  const json schema = {{"type", "object"},
                       {"properties", {{"sea", {{"enum", {"calm", "rough"}}}}}},
                       {"required", {"sea"}},
                       {"additionalProperties", false}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  const ClientAnswer whole =
      Client(port()).Post("/v1/chat/completions",
                          json{{"messages", {{{"role", "user"}, {"content", "How is the sea?"}}}},
                               {"response_format", format},
                               {"max_tokens", 400}});
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json choice = whole.json()["choices"][0];
  ASSERT_EQ(choice["finish_reason"], "stop") << choice.dump();
  const json answer = json::parse(choice["message"]["content"].get<std::string>());
  EXPECT_THAT(answer["sea"].get<std::string>(), testing::AnyOf("calm", "rough"));
}

}  // namespace
}  // namespace ebb::server
