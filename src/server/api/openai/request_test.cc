#include "src/server/api/openai/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/server/api/base/json_fields.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RequestDefaults Defaults() {
  RequestDefaults defaults;
  defaults.model_id = "pebble";
  return defaults;
}

ApiResult<CompletionRequest> Parse(Endpoint endpoint, const std::string& text,
                                   const RequestDefaults& defaults = Defaults()) {
  const Json body = Json::parse(text);
  return endpoint == Endpoint::kChat ? ReadChat(body, defaults) : server::ReadText(body, defaults);
}

CompletionRequest Chat(const std::string& more, const RequestDefaults& defaults = Defaults()) {
  auto result = Parse(Endpoint::kChat,
                      R"({"messages": [{"role": "user", "content": "hi"}])" + more + "}", defaults);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : CompletionRequest();
}

std::string Stops(int count) {
  Json stops;
  for (int i = 0; i < count; ++i) stops.push_back(std::to_string(i));
  return "\"stop\": " + stops.dump();
}

TEST(ReadRequest, TakesAPredictedText) {
  EXPECT_EQ(Chat(R"(, "prediction": {"type": "content", "content": "int x;"})").prediction,
            "int x;");
  EXPECT_EQ(Chat(R"(, "prediction": {"type": "content", "content": [{"type": "text", "text": "a"},
                                      {"type": "text", "text": "b"}]})")
                .prediction,
            "ab");
  EXPECT_EQ(Chat(R"(, "prediction": null)").prediction, "");
  EXPECT_THAT(Chat(R"(, "prediction": {"type": "content", "content": "x"})").ignored,
              ElementsAre());
}

TEST(ReadRequest, FieldsOfOtherServersAreReadAsWhatTheyMean) {
  EXPECT_EQ(Chat(", " + Stops(256)).generate.stops.size(), 256U);
  for (const char* name :
       {"stop_sequence", "stop_sequences", "stopping_strings", "custom_stopping_strings"}) {
    EXPECT_THAT(Chat(fmt::format(R"(, "stop": "x", "{}": ["a", "b"])", name)).generate.stops,
                ElementsAre("x", "a", "b"));
  }
  for (const char* name : {"max_new_tokens", "max_output_tokens", "num_predict"}) {
    EXPECT_EQ(Chat(fmt::format(R"(, "{}": 7)", name)).generate.max_tokens, 7) << name;
    EXPECT_EQ(Chat(fmt::format(R"(, "{}": 7, "max_tokens": 5)", name)).generate.max_tokens, 5)
        << name;
  }
  EXPECT_EQ(Chat(R"(, "ban_eos_token": true)").generate.on_end, GenerateOptions::OnEnd::kIgnore);
}

// Checks that unsupported fields that would change an answer are refused by name, but not their
// values that ask for nothing.
TEST(ReadRequest, FieldsThatWouldConstrainAnAnswerAreRefused) {
  for (const auto& [name, value, neutral] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"allowed_token_ids", "[1]", "[]"},
           {"bad_words", "[\"a\"]", "[]"},
           {"bad_words_ids", "[[1]]", "null"},
           {"banned_tokens", "[1]", "[]"},
           {"banned_strings", "[\"a\"]", "[]"},
           {"custom_token_bans", "\"1,2\"", "\"\""},
           {"structural_tag", "{\"a\": 1}", "null"},
           {"logits_processors", "[\"a\"]", "[]"},
           {"format", "\"json\"", "\"\""},
           {"use_beam_search", "true", "false"},
           {"num_beams", "4", "1"},
           {"length_penalty", "0.5", "1.0"},
           {"no_repeat_ngram_size", "3", "0"},
           {"truncate_prompt_tokens", "5", "-1"},
           {"lora", "[{\"id\": 0}]", "[]"},
           {"negative_prompt", "\"a\"", "\"\""},
           {"guidance_scale", "2", "1"},
           {"adaptive_target", "0.5", "-1"},
           {"tfs", "0.9", "1"}}) {
    for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kText}) {
      const std::string begin = endpoint == Endpoint::kChat
                                    ? R"({"messages": [{"role": "user", "content": "hi"}], ")"
                                    : R"({"prompt": "a", ")";
      const auto refused = Parse(endpoint, begin + name + "\": " + value + "}");
      ASSERT_FALSE(refused.ok()) << name;
      EXPECT_EQ(refused.error().param, name);
      EXPECT_EQ(refused.error().code, "unsupported");
      const auto taken = Parse(endpoint, begin + name + "\": " + neutral + "}");
      EXPECT_TRUE(taken.ok()) << name << taken.error().message;
    }
  }
}

TEST(ReadRequest, FieldsOfSamplingAndLengthReachTheLibrary) {
  const CompletionRequest request = Chat(
      R"(, "model": "pebble", "temperature": 0.5, "top_p": 0.25, "top_k": -1, "min_p": 0.125,
      "presence_penalty": -1, "frequency_penalty": 1.5, "repetition_penalty": 1.25, "seed": 3,
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
  EXPECT_EQ(sampling.seed, 3u);
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
  EXPECT_TRUE(request.reports_hash);
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
  EXPECT_THAT(request.ignored,
              testing::UnorderedElementsAre("user", "metadata",
                                            "stream_options.continuous_usage_stats", "ebb.colour"));
  EXPECT_EQ(request.chat.template_arguments.at("date"), "\"x\"");
  EXPECT_EQ(request.chat.thinking, Thinking::kOff);
}

TEST(ReadRequest, MessagesToolsAndFormatsReachTheTemplate) {
  const auto result = Parse(Endpoint::kChat, R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
      {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "4"},
      {"role": "user", "name": "bob", "content": "go on"}],
      "tools": [{"type": "function", "function": {"name": "f", "description": "d",
        "parameters": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}}}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false})");
  const auto& request = *result;
  const ChatRequest& chat = request.chat;
  ASSERT_EQ(chat.messages.size(), 4u);
  EXPECT_EQ(chat.messages[0].content, "be brief");
  EXPECT_EQ(chat.messages[1].reasoning_content, "hm");
  EXPECT_EQ(chat.messages[1].tool_calls[0].arguments, "{\"z\": 1, \"a\": 2}");
  EXPECT_EQ(chat.messages[2].tool_call_id, "c1");
  EXPECT_EQ(chat.messages[2].name, "f");
  EXPECT_EQ(chat.messages[3].name, "");
  ASSERT_EQ(chat.tools.size(), 1u);
  // The schema's members keep their order.
  EXPECT_THAT(chat.tools[0].parameters, HasSubstr(R"("z":{"type":"integer"},"a")"));
  EXPECT_EQ(chat.tool_choice, "f");
  EXPECT_FALSE(chat.parallel_tool_calls);
  const CompletionRequest formatted = Chat(
      R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})");
  EXPECT_EQ(formatted.chat.response_format, ResponseFormat::kJsonSchema);
  EXPECT_EQ(formatted.chat.json_schema, R"({"type":"object"})");
}

TEST(ReadRequest, ASeedOfMinusOneOrNullIsDrawnAndTold) {
  for (const char* more : {R"(, "seed": -1)", R"(, "seed": -1.0)", R"(, "seed": null)"}) {
    const CompletionRequest one = Chat(more);
    const CompletionRequest other = Chat(more);
    ASSERT_TRUE(one.drawn_seed.has_value()) << more;
    EXPECT_EQ(one.sampling.seed, *one.drawn_seed);
    EXPECT_LT(*one.drawn_seed, uint64_t{1} << 53);
    EXPECT_NE(one.drawn_seed, other.drawn_seed);
  }
  RequestDefaults defaults = Defaults();
  defaults.sampling.seed = 7;
  const CompletionRequest silent = Chat("", defaults);
  EXPECT_EQ(silent.sampling.seed, 7u);
  EXPECT_FALSE(silent.drawn_seed.has_value());
  EXPECT_EQ(Chat(R"(, "seed": 18446744073709551615)").sampling.seed, UINT64_MAX);
  EXPECT_EQ(Chat(R"(, "seed": 1e3)").sampling.seed, 1000u);
}

TEST(ReadRequest, ALengthOfMinusOneIsNoLimit) {
  RequestDefaults defaults = Defaults();
  defaults.generate.max_tokens = 11;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    const auto length = [&](const std::string& value) {
      return Chat(", \"" + std::string(name) + "\": " + value, defaults).generate.max_tokens;
    };
    EXPECT_EQ(length("-1"), -1);
    EXPECT_EQ(length("null"), 11);
    EXPECT_EQ(length("100.0"), 100);
    EXPECT_EQ(length("1e3"), 1000);
    const auto refused =
        Parse(Endpoint::kChat, R"({"messages": [], ")" + std::string(name) + R"(": 0})", defaults);
    EXPECT_EQ(refused.error().message,
              std::string(name) + ": expected 1 to 2147483647, or -1 for no limit, found 0");
  }
}

TEST(ReadRequest, BiasesAreAnObjectOrALlamaServersList) {
  const CompletionRequest listed =
      Chat(R"(, "logit_bias": [[5, -100], [6, false], ["7", 2], ["yes", 0.5]])");
  using Biases = std::map<Token, float>;
  EXPECT_EQ(listed.sampling.logit_bias, (Biases{{5, -100.0f}, {6, -100.0f}, {7, 2.0f}}));
  ASSERT_EQ(listed.text_biases.size(), 1u);
  EXPECT_EQ(listed.text_biases[0].text, "yes");
  EXPECT_EQ(listed.text_biases[0].bias, 0.5f);
  const CompletionRequest named = Chat(R"(, "logit_bias": {"5": 1, " no": -1})");
  EXPECT_EQ(named.sampling.logit_bias, (Biases{{5, 1.0f}}));
  EXPECT_EQ(named.text_biases[0].text, " no");
}

TEST(ReadRequest, EndsOfAnAnswerReachTheLibrary) {
  const CompletionRequest request =
      Chat(R"(, "stop_token_ids": [3, 4], "min_tokens": 2, "max_tokens": 9)");
  EXPECT_THAT(request.generate.stop_tokens, ElementsAre(3, 4));
  EXPECT_EQ(request.generate.min_tokens, 2);
  EXPECT_THAT(request.ignored, ElementsAre());
}

TEST(ReadRequest, ALastMessageOfTheAssistantsIsAnAnswerThatWasBegun) {
  const auto read = [](const std::string& more) {
    const auto result = Parse(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "The", "reasoning_content": "hm"}])" +
                                                   more + "}");
    return *result;
  };
  for (const char* more : {"", R"(, "continue_final_message": true)",
                           R"(, "continue_final_message": true, "add_generation_prompt": false)",
                           R"(, "add_generation_prompt": false)"}) {
    const CompletionRequest request = read(more);
    ASSERT_TRUE(request.begun.has_value()) << more;
    EXPECT_EQ(request.begun->content, "The");
    EXPECT_EQ(request.begun->reasoning_content, "hm");
    EXPECT_EQ(request.chat.messages.size(), 1u);
    EXPECT_TRUE(request.chat.opens_answer);
    EXPECT_THAT(request.ignored, ElementsAre());
  }
  for (const char* more :
       {R"(, "continue_final_message": false)", R"(, "add_generation_prompt": true)"}) {
    const CompletionRequest request = read(more);
    EXPECT_FALSE(request.begun.has_value()) << more;
    EXPECT_EQ(request.chat.messages.size(), 2u);
  }
}

TEST(ReadRequest, MoreMessagesThanTheLimitAreTooLarge) {
  Json body = {{"messages", Json::array()}};
  for (size_t i = 0; i < kMostMessages; ++i) {
    body["messages"].push_back({{"role", "user"}, {"content", "a"}});
  }
  EXPECT_TRUE(ReadChat(body, Defaults()).ok());
  body["messages"].push_back(body["messages"][0]);
  const auto refused = ReadChat(body, Defaults());
  EXPECT_EQ(refused.error().code, "request_too_large");
  EXPECT_EQ(refused.error().message, "messages: expected at most 16384, found 16385");
}

TEST(ReadRequest, ACallThatWasCutOffIsTakenBack) {
  for (const auto& [arguments, text] :
       {std::pair{R"("{\"t\": \"ab")", R"({"INVALID_JSON":"{\"t\": \"ab"})"},
        {R"("[1]")", R"({"INVALID_JSON":"[1]"})"},
        {R"("null")", R"({"INVALID_JSON":"null"})"},
        {R"({"t": 1})", R"({"t":1})"},
        {"null", "{}"},
        {R"("")", "{}"}}) {
    const auto result =
        Parse(Endpoint::kChat,
              R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "c",
        "type": "function", "function": {"name": "w", "arguments": )" +
                  std::string(arguments) + R"(}}]},
        {"role": "user", "content": "again"}]})");
    ASSERT_TRUE(result.ok()) << arguments;
    EXPECT_EQ(result->chat.messages[0].tool_calls[0].arguments, text);
  }
}

TEST(ReadRequest, TextStandsInForWhatAToolGaveBackThatIsNone) {
  const auto result = Parse(Endpoint::kChat, R"({"messages": [
      {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_audio"}]},
      {"role": "user", "content": "go on"}]})");
  const auto& request = *result;
  EXPECT_EQ(request.chat.messages[0].content,
            "see\n[image: this model reads text only]\n[audio: this model reads text only]");
  EXPECT_THAT(request.ignored, ElementsAre("messages[0].content[1]", "messages[0].content[2]"));
  const auto own = Parse(Endpoint::kChat, R"({"messages": [{"role": "user",
      "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]})");
  EXPECT_EQ(
      own.error().message,
      "messages[0].content[0]: expected a text, found a part of type \"image_url\": this model "
      "reads text only");
}

TEST(ReadRequest, OneOddToolDoesNotRefuseTheOthers) {
  const CompletionRequest request = Chat(R"(, "tools": [
      {"type": "web_search"}, {"type": "custom", "custom": {"name": "x"}},
      {"type": "function", "function": {"name": "ok", "parameters": {"type": "object"}}},
      {"type": "function", "function": {"name": "ok"}},
      {"type": "function", "function": {"name": ""}},
      {"type": "function", "function": {"name": "files.read", "parameters": true}}],
      "tool_choice": {"type": "function", "function": {"name": "files.read"}})");
  ASSERT_EQ(request.chat.tools.size(), 2u);
  EXPECT_EQ(request.chat.tools[0].name, "ok");
  EXPECT_EQ(request.chat.tools[1].name, "files_read");
  EXPECT_EQ(request.chat.tool_choice, "files_read");
  EXPECT_EQ(request.tool_names, (ToolNames{{"files_read", "files.read"}}));
  EXPECT_THAT(request.tool_paths,
              ElementsAre(ToolPaths{"tools[2]", "tools[2].function.parameters"},
                          ToolPaths{"tools[5]", "tools[5].function.parameters"}));
  EXPECT_THAT(request.ignored, ElementsAre("tools[0]", "tools[1]", "tools[3]", "tools[4]",
                                           "tools[5].function.parameters"));
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
    const auto text = Parse(Endpoint::kText, R"({"prompt": "a", )" + std::string(more) + "}");
    ASSERT_TRUE(text.ok()) << more;
    EXPECT_FALSE(text->sampling.grammar.empty()) << more;
  }
  const auto text =
      Parse(Endpoint::kText, R"({"prompt": "a", "response_format": {"type": "text"}})");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->sampling.grammar, "");
}

TEST(ReadRequest, PromptsAreTextsOrTokens) {
  const auto read = [](const std::string& prompt) {
    const auto result = Parse(Endpoint::kText, R"({"prompt": )" + prompt + "}");
    return *result;
  };
  using Tokens = std::vector<Token>;
  EXPECT_THAT(read("\"a\"").prompts, ElementsAre(MixedPrompt{"a"}));
  EXPECT_THAT(read("[\"a\", \"b\"]").prompts, ElementsAre(MixedPrompt{"a"}, MixedPrompt{"b"}));
  EXPECT_THAT(read("[1, 2]").prompts, ElementsAre(MixedPrompt{Tokens{1, 2}}));
  EXPECT_THAT(read("[[1], [2]]").prompts,
              ElementsAre(MixedPrompt{Tokens{1}}, MixedPrompt{Tokens{2}}));
}

struct Refusal {
  std::string more;  // members of a chat request; '#' in front: of a text request
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
      {R"("n_predict": 0)", "n_predict", "out_of_range"},
      {R"("max_tokens": -2)", "max_tokens", "out_of_range"},
      {R"("max_tokens": 1.5)", "max_tokens", "invalid_type"},
      {R"("max_tokens": 99999999999999999999)", "max_tokens", "out_of_range"},
      {R"("seed": 1.5)", "seed", "invalid_type"},
      {R"("seed": -2)", "seed", "out_of_range"},
      {R"("seed": "x")", "seed", "invalid_type"},
      {R"("seed": 99999999999999999999)", "seed", "out_of_range"},
      {R"("min_tokens": -1)", "min_tokens", "out_of_range"},
      {R"("min_tokens": 5, "max_tokens": 4)", "min_tokens", "out_of_range"},
      {R"("stop_token_ids": 5)", "stop_token_ids", "invalid_type"},
      {R"("stop_token_ids": [-1])", "stop_token_ids", "invalid_type"},
      {R"("stop": 5)", "stop", "invalid_type"},
      {R"("stop": [5])", "stop", "invalid_type"},
      {R"("stop": "")", "stop", "invalid_value"},
      {R"("stop": ["a", ""])", "stop", "invalid_value"},
      {R"("stopping_strings": [""])", "stopping_strings", "invalid_value"},
      {R"("repetition_penalty": 1.1, "repeat_penalty": 1.2)", "repeat_penalty", "invalid_value"},
      {R"("session_id": true)", "session_id", "invalid_type"},
      {R"("session_id": {})", "session_id", "invalid_type"},
      {R"("structured_outputs": {"foo": 1})", "structured_outputs.foo", "unsupported"},
      {R"(#"prompt": "a", "structured_outputs": {"foo": 1})", "structured_outputs.foo",
       "unsupported"},
      {R"("thinking": {"type": "zz"})", "thinking.type", "invalid_value"},
      {R"("reasoning": {"type": "zz"})", "reasoning.type", "invalid_value"},
      {Stops(257), "stop", "invalid_value"},
      {R"("logit_bias": {"99999999999": 1})", "logit_bias.99999999999", "invalid_value"},
      {R"("logit_bias": 5)", "logit_bias", "invalid_type"},
      {R"("logit_bias": {"": 1})", "logit_bias.", "invalid_type"},
      {R"("logit_bias": {"x": true})", "logit_bias.x", "invalid_type"},
      {R"("logit_bias": [[5]])", "logit_bias[0]", "invalid_type"},
      {R"("logit_bias": [[5, 1], [-1, 1]])", "logit_bias[1]", "invalid_value"},
      {R"("logit_bias": [[5, 100.5]])", "logit_bias[0]", "out_of_range"},
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
      {R"("messages": [{"role": "user", "content": [5]}])", "messages[0].content[0]",
       "invalid_type"},
      {R"("messages": [{"role": "assistant", "tool_calls": [5]}])", "messages[0].tool_calls[0]",
       "invalid_type"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{}]}])",
       "messages[0].tool_calls[0].name", "missing_field"},
      {R"("tools": [5])", "tools[0]", "invalid_type"},
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
      {R"("continue_final_message": true)", "continue_final_message", "invalid_value"},
      {R"("messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true,
          "add_generation_prompt": true)",
       "continue_final_message", "invalid_value"},
      {R"("messages": [{"role": "assistant", "content": "a"},
                       {"role": "assistant", "content": "b"}])",
       "messages", "invalid_value"},
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
    const auto result = Parse(is_text ? Endpoint::kText : Endpoint::kChat, text + "}");
    EXPECT_EQ(result.ok() ? "" : result.error().param, refusal.param) << text;
    EXPECT_EQ(result.ok() ? "" : result.error().code, refusal.code) << text;
    if (refusal.code == "model_not_found") {
      EXPECT_NE(result.error().message.find("--any-model"), std::string::npos);
    }
  }
}

// Checks that ids differ, since clients keep results by the ids of their calls, also across
// conversations.
TEST(CallIdSeed, DiffersBetweenConversationsTurnsAndChoices) {
  const ChatMessage question = {"user", "a"}, other = {"user", "b"};
  const ChatMessage call = {.role = "assistant", .tool_calls = {{.name = "f", .arguments = "{}"}}};
  const std::vector<std::vector<ChatMessage>> conversations = {
      {}, {question}, {other}, {question, question}, {question, call}, {question, call, question}};
  std::set<std::string> ids;
  for (const auto& messages : conversations) {
    for (size_t choice = 0; choice < 3; ++choice) {
      for (size_t index = 0; index < 3; ++index) {
        const std::string id = MakeCallId(CallIdSeed(messages), choice, index);
        EXPECT_EQ(id.size(), 9U);
        EXPECT_TRUE(std::ranges::all_of(id, [](char c) { return std::isalnum(c) != 0; })) << id;
        EXPECT_EQ(id, MakeCallId(CallIdSeed(messages), choice, index));
        EXPECT_TRUE(ids.insert(id).second) << id;
      }
    }
  }
  // Only the sequence of messages counts, not how it is divided.
  EXPECT_EQ(CallIdSeed({&question, 1}, {&call, 1}), CallIdSeed(std::vector{question, call}));
}

TEST(ReadRequest, BothNamesOfAPenaltyMayHaveOneValue) {
  const CompletionRequest request = Chat(R"(, "repetition_penalty": 1.5, "repeat_penalty": 1.5)");
  EXPECT_EQ(request.sampling.repeat_penalty, 1.5f);
}

TEST(ReadRequest, OptionsOfStructuredOutputsWithoutEffectAreNamed) {
  const CompletionRequest request =
      Chat(R"(, "structured_outputs": {"regex": "a+", "disable_fallback": true})");
  EXPECT_THAT(request.ignored, ElementsAre("structured_outputs.disable_fallback"));
}

TEST(PromptError, NamesThePrompt) {
  const CompletionRequest text = {.endpoint = Endpoint::kText, .prompt_field = "prompt"};
  const ApiError empty =
      PromptError(InvalidArgument("expected a prompt, found an empty one"), text);
  EXPECT_EQ(empty.param, "prompt");
  EXPECT_EQ(empty.message, "prompt: expected a prompt, found an empty one");
  const ApiError longer = PromptError(ContextFull("too long"), {.prompt_field = "input"});
  EXPECT_EQ(longer.param, "input");
  EXPECT_EQ(longer.code, "context_length_exceeded");
}

TEST(ClientField, NamesWhatTheLibraryNamesAsTheClientDoes) {
  const CompletionRequest request = {
      .prompt_field = "input",
      .tool_paths = {{"tools[2]", "tools[2].function.parameters"},
                     {"tools[3].tools[0]", "tools[3].tools[0].parameters"}}};
  EXPECT_EQ(ClientField(request, "tools[0].parameters.a"), "tools[2].function.parameters.a");
  EXPECT_EQ(ClientField(request, "tools[1].parameters"), "tools[3].tools[0].parameters");
  EXPECT_EQ(ClientField(request, "tools[1].name"), "tools[3].tools[0].name");
  EXPECT_EQ(ClientField(request, "tools[1]"), "tools[3].tools[0]");
  EXPECT_EQ(ClientField(request, "messages"), "input");
  for (const char* other : {"tools[2].name", "tools[x]", "tools[0", "tools", "tool_choice", ""}) {
    EXPECT_EQ(ClientField(request, other), other);
  }
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
  defaults.engine.tiers = EngineTiers{.t1 = T1Place::kHost};
  defaults.session.policy.tiers = TierShares{.t0_share = 0.5};
  const CompletionRequest request = Chat(R"(, "ebb": {"t0": "25%", "evict": "10%"})", defaults);
  EXPECT_EQ(request.session.policy.tiers->t0_share, 0.25);
  EXPECT_EQ(request.session.policy.tiers->evict_share, 0.1);
  const auto result =
      Parse(Endpoint::kChat, R"({"messages": [], "ebb": {"t0": "5MiB"}})", defaults);
  EXPECT_THAT(result.error().message, HasSubstr("expected a share"));
}

TEST(ReadRequest, AShareOfT0BesideOldRowsInT2IsRefused) {
  RequestDefaults defaults = Defaults();
  defaults.engine.tiers = EngineTiers{.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8};
  defaults.session.policy.tiers = TierShares{.t0_share = 0.5};
  const auto refusal = [&](const std::string& own) {
    const auto result = Parse(Endpoint::kChat, R"({"messages": [], "ebb": )" + own + "}", defaults);
    EXPECT_FALSE(result.ok());
    return result.ok() ? ApiError() : result.error();
  };
  const ApiError both = refusal(R"({"t0": "25%", "t2": "old"})");
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.param, "ebb.t0");
  EXPECT_THAT(both.message, HasSubstr("a share has no effect together with old rows in T2"));
  EXPECT_EQ(refusal(R"({"t2": "old:int4"})").param, "ebb.t2");
  EXPECT_TRUE(CompressesOldRows(Chat(R"(, "ebb": {"t2": "old"})", defaults).session.policy.tiers));
}

}  // namespace
}  // namespace ebb::server
