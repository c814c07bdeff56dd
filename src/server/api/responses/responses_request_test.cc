#include "src/server/api/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ebb::server {
namespace {

using testing::HasSubstr;

const StoredItems kNothing = {.conversation = [](const std::string&) { return std::nullopt; },
                              .item = [](const std::string&) { return std::nullopt; }};

ResponsesRequest ReadResponses(const std::string& text, const StoredItems& stored = kNothing) {
  auto result = ReadResponsesRequest(Json::parse(text), stored);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : ResponsesRequest();
}

ApiError Refused(const std::string& text) {
  auto result = ReadResponsesRequest(Json::parse(text), kNothing);
  EXPECT_FALSE(result.ok()) << text;
  return result.ok() ? ApiError() : result.error();
}

TEST(ResponsesRequest, ATextIsAUsersMessage) {
  const ResponsesRequest request = ReadResponses(R"({"input": "hi", "instructions": "be brief"})");
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([{"role": "system", "content": "be brief"},
                                                      {"role": "user", "content": "hi"}])"));
  EXPECT_TRUE(request.stores);
  EXPECT_EQ(request.echo["instructions"], "be brief");
  EXPECT_EQ(request.input,
            Json::parse(R"([{"type": "message", "role": "user", "content": "hi"}])"));
}

TEST(ResponsesRequest, ItemsOfOneTurnAreOneMessage) {
  const ResponsesRequest request = ReadResponses(R"({"input": [
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
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([
      {"role": "system", "content": "be brief"},
      {"role": "user", "content": "how is it"},
      {"role": "assistant", "content": "I look", "reasoning_content": "hmm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "4"},
      {"role": "tool", "tool_call_id": "c2", "content": "5"},
      {"role": "assistant", "content": "it is 9", "reasoning_content": "so"},
      {"role": "assistant", "content": "really"}])"))
      << request.chat["messages"].dump(1);
}

TEST(ResponsesRequest, SystemTextsAtTheBeginningAreOneMessage) {
  const ResponsesRequest request = ReadResponses(R"({"instructions": "a", "input": [
      {"role": "system", "content": "b"}, {"role": "developer", "content": "c"},
      {"role": "user", "content": "d"}, {"role": "system", "content": "e"}]})");
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([{"role": "system", "content": "a\n\nb\n\nc"},
      {"role": "user", "content": "d"}, {"role": "system", "content": "e"}])"));
}

TEST(ResponsesRequest, ToolsFormatsAndLimitsAreThoseOfAChat) {
  const ResponsesRequest request =
      ReadResponses(R"({"input": "hi", "max_output_tokens": 7, "top_p": 0.5,
      "tools": [{"type": "function", "name": "f", "description": "d", "strict": true,
                 "parameters": {"type": "object"}}],
      "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
      "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}},
               "verbosity": "low"},
      "reasoning": {"effort": "low", "summary": "auto"}, "metadata": {"a": "b"}, "store": false,
      "ebb": {"logits_hash": true}, "stream": true, "prompt_cache_key": "k"})");
  const Json& chat = request.chat;
  EXPECT_EQ(chat["max_tokens"], 7);
  EXPECT_EQ(chat["tools"], Json::parse(R"([{"type": "function", "function": {"name": "f",
      "description": "d", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(chat["tool_choice"]["name"], "f");
  EXPECT_EQ(chat["response_format"], Json::parse(R"({"type": "json_schema",
      "json_schema": {"schema": {"type": "object"}}})"));
  EXPECT_EQ(chat["reasoning_effort"], "low");
  // Fields that both have, ebb's own and unknown ones pass.
  EXPECT_EQ(chat["top_p"], 0.5);
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["ebb"]["logits_hash"], true);
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["prompt_cache_key"], "k");
  EXPECT_FALSE(chat.contains("store"));
  EXPECT_FALSE(chat.contains("metadata"));
  EXPECT_TRUE(request.wants_summary);
  EXPECT_FALSE(request.stores);
  EXPECT_EQ(request.echo["metadata"], Json::parse(R"({"a": "b"})"));
  EXPECT_EQ(request.echo["text"]["format"]["name"], "n");
  EXPECT_EQ(request.echo["reasoning"]["effort"], "low");
  EXPECT_EQ(request.echo["tools"][0]["name"], "f");
  EXPECT_EQ(request.echo["max_output_tokens"], 7);
}

TEST(ResponsesRequest, ToolsThatAreNoFunctionsAreLeftOutAndNamed) {
  const ResponsesRequest request = ReadResponses(R"({"input": "hi", "tools": [
      {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"},
      {"type": "function", "name": "sh", "parameters": {"type": "object"}},
      {"type": "image_generation"}, {"type": "mcp", "server_label": "s"}, {"type": "tool_search"}]})");
  EXPECT_EQ(request.chat["tools"], Json::parse(R"([{"type": "function", "function": {"name": "sh",
      "parameters": {"type": "object"}}}])"));
  EXPECT_THAT(request.ignored, testing::ElementsAre("tools[0]", "tools[1]", "tools[2]", "tools[4]",
                                                    "tools[5]", "tools[6]"));
  EXPECT_EQ(request.echo["tools"].size(), 7u);
}

TEST(ResponsesRequest, FunctionsOfANamespaceCanBeCalled) {
  const ResponsesRequest request = ReadResponses(R"({"input": [
      {"role": "user", "content": "hi"},
      {"type": "function_call", "call_id": "c", "namespace": "mcp__files", "name": "read",
       "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": "4"}],
      "tools": [{"type": "namespace", "name": "mcp__files", "description": "d", "tools": [
        {"type": "function", "name": "read", "description": "r"}, {"type": "custom", "name": "x"}]},
        {"type": "namespace", "name": "empty", "tools": []}, {"type": "namespace", "name": "none"}]})");
  EXPECT_EQ(request.chat["tools"], Json::parse(R"([{"type": "function",
      "function": {"name": "mcp__files__read", "description": "r"}}])"));
  EXPECT_EQ(request.chat["messages"][1]["tool_calls"][0]["function"]["name"], "mcp__files__read");
  ASSERT_TRUE(request.namespaced.contains("mcp__files__read"));
  EXPECT_EQ(request.namespaced.at("mcp__files__read").space, "mcp__files");
  EXPECT_EQ(request.namespaced.at("mcp__files__read").name, "read");
  EXPECT_THAT(request.ignored, testing::ElementsAre("tools[0].tools[1]", "tools[2]"));
  EXPECT_THAT(request.tool_paths, testing::ElementsAre("tools[0].tools[0]"));
}

TEST(ResponsesRequest, NoItemsAtAllAreAnEmptyMessage) {
  const ResponsesRequest request = ReadResponses(R"({"input": [], "max_output_tokens": 1})");
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([{"role": "user", "content": ""}])"));
}

TEST(ResponsesRequest, CallsOfOtherToolsAreToldAsFunctionsOrLeftOut) {
  const ResponsesRequest request = ReadResponses(R"({"input": [
      {"role": "user", "content": "hi"},
      {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** x"},
      {"type": "local_shell_call", "id": "i", "call_id": "c2", "status": "completed",
       "action": {"type": "exec"}},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
      {"type": "local_shell_call_output", "call_id": "c2", "output": {"code": 0}},
      {"type": "web_search_call", "id": "ws", "status": "completed"},
      {"type": "mcp_list_tools", "id": "m", "tools": []},
      {"role": "user", "content": "go on"}]})");
  const Json& messages = request.chat["messages"];
  ASSERT_EQ(messages.size(), 5u) << messages.dump(1);
  const Json& calls = messages[1]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["name"], "apply_patch");
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"input":"*** x"})");
  EXPECT_EQ(calls[1]["function"]["name"], "local_shell");
  EXPECT_EQ(calls[1]["function"]["arguments"], R"({"action":{"type":"exec"}})");
  EXPECT_EQ(messages[2]["content"], "ok");
  EXPECT_EQ(messages[3]["content"], R"({"code":0})");
  EXPECT_THAT(request.ignored, testing::ElementsAre("input[5]", "input[6]"));
}

TEST(ResponsesRequest, APictureThatAToolGaveBackBecomesText) {
  const ResponsesRequest request = ReadResponses(R"({"input": [
      {"type": "function_call", "call_id": "c", "name": "r", "arguments": "{\"t\": \"ab"},
      {"type": "function_call_output", "call_id": "c",
       "output": [{"type": "input_image", "image_url": "data:,"}]},
      {"role": "user", "content": "go on"}]})");
  const Json& messages = request.chat["messages"];
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], "{\"t\": \"ab");
  EXPECT_EQ(messages[1]["content"], "[image: this model reads text only]");
  EXPECT_THAT(request.ignored, testing::ElementsAre("input[1].output[0]"));
}

TEST(ResponsesRequest, ALastMessageOfTheAssistantsIsNotGoneOnWith) {
  EXPECT_EQ(ReadResponses(R"({"input": "hi"})").chat["continue_final_message"], false);
  EXPECT_EQ(ReadResponses(R"({"input": "hi", "continue_final_message": true})")
                .chat["continue_final_message"],
            true);
}

TEST(ResponsesRequest, AStoredResponseComesBeforeTheInput) {
  StoredItems stored = kNothing;
  stored.conversation = [](const std::string& id) -> std::optional<Json> {
    EXPECT_EQ(id, "resp_1");
    return Json::parse(R"([{"role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs", "status": "completed", "summary": [],
         "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "b"}]}])");
  };
  const ResponsesRequest request = ReadResponses(
      R"({"input": "c", "instructions": "i", "previous_response_id": "resp_1"})", stored);
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([{"role": "system", "content": "i"},
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "t"},
      {"role": "user", "content": "c"}])"));
  EXPECT_EQ(request.input.size(), 1u);
  EXPECT_EQ(request.echo["previous_response_id"], "resp_1");
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
  const auto shown = [](const std::string& param) {
    return InResponses(Invalid(param + ": expected more", param));
  };
  EXPECT_EQ(shown("max_tokens").param, "max_output_tokens");
  EXPECT_EQ(shown("max_tokens").message, "max_output_tokens: expected more");
  EXPECT_EQ(shown("response_format.json_schema.schema").param, "text.format.schema");
  EXPECT_EQ(shown("response_format.type").param, "text.format.type");
  EXPECT_EQ(shown("reasoning_effort").param, "reasoning.effort");
  EXPECT_EQ(shown("temperature").param, "temperature");
  EXPECT_EQ(shown("max_tokens_ever").param, "max_tokens_ever");
}

}  // namespace
}  // namespace ebb::server
