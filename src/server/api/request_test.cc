#include "src/server/api/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RequestDefaults Defaults() {
  RequestDefaults defaults;
  defaults.model_id = "pebble";
  return defaults;
}

ApiResult<CompletionRequest> ReadText(Endpoint endpoint, const std::string& text,
                                      const RequestDefaults& defaults = Defaults()) {
  return ReadRequest(endpoint, Json::parse(text), defaults);
}

CompletionRequest Chat(const std::string& more, const RequestDefaults& defaults = Defaults()) {
  auto result =
      ReadText(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "hi"}])" + more + "}",
               defaults);
  const auto* error = std::get_if<ApiError>(&result);
  EXPECT_EQ(error, nullptr) << error->message;
  return error == nullptr ? std::move(std::get<CompletionRequest>(result)) : CompletionRequest();
}

TEST(ReadRequest, FieldsOfSamplingAndLengthReachTheLibrary) {
  const CompletionRequest request = Chat(
      R"(, "model": "pebble", "temperature": 0.5, "top_p": 0.25, "top_k": -1, "min_p": 0.125,
      "presence_penalty": -1, "frequency_penalty": 1.5, "repetition_penalty": 1.25, "seed": -3,
      "max_completion_tokens": 7, "n": 2, "stop": ["a", "b"], "logit_bias": {"5": -100},
      "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
      "thinking_budget_tokens": 9, "priority": -1, "logprobs": true, "top_logprobs": 3,
      "ebb": {"logits_hash": true, "deadline_ms": 1500, "policy": "h2o:heavy=64,recent=64"})");
  const SamplingOptions& sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.presence_penalty, -1.0f);
  EXPECT_EQ(sampling.frequency_penalty, 1.5f);
  EXPECT_EQ(sampling.repeat_penalty, 1.25f);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(sampling.logit_bias.at(5), -100.0f);
  EXPECT_EQ(request.generate.max_tokens, 7);
  EXPECT_EQ(request.generate.thinking_budget, 9);
  EXPECT_EQ(request.generate.on_end, GenerateOptions::OnEnd::kIgnore);
  EXPECT_THAT(request.generate.stops, ElementsAre("a", "b"));
  EXPECT_EQ(request.num_choices, 2);
  EXPECT_EQ(request.logprobs, 3);
  EXPECT_EQ(request.priority, -1);
  EXPECT_EQ(request.deadline_seconds, 1.5);
  EXPECT_TRUE(request.streams);
  EXPECT_TRUE(request.includes_usage);
  EXPECT_TRUE(request.tells_hash);
  EXPECT_EQ(request.session.policy.name, "h2o");
  EXPECT_THAT(request.ignored, ElementsAre());
}

TEST(ReadRequest, WithWhomAPromptIsSharedIsTheRequests) {
  const CompletionRequest silent = Chat(R"(, "cache_salt": null, "cache_prompt": null)");
  EXPECT_TRUE(silent.caches_prompt);
  EXPECT_EQ(silent.cache_salt, "");
  const CompletionRequest asked = Chat(R"(, "cache_salt": "mine", "cache_prompt": false)");
  EXPECT_FALSE(asked.caches_prompt);
  EXPECT_EQ(asked.cache_salt, "mine");
}

TEST(ReadRequest, WhatIsNotSaidOrNullIsTheServersDefault) {
  RequestDefaults defaults = Defaults();
  defaults.sampling.temperature = 0.25f;
  defaults.generate.max_tokens = 11;
  defaults.generate.stops = {"end"};
  const CompletionRequest request =
      Chat(R"(, "temperature": null, "stop": null, "n": null)", defaults);
  EXPECT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_EQ(request.generate.max_tokens, 11);
  EXPECT_THAT(request.generate.stops, ElementsAre("end"));
  EXPECT_EQ(request.num_choices, 1);
}

TEST(ReadRequest, FieldsWithoutEffectAreNamed) {
  const CompletionRequest request =
      Chat(R"(, "user": "u", "metadata": {}, "service_tier": null, "best_of": 1, "suffix": "",
      "stream_options": {"continuous_usage_stats": true}, "ebb": {"colour": "red"},
      "chat_template_kwargs": {"enable_thinking": false, "date": "x"})");
  EXPECT_THAT(request.ignored, testing::UnorderedElementsAre(
                                   "user", "metadata", "stream_options.continuous_usage_stats",
                                   "ebb.colour", "chat_template_kwargs.date"));
  EXPECT_EQ(request.chat.thinking, Thinking::kOff);
}

TEST(ReadRequest, MessagesToolsAndFormatsReachTheTemplate) {
  const auto result = ReadText(Endpoint::kChat, R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
      {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "4"},
      {"role": "user", "name": "bob", "content": "go on"}],
      "tools": [{"type": "function", "function": {"name": "f", "description": "d",
        "parameters": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}}}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false})");
  const auto& request = std::get<CompletionRequest>(result);
  const ChatRequest& chat = request.chat;
  ASSERT_EQ(chat.messages.size(), 4u);
  EXPECT_EQ(chat.messages[0].content, "be brief");
  EXPECT_EQ(chat.messages[1].reasoning_content, "hm");
  EXPECT_EQ(chat.messages[1].tool_calls[0].arguments, "{\"z\": 1, \"a\": 2}");
  EXPECT_EQ(chat.messages[2].tool_call_id, "c1");
  EXPECT_EQ(chat.messages[2].name, "f");
  EXPECT_EQ(chat.messages[3].name, "");
  ASSERT_EQ(chat.tools.size(), 1u);
  // Members keep their order.
  EXPECT_THAT(chat.tools[0].parameters, HasSubstr(R"("z":{"type":"integer"},"a")"));
  EXPECT_EQ(chat.tool_choice, "f");
  EXPECT_FALSE(chat.parallel_tool_calls);
  const CompletionRequest formatted = Chat(
      R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})");
  EXPECT_EQ(formatted.chat.response_format, ResponseFormat::kJsonSchema);
  EXPECT_EQ(formatted.chat.json_schema, R"({"type":"object"})");
}

TEST(ReadRequest, ASchemaMayStandWhereLlamaServerHasIt) {
  for (const char* more :
       {R"(, "json_schema": {"const": "42"})",
        R"(, "json_schema": {"const": "42"}, "response_format": {"type": "text"})",
        R"(, "response_format": {"type": "json_object", "schema": {"const": "42"}})"}) {
    const CompletionRequest request = Chat(more);
    EXPECT_EQ(request.chat.response_format, ResponseFormat::kJsonSchema) << more;
    EXPECT_EQ(request.chat.json_schema, R"({"const":"42"})") << more;
  }
  const CompletionRequest any = Chat(R"(, "response_format": {"type": "json_object"})");
  EXPECT_EQ(any.chat.response_format, ResponseFormat::kJsonObject);
}

TEST(ReadRequest, TextsHaveFormatsToo) {
  for (const char* more :
       {R"("response_format": {"type": "json_object"})", R"("json_schema": {"type": "object"})",
        R"("guided_choice": ["a"])", R"("structured_outputs": {"regex": "a+"})"}) {
    const auto text = ReadText(Endpoint::kText, R"({"prompt": "a", )" + std::string(more) + "}");
    ASSERT_TRUE(std::holds_alternative<CompletionRequest>(text)) << more;
    EXPECT_FALSE(std::get<CompletionRequest>(text).sampling.grammar.empty()) << more;
  }
  const auto text =
      ReadText(Endpoint::kText, R"({"prompt": "a", "response_format": {"type": "text"}})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(text));
  EXPECT_EQ(std::get<CompletionRequest>(text).sampling.grammar, "");
}

TEST(ReadRequest, PromptsAreTextsOrTokens) {
  const auto read = [](const std::string& prompt) {
    const auto result = ReadText(Endpoint::kText, R"({"prompt": )" + prompt + "}");
    return std::get<CompletionRequest>(result);
  };
  EXPECT_THAT(read("\"a\"").texts, ElementsAre("a"));
  EXPECT_THAT(read("[\"a\", \"b\"]").texts, ElementsAre("a", "b"));
  EXPECT_THAT(read("[1, 2]").prompts, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(read("[[1], [2]]").prompts, ElementsAre(ElementsAre(1), ElementsAre(2)));
}

struct Refusal {
  std::string more;  // members of a chat request; those of a text request begin with '#'
  std::string param;
  std::string code;
};

TEST(ReadRequest, WhatIsWrongIsRefusedByName) {
  const std::vector<Refusal> refusals = {
      {R"("temperature": 2.5)", "temperature", "out_of_range"},
      {R"("temperature": -1)", "temperature", "out_of_range"},
      {R"("temperature": "hot")", "temperature", "invalid_type"},
      {R"("top_p": 1.1)", "top_p", "out_of_range"},
      {R"("top_k": 1.5)", "top_k", "invalid_type"},
      {R"("n": 9)", "n", "out_of_range"},
      {R"("n": 0)", "n", "out_of_range"},
      {R"("max_tokens": 0)", "max_tokens", "out_of_range"},
      {R"("n_predict": 0)", "n_predict", "invalid_value"},
      {R"("max_tokens": 1e3)", "max_tokens", "invalid_type"},
      {R"("max_tokens": 99999999999999999999)", "max_tokens", "invalid_type"},
      {R"("stop": 5)", "stop", "invalid_type"},
      {R"("stop": [5])", "stop", "invalid_type"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop",
       "invalid_value"},
      {R"("logit_bias": {"x": 1})", "logit_bias.x", "invalid_value"},
      {R"("logit_bias": {"1": 101})", "logit_bias.1", "out_of_range"},
      {R"("top_logprobs": 3)", "top_logprobs", "invalid_value"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "out_of_range"},
      {R"("model": "gpt-5")", "model", "model_not_found"},
      {R"("messages": "hi")", "messages", "invalid_type"},
      {R"("messages": ["hi"])", "messages[0]", "invalid_type"},
      {R"("messages": [{"content": "hi"}])", "messages[0].role", "missing_field"},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content", "invalid_type"},
      {R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])",
       "messages[0].content[0]", "unsupported"},
      {R"("messages": [{"role": "user", "content": ["x"]}])", "messages[0].content[0]",
       "invalid_type"},
      {R"("messages": [{"role": "assistant", "tool_calls": [5]}])", "messages[0].tool_calls[0]",
       "invalid_type"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0]",
       "missing_field"},
      {R"("tools": [5])", "tools[0]", "invalid_type"},
      {R"("tools": [{"type": "web_search"}])", "tools[0]", "unsupported"},
      {R"("tool_choice": 5)", "tool_choice", "invalid_type"},
      {R"("tool_choice": {})", "tool_choice.function", "missing_field"},
      {R"("response_format": {"type": "yaml"})", "response_format.type", "invalid_value"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
       "missing_field"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})",
       "response_format.json_schema.schema", "missing_field"},
      {R"("response_format": {"type": "json_object", "schema": 123})", "response_format.schema",
       "invalid_type"},
      {R"("json_schema": "object")", "json_schema", "invalid_type"},
      {R"("json_schema": {}, "response_format": {"type": "json_object"})", "response_format",
       "invalid_value"},
      {R"("reasoning_effort": "huge")", "reasoning_effort", "invalid_value"},
      {R"("add_generation_prompt": false)", "add_generation_prompt", "unsupported"},
      {R"("continue_final_message": true)", "continue_final_message", "unsupported"},
      {R"("min_tokens": 5)", "min_tokens", "unsupported"},
      {R"("ebb": {"policy": "h2o:heavy"})", "ebb.policy", "invalid_value"},
      {R"("ebb": {"budget": "lots"})", "ebb.budget", "invalid_value"},
      {R"("ebb": {"t0": "50%"})", "ebb.t0", "unsupported"},
      {R"("ebb": {"deadline_ms": 0})", "ebb.deadline_ms", "out_of_range"},
      {R"("priority": 3)", "priority", "out_of_range"},
      {R"(#"prompt": 5)", "prompt", "invalid_type"},
      {R"(#"prompt": [])", "prompt", "invalid_type"},
      {R"(#"prompt": [1, "a"])", "prompt", "invalid_type"},
      {R"(#"prompt": ["a", 1])", "prompt[1]", "invalid_type"},
      {R"(#"prompt": [[1], "a"])", "prompt[1]", "invalid_type"},
      {R"(#"prompt": [-1])", "prompt", "invalid_type"},
      {R"(#"prompt": ["","","","","","","","","","","","","","","","",""])", "prompt",
       "invalid_value"},
      {R"(#"x": 1)", "prompt", "missing_field"},
      {R"(#"prompt": "a", "echo": true)", "echo", "unsupported"},
      {R"(#"prompt": "a", "json_schema": {"enum": []})", "json_schema", "invalid_value"},
      {R"("x": 1)", "", ""},
  };
  for (const Refusal& refusal : refusals) {
    const bool is_text = refusal.more.starts_with('#');
    std::string text = "{" + refusal.more.substr(is_text ? 1 : 0);
    if (!is_text && text.find("messages") == std::string::npos) {
      text += R"(, "messages": [{"role": "user", "content": "hi"}])";
    }
    const auto result = ReadText(is_text ? Endpoint::kText : Endpoint::kChat, text + "}");
    const auto* error = std::get_if<ApiError>(&result);
    EXPECT_EQ(error == nullptr ? "" : error->param, refusal.param) << text;
    EXPECT_EQ(error == nullptr ? "" : error->code, refusal.code) << text;
  }
}

// A client may have left earlier calls out.
TEST(NextCall, ComesBehindAllIdsOfOurs) {
  ChatMessage message = {.role = "assistant"};
  message.tool_calls = {{.name = "f", .id = "call00001"}, {.name = "f", .id = "call_abc"}};
  EXPECT_EQ(NextCall({&message, 1}), 2u);
  EXPECT_EQ(NextCall({&message, 1}, {&message, 1}), 4u);
  message.tool_calls = {{.name = "f", .id = "call00007"}};
  EXPECT_EQ(NextCall({&message, 1}), 8u);
  EXPECT_EQ(NextCall({}, {&message, 1}), 8u);
  message.tool_calls = {{.name = "f", .id = "call99999999999"}, {.name = "f", .id = "call7x"}};
  EXPECT_EQ(NextCall({&message, 1}), 2u);
  EXPECT_EQ(NextCall({}), 0u);
}

TEST(ReadRequest, ALosslessRequestVerifiesAsTheDeviceCan) {
  using Verify = LosslessOptions::Verify;
  RequestDefaults defaults = Defaults();
  for (const Verify expected : {Verify::kExact, Verify::kFast}) {
    if (expected == Verify::kFast) defaults.engine.device = {.kind = DeviceKind::kBackend};
    const CompletionRequest request = Chat(R"(, "ebb": {"lossless": true})", defaults);
    ASSERT_TRUE(request.session.lossless.has_value());
    EXPECT_EQ(request.session.lossless->verify, expected);
  }
}

TEST(ReadRequest, TiersAreSharesWithinThoseOfTheServer) {
  RequestDefaults defaults = Defaults();
  defaults.engine.tiers = TierSpec{.t0_share = 0.5, .t1 = T1Place::kHost};
  defaults.session.policy.tiers = defaults.engine.tiers;
  const CompletionRequest request = Chat(R"(, "ebb": {"t0": "25%", "evict": "10%"})", defaults);
  EXPECT_EQ(request.session.policy.tiers->t0_share, 0.25);
  EXPECT_EQ(request.session.policy.tiers->evict_share, 0.1);
  const auto result =
      ReadText(Endpoint::kChat, R"({"messages": [], "ebb": {"t0": "5MiB"}})", defaults);
  EXPECT_THAT(std::get<ApiError>(result).message, HasSubstr("expected a share"));
}

}  // namespace
}  // namespace ebb::server
