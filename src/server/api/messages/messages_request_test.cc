#include "src/server/api/messages/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MessagesRequest ReadMessages(const std::string& text, MessagesUse use = MessagesUse::kAnswer) {
  auto result = ReadMessagesRequest(Json::parse(text), use);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : MessagesRequest();
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  const MessagesRequest request = ReadMessages(R"({"max_tokens": 9, "system": [
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
  EXPECT_EQ(request.chat["messages"], Json::parse(R"([
      {"role": "system", "content": "be brief"},
      {"role": "user", "content": "how is it"},
      {"role": "assistant", "content": "I look", "reasoning_content": "hm", "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"z":1,"a":2}}},
        {"id": "t2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "4"},
      {"role": "tool", "tool_call_id": "t2", "content": "no"},
      {"role": "user", "content": "go on"}])"))
      << request.chat["messages"].dump(1);
  EXPECT_EQ(request.chat["max_tokens"], 9);
}

TEST(MessagesRequest, StopsAndThoughtsAreThoseOfAChat) {
  const MessagesRequest request = ReadMessages(R"({"max_tokens": 9, "system": "s",
      "messages": [{"role": "user", "content": "hi"}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
      "stop_sequences": ["END"], "thinking": {"type": "enabled", "budget_tokens": 5},
      "top_k": 3, "metadata": {"user_id": "u"}, "stream": true,
      "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}}})");
  const Json& chat = request.chat;
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["stop"], Json::parse(R"(["END"])"));
  EXPECT_THAT(request.stops, ElementsAre("END"));
  EXPECT_EQ(chat["thinking_token_budget"], 5);
  EXPECT_EQ(chat["top_k"], 3);
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["reasoning_effort"], "max");
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"]["type"], "object");
  const MessagesRequest off =
      ReadMessages(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
      "thinking": {"type": "disabled"}, "output_config": {"effort": "high"}})");
  EXPECT_EQ(off.chat["enable_thinking"], false);
  EXPECT_FALSE(off.chat.contains("reasoning_effort"));
}

TEST(MessagesRequest, WhatAToolGaveBackThatIsNoTextIsReplaced) {
  const MessagesRequest request = ReadMessages(R"({"max_tokens": 9, "messages": [
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
  const Json& messages = request.chat["messages"];
  EXPECT_EQ(messages[2]["content"],
            "a\n[image: this model reads text only]\nt\ns\nfound\n\nwords\n[tool_reference: Grep]");
  EXPECT_EQ(messages[3]["content"], "[document: this model reads text only]\ngo on");
  EXPECT_THAT(request.ignored,
              ElementsAre("messages[2].content[0].content[1]", "messages[2].content[0].content[4]",
                          "messages[2].content[1]"));
  auto own = ReadMessagesRequest(
      Json::parse(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
          {"type": "image", "source": {}}]}]})"),
      MessagesUse::kAnswer);
  EXPECT_EQ(
      own.error().message,
      "messages[0].content[0]: expected a text, found a part of type \"image\": this model reads "
      "text only");
}

TEST(MessagesRequest, ClaudeCodesLineForTheBillIsLeftOut) {
  const std::string line = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=a1b2c;";
  const auto read = [](const Json& system) {
    return ReadMessages(Json{
        {"max_tokens", 1}, {"system", system}, {"messages", {{{"role", "user"}, {"content", "a"}}}}}
                            .dump());
  };
  const Json rest = {{"type", "text"}, {"text", "You code."}};
  for (const Json& system : {Json::array({{{"type", "text"}, {"text", line}}, rest}),
                             Json(line + "\nYou code."), Json(line + "\r\n\r\nYou code.")}) {
    const MessagesRequest request = read(system);
    EXPECT_EQ(request.chat["messages"][0]["content"], "You code.") << system.dump();
    EXPECT_THAT(request.ignored, ElementsAre("system: x-anthropic-billing-header"));
  }
  // No system text is left.
  EXPECT_EQ(read(line).chat["messages"].size(), 1u);
  EXPECT_EQ(read(line + "\n").chat["messages"].size(), 1u);
  // Further on it is a text like any other.
  EXPECT_THAT(read("See " + line).ignored, ElementsAre());
}

TEST(MessagesRequest, CallsAreTakenBackWhateverTheyHold) {
  const MessagesRequest request = ReadMessages(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "f", "input": "{\"x"},
        {"type": "tool_use", "id": "t2", "name": "f", "input": [1]}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}]})");
  const Json& calls = request.chat["messages"][1]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"x");
  EXPECT_EQ(calls[1]["function"]["arguments"], Json::array({1}));
  EXPECT_THAT(request.ignored, ElementsAre("messages[1].content[0]"));
}

TEST(MessagesRequest, ALastMessageOfTheAssistantsIsGoneOnWith) {
  const MessagesRequest request = ReadMessages(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "assistant", "content": [{"type": "text", "text": "The"}]}]})");
  EXPECT_EQ(request.chat["continue_final_message"], true);
  EXPECT_EQ(request.chat["messages"][2]["content"], "The");
  const MessagesRequest calls = ReadMessages(R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]})");
  EXPECT_FALSE(calls.chat.contains("continue_final_message"));
}

TEST(MessagesRequest, TokensAreCountedWithoutALimit) {
  const MessagesRequest request =
      ReadMessages(R"({"messages": [{"role": "user", "content": "hi"}]})", MessagesUse::kCount);
  EXPECT_EQ(request.chat["messages"].size(), 1u);
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
    auto result = ReadMessagesRequest(Json::parse(one.body), MessagesUse::kAnswer);
    ASSERT_FALSE(result.ok()) << one.body;
    EXPECT_EQ(result.error().status, 400);
    EXPECT_EQ(result.error().param, one.param) << one.body;
    EXPECT_EQ(result.error().code, one.code) << one.body;
    EXPECT_THAT(result.error().message, HasSubstr(one.param));
  }
}

TEST(MessagesRequest, ErrorsOfTheChatNameTheClientsFields) {
  const ApiError error = InMessages(Invalid("stop: expected at most 16, found 17", "stop"));
  EXPECT_EQ(error.param, "stop_sequences");
  EXPECT_EQ(error.message, "stop_sequences: expected at most 16, found 17");
}

}  // namespace
}  // namespace ebb::server
