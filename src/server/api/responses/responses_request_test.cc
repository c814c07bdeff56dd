#include "src/server/api/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/server/api/parts/messages_for_test.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;

ApiResult<CompletionRequest> TryRead(const std::string& text, ResponseStore* stored = nullptr,
                                     ReadScope scope = ReadScope::kAnswer) {
  ResponseStore empty(1000);
  return ReadResponses(Json::parse(text), {.model_id = "pebble"},
                       stored == nullptr ? &empty : stored, scope);
}

CompletionRequest Read(const std::string& text, ResponseStore* stored = nullptr) {
  auto result = TryRead(text, stored);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : CompletionRequest();
}

Json MessagesOf(const CompletionRequest& request) { return MessagesJson(request.chat.messages); }

ApiError Refused(const std::string& text) {
  auto result = TryRead(text);
  EXPECT_FALSE(result.ok()) << text;
  return result.ok() ? ApiError() : result.error();
}

TEST(ResponsesRequest, ATextIsAUsersMessage) {
  const CompletionRequest request = Read(R"({"input": "hi", "instructions": "be brief"})");
  EXPECT_EQ(MessagesOf(request), Json::parse(R"([{"role": "system", "content": "be brief"},
                                                      {"role": "user", "content": "hi"}])"));
  EXPECT_TRUE(request.responses->stores);
  EXPECT_EQ(request.responses->echo["instructions"], "be brief");
  EXPECT_EQ(request.responses->input,
            Json::parse(R"([{"type": "message", "role": "user", "content": "hi"}])"));
}

TEST(ResponsesRequest, ItemsOfOneTurnAreOneMessage) {
  const CompletionRequest request = Read(R"({"input": [
      {"role": "developer", "content": "be brief"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "how "},
                                                      {"type": "input_text", "text": "is it"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
       "content": [{"type": "reasoning_text", "text": "hmm"}]},
      {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "I look", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "4"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "5"}]},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
      {"role": "assistant", "content": "it is 9"},
      {"role": "assistant", "content": "really"}]})");
  EXPECT_EQ(MessagesOf(request), Json::parse(R"([
      {"role": "system", "content": "be brief"},
      {"role": "user", "content": "how is it"},
      {"role": "assistant", "content": "I look", "thought": "hmm", "calls": [
        {"id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"id": "c2", "name": "g", "arguments": "{}"}]},
      {"role": "tool", "content": "4", "call_id": "c1"},
      {"role": "tool", "content": "5", "call_id": "c2"},
      {"role": "assistant", "content": "it is 9", "thought": "so"},
      {"role": "assistant", "content": "really"}])"))
      << MessagesOf(request).dump(1);
}

TEST(ResponsesRequest, SystemTextsAtTheBeginningAreOneMessage) {
  const CompletionRequest request = Read(R"({"instructions": "a", "input": [
      {"role": "system", "content": "b"}, {"role": "developer", "content": "c"},
      {"role": "user", "content": "d"}, {"role": "system", "content": "e"}]})");
  EXPECT_EQ(MessagesOf(request), Json::parse(R"([{"role": "system", "content": "a\n\nb\n\nc"},
      {"role": "user", "content": "d"}, {"role": "system", "content": "e"}])"));
}

TEST(ResponsesRequest, ToolsFormatsAndLimitsAreThoseOfAChat) {
  const CompletionRequest request = Read(R"({"input": "hi", "max_output_tokens": 7, "top_p": 0.5,
      "tools": [{"type": "function", "name": "f", "description": "d", "strict": true,
                 "parameters": {"type": "object"}}],
      "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
      "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
               "verbosity": "low"},
      "reasoning": {"effort": "low", "summary": "auto"}, "metadata": {"a": "b"}, "store": false,
      "ebb": {"logits_hash": true}, "stream": true, "prompt_cache_key": "k"})");
  const ChatRequest& chat = request.chat;
  EXPECT_EQ(request.generate.max_tokens, 7);
  ASSERT_EQ(chat.tools.size(), 1u);
  EXPECT_EQ(chat.tools[0].description, "d");
  EXPECT_EQ(chat.tools[0].parameters, R"({"type":"object"})");
  EXPECT_EQ(chat.tool_choice, "f");
  EXPECT_EQ(chat.json_schema, R"({"type":"object"})");
  EXPECT_EQ(request.format_field, "text.format.schema");
  EXPECT_EQ(chat.template_arguments.at("reasoning_effort"), R"("low")");
  EXPECT_EQ(request.argument_fields.at("reasoning_effort"), "reasoning.effort");
  EXPECT_EQ(request.prompt_field, "input");
  // Fields that both APIs have, ebb's own and unknown ones are read as a chat's.
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_FALSE(chat.parallel_tool_calls);
  EXPECT_TRUE(request.reports_hash);
  EXPECT_TRUE(request.streams);
  EXPECT_THAT(request.ignored, testing::ElementsAre("prompt_cache_key"));
  EXPECT_TRUE(request.responses->wants_summary);
  EXPECT_FALSE(request.responses->stores);
  EXPECT_EQ(request.responses->echo["metadata"], Json::parse(R"({"a": "b"})"));
  EXPECT_EQ(request.responses->echo["text"]["format"]["name"], "n");
  EXPECT_EQ(request.responses->echo["reasoning"]["effort"], "low");
  EXPECT_EQ(request.responses->echo["tools"][0]["name"], "f");
  EXPECT_EQ(request.responses->echo["max_output_tokens"], 7);
}

TEST(ResponsesRequest, ToolsThatAreNoFunctionsAreLeftOutAndNamed) {
  const CompletionRequest request = Read(R"({"input": "hi", "tools": [
      {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"},
      {"type": "function", "name": "sh", "parameters": {"type": "object"}},
      {"type": "image_generation"}, {"type": "mcp", "server_label": "s"}, {"type": "tool_search"}]})");
  ASSERT_EQ(request.chat.tools.size(), 1u);
  EXPECT_EQ(request.chat.tools[0].name, "sh");
  EXPECT_THAT(request.ignored, testing::ElementsAre("tools[0]", "tools[1]", "tools[2]", "tools[4]",
                                                    "tools[5]", "tools[6]"));
  EXPECT_EQ(request.responses->echo["tools"].size(), 7u);
}

TEST(ResponsesRequest, FunctionsOfANamespaceCanBeCalled) {
  const CompletionRequest request = Read(R"({"input": [
      {"role": "user", "content": "hi"},
      {"type": "function_call", "call_id": "c", "namespace": "mcp__files", "name": "read",
       "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": "4"}],
      "tools": [{"type": "namespace", "name": "mcp__files", "description": "d", "tools": [
        {"type": "function", "name": "read", "description": "r"}, {"type": "custom", "name": "x"}]},
        {"type": "namespace", "name": "empty", "tools": []}, {"type": "namespace", "name": "none"}]})");
  ASSERT_EQ(request.chat.tools.size(), 1u);
  EXPECT_EQ(request.chat.tools[0].name, "mcp__files__read");
  EXPECT_EQ(request.chat.tools[0].description, "r");
  EXPECT_EQ(request.chat.messages[1].tool_calls[0].name, "mcp__files__read");
  ASSERT_TRUE(request.responses->namespaced.contains("mcp__files__read"));
  EXPECT_EQ(request.responses->namespaced.at("mcp__files__read").space, "mcp__files");
  EXPECT_EQ(request.responses->namespaced.at("mcp__files__read").name, "read");
  EXPECT_THAT(request.ignored, testing::ElementsAre("tools[0].tools[1]", "tools[2]"));
  EXPECT_THAT(request.tool_paths,
              testing::ElementsAre(ToolPaths{"tools[0].tools[0]", "tools[0].tools[0].parameters"}));
}

TEST(ResponsesRequest, NoItemsAtAllAreAnEmptyMessage) {
  const CompletionRequest request = Read(R"({"input": [], "max_output_tokens": 1})");
  EXPECT_EQ(MessagesOf(request), Json::parse(R"([{"role": "user", "content": ""}])"));
}

TEST(ResponsesRequest, CallsOfOtherToolsAreToldAsFunctionsOrLeftOut) {
  const CompletionRequest request = Read(R"({"input": [
      {"role": "user", "content": "hi"},
      {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** x"},
      {"type": "local_shell_call", "id": "i", "call_id": "c2", "status": "completed",
       "action": {"type": "exec"}},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
      {"type": "local_shell_call_output", "call_id": "c2", "output": {"code": 0}},
      {"type": "web_search_call", "id": "ws", "status": "completed"},
      {"type": "mcp_list_tools", "id": "m", "tools": []},
      {"role": "user", "content": "go on"}]})");
  const std::vector<ChatMessage>& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 5u) << MessagesOf(request).dump(1);
  const std::vector<ToolCall>& calls = messages[1].tool_calls;
  EXPECT_EQ(calls[0].name, "apply_patch");
  EXPECT_EQ(calls[0].arguments, R"({"input":"*** x"})");
  EXPECT_EQ(calls[1].name, "local_shell");
  EXPECT_EQ(calls[1].arguments, R"({"action":{"type":"exec"}})");
  EXPECT_EQ(messages[2].content, "ok");
  EXPECT_EQ(messages[3].content, R"({"code":0})");
  EXPECT_THAT(request.ignored, testing::ElementsAre("input[5]", "input[6]"));
}

TEST(ResponsesRequest, APictureThatAToolGaveBackBecomesText) {
  const CompletionRequest request = Read(R"({"input": [
      {"type": "function_call", "call_id": "c", "name": "r", "arguments": "{\"t\": \"ab"},
      {"type": "function_call_output", "call_id": "c",
       "output": [{"type": "input_image", "image_url": "data:,"}]},
      {"role": "user", "content": "go on"}]})");
  const std::vector<ChatMessage>& messages = request.chat.messages;
  EXPECT_EQ(messages[0].tool_calls[0].arguments, R"({"INVALID_JSON":"{\"t\": \"ab"})");
  EXPECT_EQ(messages[1].content, "[image: this model reads text only]");
  EXPECT_THAT(request.ignored, testing::ElementsAre("input[1].output[0]"));
}

TEST(ResponsesRequest, ALastMessageOfTheAssistantsIsNotGoneOnWith) {
  const std::string input = R"({"input": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}])";
  EXPECT_FALSE(Read(input + "}").begun.has_value());
  EXPECT_TRUE(Read(input + R"(, "continue_final_message": true})").begun.has_value());
}

TEST(ResponsesRequest, AStoredResponseComesBeforeTheInput) {
  ResponseStore stored(10000);
  const Json input = Json::parse(R"([{"role": "user", "content": "a"}])");
  const Json output = Json::parse(R"({"output": [
        {"type": "reasoning", "id": "rs", "status": "completed", "summary": [],
         "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "b"}]}]})");
  stored.Put("resp_1", nullptr, input, output);
  const CompletionRequest request =
      Read(R"({"input": "c", "instructions": "i", "previous_response_id": "resp_1"})", &stored);
  EXPECT_EQ(MessagesOf(request), Json::parse(R"([{"role": "system", "content": "i"},
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "thought": "t"},
      {"role": "user", "content": "c"}])"));
  EXPECT_EQ(request.responses->input.size(), 1u);
  EXPECT_EQ(request.responses->echo["previous_response_id"], "resp_1");
}

TEST(ResponsesRequest, WhatCannotBeHonouredIsRefusedByItsName) {
  struct Case {
    const char* body;
    const char* param;
    const char* code;
  };
  const Case cases[] = {
      {R"({})", "input", "missing_field"},
      {R"({"input": 5})", "input", "invalid_type"},
      {R"({"input": [5]})", "input[0]", "invalid_type"},
      {R"({"input": [{"role": "king", "content": "a"}]})", "input[0].role", "invalid_value"},
      {R"({"input": [{"content": "a"}]})", "input[0].role", "missing_field"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0]", "unsupported"},
      {R"({"input": [{"type": "function_call", "call_id": "c"}]})", "input[0].name",
       "missing_field"},
      {R"({"input": "a", "tools": [5]})", "tools[0]", "invalid_type"},
      {R"({"input": "a", "background": true})", "background", "unsupported"},
      {R"({"input": "a", "conversation": "c"})", "conversation", "unsupported"},
      {R"({"input": "a", "prompt": {"id": "p"}})", "prompt", "unsupported"},
      {R"({"input": "a", "n": 2})", "n", "unsupported"},
      {R"({"input": "a", "messages": []})", "messages", "unsupported"},
      {R"({"input": "a", "include": ["message.output_text.logprobs"]})", "include", "unsupported"},
      {R"({"input": "a", "metadata": "m"})", "metadata", "invalid_type"},
      {R"({"input": "a", "previous_response_id": "resp_0"})", "previous_response_id",
       "previous_response_not_found"},
  };
  for (const Case& one : cases) {
    const ApiError error = Refused(one.body);
    EXPECT_EQ(error.status, 400) << one.body;
    EXPECT_EQ(error.param, one.param) << one.body;
    EXPECT_EQ(error.code, one.code) << one.body;
    EXPECT_THAT(error.message, HasSubstr(one.param));
  }
}

TEST(ResponsesRequest, ErrorsOfTheChatNameTheClientsFields) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("max_output_tokens": 0)", "max_output_tokens"},
      {R"("text": {"format": {"type": "json_schema"}})", "text.format.schema"},
      {R"("text": {"format": {"type": "yaml"}})", "text.format.type"},
      {R"("text": {"format": {"type": "json_object"}}, "grammar": "root ::= \"a\"")",
       "text.format"},
      {R"("reasoning": {"effort": 5})", "reasoning.effort"},
      {R"("reasoning": {"effort": "huge"})", "reasoning.effort"},
      {R"("temperature": 9)", "temperature"},
      {R"("tools": [{"type": "function", "name": 5}])", "tools[0].name"}};
  for (const auto& [more, param] : cases) {
    const ApiError error = Refused(R"({"input": "a", )" + std::string(more) + "}");
    EXPECT_EQ(error.param, param);
    EXPECT_THAT(error.message, testing::StartsWith(std::string(param) + ": "));
  }
}

TEST(ResponsesRequest, TheSchemaOfAToolThatIsNoneIsNamedWhereItStands) {
  const CompletionRequest request =
      Read(R"({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": 5}]})");
  EXPECT_THAT(request.ignored, testing::ElementsAre("tools[0].parameters"));
}

}  // namespace
}  // namespace ebb::server
