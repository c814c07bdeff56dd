// Calls of tools, in one piece and as events. A model with random weights calls because the grammar
// of a required call leaves it nothing else.
#include <vector>

#include "tests/server/server_fixture.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;

constexpr const char* kTemplate =
    "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + "
    "'\\n</tool_response><|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + message.content }}"
    "{%- for tool_call in message.tool_calls %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + tool_call.function.name + '\", \"arguments\": ' }}"
    "{{- tool_call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

class ToolsTest : public ServerTest {
 protected:
  void SetUp() override {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    ASSERT_TRUE(WriteRandomGguf({.num_layers = 2, .context = 2048}, path).ok());
    auto edit = GgufEdit::Open(path);
    ASSERT_TRUE(edit.ok());
    edit->SetText("tokenizer.chat_template", kTemplate);
    ASSERT_TRUE(edit->Save(folder.File("tools.gguf")).ok());
    auto model = Model::Load({.path = folder.File("tools.gguf")});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto server = Server::Start(*model, Options());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  static json Request() {
    const json city = {{"type", "object"},
                       {"properties", {{"city", {{"enum", {"Oslo", "Bern"}}}}}},
                       {"required", {"city"}}};
    const json weather = {{"type", "function"},
                          {"function", {{"name", "weather"}, {"parameters", city}}}};
    return {{"messages", {{{"role", "user"}, {"content", "How is Oslo?"}}}},
            {"tools", json::array({weather})},
            {"tool_choice", "required"},
            {"parallel_tool_calls", false},
            {"max_tokens", 400}};
  }
  json Ask(const json& body) {
    const ClientAnswer answer = Client(port()).Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
};

TEST_F(ToolsTest, ACallIsToldApartFromTheText) {
  const json choice = Ask(Request())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null()) << choice.dump();
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["id"], "call00000");
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "weather");
  const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
  EXPECT_THAT(arguments["city"].get<std::string>(), testing::AnyOf("Oslo", "Bern"));
}

TEST_F(ToolsTest, AStreamTellsNameAndIdOnceAndArgumentsInPieces) {
  const json whole = Ask(Request())["choices"][0]["message"]["tool_calls"];
  json body = Request();
  body["stream"] = true;
  const ClientAnswer answer = Client(port()).Post("/v1/chat/completions", body);
  std::string name, id, arguments, finish;
  for (const std::string& event : answer.events()) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    if (!choice["delta"].contains("tool_calls")) continue;
    for (const json& call : choice["delta"]["tool_calls"]) {
      EXPECT_EQ(call["index"], 0);
      id += call.value("id", "");
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(id, whole[0]["id"]);
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(arguments, whole[0]["function"]["arguments"]);
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(ToolsTest, TheResultOfACallGoesBackAndTheNextCallHasAnotherId) {
  json body = Request();
  const json message = Ask(body)["choices"][0]["message"];
  body["messages"].push_back(message);
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", "call00000"}, {"content", "rain"}});
  const json next = Ask(body)["choices"][0]["message"];
  EXPECT_EQ(next["tool_calls"][0]["id"], "call00001");
}

TEST_F(ToolsTest, AnAnswerThatWasCutOffInACallIsNoCall) {
  json body = Request();
  body["max_tokens"] = 6;
  const json choice = Ask(body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(ToolsTest, ASchemaHoldsForTheAnswer) {
  const json schema = {{"type", "object"},
                       {"properties", {{"sea", {{"enum", {"calm", "rough"}}}}}},
                       {"required", {"sea"}},
                       {"additionalProperties", false}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  const json choice = Ask({{"messages", {{{"role", "user"}, {"content", "How is the sea?"}}}},
                           {"response_format", format},
                           {"max_tokens", 400}})["choices"][0];
  ASSERT_EQ(choice["finish_reason"], "stop") << choice.dump();
  const json answer = json::parse(choice["message"]["content"].get<std::string>());
  EXPECT_THAT(answer["sea"].get<std::string>(), testing::AnyOf("calm", "rough"));
}

}  // namespace
}  // namespace ebb::server
