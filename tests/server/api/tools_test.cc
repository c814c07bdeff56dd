// Tests calls of tools, complete and as events, and answers that obey a schema.
#include <set>
#include <string>
#include <vector>

#include "src/server/api/openai/exchange.h"
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
  // Returns the exchange after an answer with this text, which comes in pieces of `size` bytes.
  Exchange Answered(const std::string& text, size_t size, bool streams,
                    FinishReason finish = FinishReason::kStop, const ToolNames& names = {}) {
    const Tool weather = {.name = "weather",
                          .parameters = R"({"type": "object", "properties": {"city": {}}})"};
    auto prompt = with_tools_->FormatChat(
        {.messages = {{"user", "How is Oslo?"}}, .tools = {weather, {.name = "time"}}});
    EXPECT_TRUE(prompt.ok()) << prompt.status().ToString();
    Exchange exchange(with_tools_,
                      {.request = {.tool_names = names,
                                   .streams = streams,
                                   .prompt = std::make_shared<const ChatPrompt>(*std::move(prompt)),
                                   .call_seed = 3,
                                   .may_call = true},
                       .id = "chatcmpl-1"});
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
  EXPECT_EQ(calls[0]["id"], MakeCallId(3, 0, 0));
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(calls[0]["function"]["arguments"].get<std::string>())["city"], "Oslo");
  EXPECT_EQ(calls[1]["id"], MakeCallId(3, 0, 1));
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

TEST_F(ToolsTest, ACallHasTheNameThatTheClientGaveTheTool) {
  const Json whole =
      Answered(kCalls, 5, /*streams=*/false, FinishReason::kStop, {{"weather", "sky.weather"}})
          .Whole();
  const Json& calls = whole["choices"][0]["message"]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["name"], "sky.weather");
  EXPECT_EQ(calls[1]["function"]["name"], "time");
}

TEST_F(ToolsTest, AnAnswerThatOnlyCallsHasNoContent) {
  const std::string call = std::string(kCalls).substr(8);
  const Json whole = Answered(call, 9, /*streams=*/false).Whole();
  EXPECT_TRUE(whole["choices"][0]["message"]["content"].is_null());
}

TEST_F(ToolsTest, CallsThatEndAThoughtAreCalls) {
  const std::string call = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";
  const struct {
    std::string thought;
    size_t num_calls;
    FinishReason finish;
    const char* reason;
  } cases[] = {
      {"I look.\n" + call + "\n", 1, FinishReason::kStop, "tool_calls"},
      {"I look.\n" + call + "\n" + call, 2, FinishReason::kStop, "tool_calls"},
      // The thought goes on after the call, so the call is part of the thought.
      {"I could say " + call + " but I do not.", 0, FinishReason::kStop, "stop"},
      {"A call begins with <tool_call>", 0, FinishReason::kStop, "stop"},
      {"I look.\n" + call, 0, FinishReason::kLength, "length"},
  };
  for (const auto& one : cases) {
    auto prompt = with_tools_->FormatChat(
        {.messages = {{"user", "What time is it?"}}, .tools = {{.name = "time"}}});
    ASSERT_TRUE(prompt.ok());
    Exchange exchange(
        with_tools_,
        {.request = {.prompt = std::make_shared<const ChatPrompt>(*prompt), .may_call = true},
         .id = "chatcmpl-1"});
    exchange.Take(0, {.accepted = true});
    exchange.Take(0, {.pieces = {{TextPart::kThought, one.thought}}});
    exchange.Take(0, {.end = JobEnd{.finish = one.finish}});
    const Json choice = exchange.Whole()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], one.reason) << one.thought;
    EXPECT_EQ(choice["message"].contains("tool_calls") ? choice["message"]["tool_calls"].size() : 0,
              one.num_calls)
        << one.thought;
    EXPECT_NE(choice["message"]["reasoning_content"], "") << one.thought;
  }
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

// ToolsServerTest sends requests to a server whose model has random weights: only a grammar gives
// its answers a form.
class ToolsServerTest : public ToolsTest {
 protected:
  void SetUp() override {
    auto server = Server::Start(with_tools_, Options());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  ClientAnswer Post(const std::string& path, const json& body) {
    return Client(port()).Post(path, body);
  }
  // Sends a chat with these fields.
  ClientAnswer Chat(json fields) {
    fields["messages"] = {{{"role", "user"}, {"content", "How is the sea?"}}};
    if (!fields.contains("max_tokens")) fields["max_tokens"] = 400;
    return Post("/v1/chat/completions", fields);
  }
  static std::string Ignored(const ClientAnswer& answer) {
    const auto found = answer.headers.find("x-ebb-ignored");
    return found == answer.headers.end() ? "" : found->second;
  }
  static json ToolOf(const std::string& name, const json& parameters) {
    return {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
  }
};

TEST_F(ToolsServerTest, ARequiredCallEndsInACall) {
  const json parameters = {
      {"type", "object"}, {"properties", {{"depth", {{"enum", {1, 2}}}}}}, {"required", {"depth"}}};
  const json named = {{"type", "function"}, {"function", {{"name", "sea"}}}};
  for (const json& choice : {json("required"), named}) {
    for (const int seed : {1, 2, 3}) {
      const ClientAnswer answer = Chat({{"tools", {ToolOf("sea", parameters)}},
                                        {"tool_choice", choice},
                                        {"parallel_tool_calls", false},
                                        {"seed", seed}});
      ASSERT_EQ(answer.status, 200) << answer.body;
      const json one = answer.json()["choices"][0];
      ASSERT_EQ(one["finish_reason"], "tool_calls") << answer.body;
      ASSERT_GE(one["message"]["tool_calls"].size(), 1u) << answer.body;
      const json& function = one["message"]["tool_calls"][0]["function"];
      EXPECT_EQ(function["name"], "sea");
      const json arguments = json::parse(function["arguments"].get<std::string>());
      EXPECT_TRUE(arguments["depth"] == 1 || arguments["depth"] == 2) << arguments.dump();
    }
  }
  const json cut =
      Chat({{"tools", {ToolOf("sea", parameters)}}, {"tool_choice", "required"}, {"max_tokens", 5}})
          .json();
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length") << cut.dump();
  const ClientAnswer messages =
      Post("/v1/messages", {{"messages", {{{"role", "user"}, {"content", "How is the sea?"}}}},
                            {"tools", {{{"name", "sea"}, {"input_schema", parameters}}}},
                            {"tool_choice", {{"type", "any"}}},
                            {"max_tokens", 400}});
  ASSERT_EQ(messages.status, 200) << messages.body;
  EXPECT_EQ(messages.json()["stop_reason"], "tool_use") << messages.body;
}

TEST_F(ToolsServerTest, OddSchemasOfToolsAreNamedAndRefuseNothing) {
  const json odd = {{"type", "object"},
                    {"properties",
                     {{"x", true},
                      {"]", {{"type", "string"}}},
                      {"n", {{"type", "number"}, {"multipleOf", 0.5}}},
                      {"far", {{"$ref", "https://example.org/a.json"}}},
                      {"long", {{"type", "string"}, {"minLength", 2001}}}}}};
  const json tools = {ToolOf("well", json::object()), ToolOf("odd", odd)};
  for (const char* choice : {"auto", "none", "required", "odd"}) {
    const json asked = std::string(choice) == "odd"
                           ? json{{"type", "function"}, {"function", {{"name", "odd"}}}}
                           : json(choice);
    const ClientAnswer answer = Chat({{"tools", tools}, {"tool_choice", asked}, {"max_tokens", 2}});
    ASSERT_EQ(answer.status, 200) << choice << answer.body;
    EXPECT_EQ(Ignored(answer), std::string(choice) == "none"
                                   ? ""
                                   : "tools[1].function.parameters.properties.far, "
                                     "tools[1].function.parameters.properties.n")
        << choice;
  }
  const ClientAnswer messages =
      Post("/v1/messages", {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                            {"tools", {{{"name", "odd"}, {"input_schema", odd}}}},
                            {"max_tokens", 2}});
  ASSERT_EQ(messages.status, 200) << messages.body;
  EXPECT_THAT(Ignored(messages), testing::HasSubstr("tools[0].input_schema.properties.n"));
}

TEST_F(ToolsServerTest, GuidedTextsAreWhatTheyAreToBe) {
  const std::pair<json, std::string> cases[] = {
      {{{"guided_choice", {"calm", "rough"}}}, "calm|rough"},
      {{{"guided_regex", "[ab]{3}-\\d"}}, "[ab]{3}-[0-9]"},
      {{{"guided_grammar", "root ::= [xy] [xy]"}}, "[xy]{2}"},
      {{{"guided_json", {{"enum", {1, 2}}}}}, "1|2"},
      {{{"structured_outputs", {{"regex", "^(a|b)$"}}}}, "a|b"},
      {{{"structured_outputs", {{"json", {{"const", 5}}}}}}, "5"},
  };
  for (const auto& [fields, pattern] : cases) {
    const ClientAnswer chat = Chat(fields);
    ASSERT_EQ(chat.status, 200) << chat.body;
    EXPECT_THAT(chat.json()["choices"][0]["message"]["content"].get<std::string>(),
                testing::MatchesRegex(pattern));
    json text = fields;
    text["prompt"] = "The sea is";
    const ClientAnswer completion = Post("/v1/completions", text);
    ASSERT_EQ(completion.status, 200) << completion.body;
    EXPECT_THAT(completion.json()["choices"][0]["text"].get<std::string>(),
                testing::MatchesRegex(pattern));
  }
}

TEST_F(ToolsServerTest, ATextObeysItsFormatWhereToolsMayBeCalled) {
  const json format = {
      {"type", "json_schema"},
      {"json_schema",
       {{"schema",
         {{"type", "object"}, {"properties", {{"a", {{"const", 1}}}}}, {"required", {"a"}}}}}}};
  const json parameters = {
      {"type", "object"}, {"properties", {{"depth", {{"const", 2}}}}}, {"required", {"depth"}}};
  for (const int seed : {1, 2, 3, 4}) {
    const ClientAnswer answer = Chat({{"tools", {ToolOf("sea", parameters)}},
                                      {"response_format", format},
                                      {"parallel_tool_calls", false},
                                      {"seed", seed}});
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json one = answer.json()["choices"][0];
    if (one["finish_reason"] == "tool_calls") {
      EXPECT_EQ(one["message"]["tool_calls"].size(), 1u);
    } else {
      EXPECT_EQ(json::parse(one["message"]["content"].get<std::string>()), json({{"a", 1}}));
    }
  }
}

TEST_F(ToolsServerTest, SchemasThatCannotBeHeldToAreRefusedBeforeAnythingIsSaid) {
  for (const char* schema :
       {R"({"type": "integer", "minimum": 5, "maximum": 3})",
        R"({"type": "object", "properties": {"a": {"type": "integer", "exclusiveMinimum": 3,
            "exclusiveMaximum": 4}}, "required": ["a"]})",
        R"({"type": "number", "multipleOf": 0.5})", R"({"type": "array", "contains": {}})"}) {
    for (const bool streams : {false, true}) {
      const ClientAnswer answer =
          Chat({{"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"schema", json::parse(schema)}}}}},
                {"stream", streams}});
      EXPECT_EQ(answer.status, 400) << schema << answer.body;
      EXPECT_EQ(answer.json()["error"]["param"], "response_format.json_schema.schema") << schema;
    }
  }
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

TEST_F(ToolsServerTest, ABegunAnswerThatNoFormatAdmitsIsAnErrorOfTheMessages) {
  const json tools = {ToolOf("sea", {{"type", "object"}})};
  for (const json& more : std::vector<json>{{{"response_format", {{"type", "json_object"}}}},
                                            {{"json_schema", {{"type", "integer"}}}},
                                            {{"guided_choice", {"yes", "no"}}},
                                            {{"guided_regex", "[0-9]+"}},
                                            {{"grammar", "root ::= \"b\""}},
                                            {{"tools", tools}, {"tool_choice", "required"}}}) {
    json body = {
        {"max_tokens", 1},
        {"messages",
         {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "Well,"}}}}};
    body.update(more);
    const ClientAnswer answer = Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], "messages") << answer.body;
    EXPECT_EQ(answer.body.find("grammar_prefix"), std::string::npos) << answer.body;
  }
}

TEST_F(ToolsServerTest, IdsOfCallsAreTheirOwn) {
  const json tools = {ToolOf("sea", {{"type", "object"}, {"properties", {{"a", {{"const", 1}}}}}})};
  const auto ids = [&](const std::string& question, int choices) {
    const ClientAnswer answer =
        Post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", question}}}},
                                      {"tools", tools},
                                      {"tool_choice", "required"},
                                      {"parallel_tool_calls", false},
                                      {"n", choices},
                                      {"max_tokens", 200}});
    std::vector<std::string> all;
    const json body = answer.json();
    for (const json& choice : body["choices"]) {
      for (const json& call : choice["message"]["tool_calls"]) all.push_back(call["id"]);
    }
    EXPECT_EQ(all.size(), static_cast<size_t>(choices)) << answer.body;
    return all;
  };
  const std::vector<std::string> first = ids("How is the sea?", 3);
  EXPECT_EQ(ids("How is the sea?", 3), first);
  std::vector<std::string> all = ids("How is the lake?", 3);
  all.insert(all.end(), first.begin(), first.end());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 6U);
}

TEST_F(ToolsServerTest, AFunctionCallIsAnsweredAsItWasAsked) {
  const json body = {
      {"messages", {{{"role", "user"}, {"content", "How is the sea?"}}}},
      {"functions",
       {{{"name", "sea"},
         {"parameters",
          {{"type", "object"}, {"properties", {{"a", {{"const", 1}}}}}, {"required", {"a"}}}}}}},
      {"function_call", {{"name", "sea"}}},
      {"max_tokens", 400}};
  const json choice = Post("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call") << choice;
  EXPECT_EQ(choice["message"]["function_call"]["name"], "sea");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  json streamed = body;
  streamed["stream"] = true;
  std::string name, arguments;
  for (const std::string& event : Post("/v1/chat/completions", streamed).events()) {
    if (event == "[DONE]") continue;
    const json delta = json::parse(event)["choices"][0]["delta"];
    if (!delta.contains("function_call")) continue;
    name += delta["function_call"].value("name", "");
    arguments += delta["function_call"].value("arguments", "");
  }
  EXPECT_EQ(name, "sea");
  EXPECT_EQ(arguments, choice["message"]["function_call"]["arguments"]);
}

}  // namespace
}  // namespace ebb::server
