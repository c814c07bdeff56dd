#include "src/server/api/messages/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/server/api/parts/messages_for_test.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ApiResult<CompletionRequest> TryRead(const std::string& text,
                                     ReadScope scope = ReadScope::kAnswer) {
  return ReadMessages(Json::parse(text), {.model_id = "pebble"}, scope);
}

CompletionRequest Read(const std::string& text, ReadScope scope = ReadScope::kAnswer) {
  auto result = TryRead(text, scope);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : CompletionRequest();
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  const CompletionRequest request = Read(R"({"max_tokens": 9, "system": [
      {"type": "text", "text": "be ", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "brief"}],
      "messages": [
        {"role": "user", "content": [{"type": "text", "text": "how "}, {"type": "text", "text": "is it"}]},
        {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "hm", "signature": "s"},
          {"type": "redacted_thinking", "data": "x"},
          {"type": "text", "text": "I look"},
          {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": 2}},
          {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "t1", "content": "4"},
          {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
           "content": [{"type": "text", "text": "no"}]},
          {"type": "text", "text": "go on"}]}]})");
  EXPECT_EQ(MessagesJson(request.chat.messages), Json::parse(R"([
      {"role": "system", "content": "be brief"},
      {"role": "user", "content": "how is it"},
      {"role": "assistant", "content": "I look", "thought": "hm", "calls": [
        {"id": "t1", "name": "f", "arguments": "{\"z\":1,\"a\":2}"},
        {"id": "t2", "name": "g", "arguments": "{}"}]},
      {"role": "tool", "content": "4", "call_id": "t1"},
      {"role": "tool", "content": "no", "call_id": "t2"},
      {"role": "user", "content": "go on"}])"));
  EXPECT_EQ(request.generate.max_tokens, 9);
}

TEST(MessagesRequest, StopsAndThoughtsAreThoseOfAChat) {
  const CompletionRequest request = Read(R"({"max_tokens": 9, "system": "s",
      "messages": [{"role": "user", "content": "hi"}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
      "stop_sequences": ["END"], "thinking": {"type": "enabled", "budget_tokens": 5},
      "top_k": 3, "metadata": {"user_id": "u"}, "stream": true,
      "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}}})");
  const ChatRequest& chat = request.chat;
  ASSERT_EQ(chat.tools.size(), 1u);
  EXPECT_EQ(chat.tools[0].parameters, R"({"type":"object"})");
  EXPECT_THAT(request.tool_paths, ElementsAre(ToolPaths{"tools[0]", "tools[0].input_schema"}));
  EXPECT_EQ(chat.tool_choice, "required");
  EXPECT_FALSE(chat.parallel_tool_calls);
  EXPECT_THAT(request.generate.stops, ElementsAre("END"));
  EXPECT_THAT(request.stop_sequences, ElementsAre("END"));
  EXPECT_EQ(request.generate.thinking_budget, 5);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_TRUE(request.streams);
  EXPECT_EQ(chat.template_arguments.at("reasoning_effort"), R"("max")");
  EXPECT_EQ(request.argument_fields.at("reasoning_effort"), "output_config.effort");
  EXPECT_EQ(chat.json_schema, R"({"type":"object"})");
  EXPECT_EQ(request.format_field, "output_config.format.schema");
  EXPECT_THAT(request.ignored, ElementsAre("metadata"));
  const CompletionRequest off =
      Read(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
      "thinking": {"type": "disabled"}, "output_config": {"effort": "high"}})");
  EXPECT_EQ(off.chat.thinking, Thinking::kOff);
  EXPECT_FALSE(off.chat.template_arguments.contains("reasoning_effort"));
}

TEST(MessagesRequest, WhatAToolGaveBackThatIsNoTextIsReplaced) {
  const CompletionRequest request = Read(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "look"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [
          {"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "data": ""}},
          {"type": "search_result", "source": "s", "title": "t",
           "content": [{"type": "text", "text": "found"}]},
          {"type": "document", "source": {"type": "text", "data": "words"}},
          {"type": "tool_reference", "tool_name": "Grep"}]},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}},
        {"type": "text", "text": "go on"}]}]})");
  const std::vector<ChatMessage>& messages = request.chat.messages;
  EXPECT_EQ(messages[2].content,
            "a\n[image: this model reads text only]\nt\ns\nfound\n\nwords\n[tool_reference: Grep]");
  EXPECT_EQ(messages[3].content, "[document: this model reads text only]\ngo on");
  EXPECT_THAT(request.ignored,
              ElementsAre("messages[2].content[0].content[1]", "messages[2].content[0].content[4]",
                          "messages[2].content[1]"));
  const auto own = TryRead(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
          {"type": "image", "source": {}}]}]})");
  EXPECT_EQ(
      own.error().message,
      "messages[0].content[0]: expected a text, found a part of type \"image\": this model reads "
      "text only");
}

TEST(MessagesRequest, ClaudeCodesLineForTheBillIsLeftOut) {
  const std::string line = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=a1b2c;";
  const auto read = [](const Json& system) {
    return Read(Json{
        {"max_tokens", 1}, {"system", system}, {"messages", {{{"role", "user"}, {"content", "a"}}}}}
                    .dump());
  };
  const Json rest = {{"type", "text"}, {"text", "You code."}};
  for (const Json& system : {Json::array({{{"type", "text"}, {"text", line}}, rest}),
                             Json(line + "\nYou code."), Json(line + "\r\n\r\nYou code.")}) {
    const CompletionRequest request = read(system);
    EXPECT_EQ(request.chat.messages[0].content, "You code.") << system.dump();
    EXPECT_THAT(request.ignored, ElementsAre("system: x-anthropic-billing-header"));
  }
  // Without the billing line no system text is left.
  EXPECT_EQ(read(line).chat.messages.size(), 1u);
  EXPECT_EQ(read(line + "\n").chat.messages.size(), 1u);
  // The line is kept if it is not at the beginning.
  EXPECT_THAT(read("See " + line).ignored, ElementsAre());
}

TEST(MessagesRequest, CallsAreTakenBackWhateverTheyHold) {
  const CompletionRequest request = Read(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "f", "input": "{\"x"},
        {"type": "tool_use", "id": "t2", "name": "f", "input": [1]}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}]})");
  const std::vector<ToolCall>& calls = request.chat.messages[1].tool_calls;
  EXPECT_EQ(calls[0].arguments, R"({"INVALID_JSON":"{\"x"})");
  EXPECT_EQ(calls[1].arguments, R"({"INVALID_JSON":"[1]"})");
  EXPECT_THAT(request.ignored, ElementsAre("messages[1].content[0]"));
}

TEST(MessagesRequest, ALastMessageOfTheAssistantsIsGoneOnWith) {
  const CompletionRequest request = Read(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "assistant", "content": [{"type": "text", "text": "The"}]}]})");
  EXPECT_TRUE(request.must_continue);
  ASSERT_TRUE(request.begun.has_value());
  EXPECT_EQ(request.begun->content, "The");
  const CompletionRequest calls = Read(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]})");
  EXPECT_FALSE(calls.must_continue || calls.begun.has_value());
}

TEST(MessagesRequest, TokensAreCountedWithoutALimit) {
  const CompletionRequest request =
      Read(R"({"messages": [{"role": "user", "content": "hi"}]})", ReadScope::kPrompt);
  EXPECT_EQ(request.chat.messages.size(), 1u);
}

TEST(MessagesRequest, WhatCannotBeHonouredIsRefusedByItsName) {
  struct Case {
    const char* body;
    const char* param;
    const char* code;
  };
  const Case cases[] = {
      {R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens", "missing_field"},
      {R"({"max_tokens": 1})", "messages", "missing_field"},
      {R"({"max_tokens": 1, "messages": "a"})", "messages", "invalid_type"},
      {R"({"max_tokens": 1, "messages": [5]})", "messages[0]", "invalid_type"},
      {R"({"max_tokens": 1, "messages": [{"role": 5, "content": "a"}]})", "messages[0].role",
       "invalid_type"},
      {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "a"}]})", "messages[0].role",
       "invalid_value"},
      {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages[0].content",
       "missing_field"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0]", "unsupported"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text", "missing_field"},
      {R"({"max_tokens": 1, "messages": [], "thinking": {"type": "enabled"}})",
       "thinking.budget_tokens", "missing_field"},
      {R"({"max_tokens": 1, "messages": [], "thinking": {"type": "much"}})", "thinking.type",
       "invalid_value"},
      {R"({"max_tokens": 1, "messages": [], "stop_sequences": [1]})", "stop_sequences",
       "invalid_type"},
      {R"({"max_tokens": 1, "messages": [], "output_format": {"type": "xml"}})", "output_format",
       "invalid_value"},
      {R"({"max_tokens": 1, "messages": [], "stop": "a"})", "stop", "unsupported"},
      {R"({"max_tokens": 1, "messages": [], "n": 2})", "n", "unsupported"},
      {R"({"max_tokens": 1, "messages": [], "mcp_servers": [{}]})", "mcp_servers", "unsupported"},
  };
  for (const Case& one : cases) {
    const auto result = TryRead(one.body);
    ASSERT_FALSE(result.ok()) << one.body;
    EXPECT_EQ(result.error().status, 400);
    EXPECT_EQ(result.error().param, one.param) << one.body;
    EXPECT_EQ(result.error().code, one.code) << one.body;
    EXPECT_THAT(result.error().message, HasSubstr(one.param));
  }
}

TEST(MessagesRequest, ErrorsOfTheChatNameTheClientsFields) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("stop_sequences": ["a", ""])", "stop_sequences"},
      {R"("thinking": {"type": "enabled", "budget_tokens": 0})", "thinking.budget_tokens"},
      {R"("output_config": {"effort": "huge"})", "output_config.effort"},
      {R"("reasoning_effort": "huge")", "reasoning_effort"},
      {R"("output_config": {"format": {"type": "json_schema", "schema": {"enum": []}}})",
       "output_config.format.schema"},
      {R"("output_format": {"type": "json_schema", "schema": {"enum": []}})",
       "output_format.schema"}};
  for (const auto& [more, param] : cases) {
    const auto result =
        TryRead(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], )" +
                std::string(more) + "}");
    ASSERT_FALSE(result.ok()) << more;
    EXPECT_EQ(result.error().param, param);
    EXPECT_THAT(result.error().message, testing::StartsWith(std::string(param) + ": "));
  }
}

}  // namespace
}  // namespace ebb::server
