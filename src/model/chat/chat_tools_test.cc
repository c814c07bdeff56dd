// Tools, formats of answers, and what is read out of an answer.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/chat.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "src/model/chat/chat.h"
#include "tests/support/default_model.h"
#include "tests/support/skip.h"
#include "tests/support/tiny_model.h"

namespace ebb {
namespace {

// In the manner of Qwen2.5: tools in the system's message, calls as JSON between tags.
const std::string kTools =
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}"
    "{{- '# Tools\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\n</tools>\\nA call is\\n<tool_call>\\n{\"name\": <name>, \"arguments\": <object>}\\n"
    "</tool_call><|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + message.content }}"
    "{%- for tool_call in message.tool_calls %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + tool_call.function.name + '\", \"arguments\": ' }}"
    "{{- tool_call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + "
    "'\\n</tool_response><|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// In the manner of Qwen3: with thoughts, of earlier turns too, that the model chooses.
const std::string kToolsAndThoughts =
    Replaced(Replaced(kTools, "{{- '<|im_start|>assistant\\n' + message.content }}",
                      "{%- set content = message.content %}{%- set thought = '' %}"
                      "{%- if message.reasoning_content is string %}"
                      "{%- set thought = message.reasoning_content %}"
                      "{%- elif '</think>' in content %}"
                      "{%- set thought = content.split('</think>')[0].split('<think>')[-1] %}"
                      "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
                      "{{- '<|im_start|>assistant\\n' }}{%- if thought %}"
                      "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}"
                      "{{- content }}"),
             "{{- '<|im_start|>assistant\\n' }}{%- endif %}",
             "{{- '<|im_start|>assistant\\n' }}"
             "{%- if enable_thinking is defined and enable_thinking is false %}"
             "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}");
// In the manner of DeepSeek-R1: the prompt opens a thought.
const std::string kToolsAndOpenThought =
    Replaced(Replaced(kToolsAndThoughts, "{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking",
                      "{{- '<|im_start|>assistant\\n<think>\\n' }}{%- if enable_thinking"),
             "{%- if enable_thinking is defined and enable_thinking is false %}"
             "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}",
             "");

const Tool kWeather = {
    .name = "weather",
    .description = "What the weather is like.",
    .parameters = R"({"type": "object", "properties": {"city": {"enum": ["Oslo", "Bern"]}},)"
                  R"( "required": ["city"]})"};
const Tool kTime = {.name = "time"};
const std::string kCall =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
const ToolCall kCalled = {.name = "weather", .arguments = R"({"city": "Oslo"})"};

ChatRequest Request() {
  return {.messages = {{"user", "How is Oslo?"}}, .tools = {kWeather, kTime}};
}

ChatPrompt Rendered(const std::string& source, const ChatRequest& request) {
  const auto parsed = ChatTemplate::Parse(nullptr, source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  if (!parsed.ok()) return {};
  Result<ChatPrompt> prompt = (*parsed)->Render(request);
  EXPECT_TRUE(prompt.ok()) << prompt.status().ToString();
  return prompt.ok() ? *std::move(prompt) : ChatPrompt();
}

Status Refusal(const std::string& source, const ChatRequest& request) {
  const auto parsed = ChatTemplate::Parse(nullptr, source);
  return parsed.ok() ? (*parsed)->Render(request).status() : parsed.status();
}

ChatAnswer Read(const ChatPrompt& prompt, const std::string& text,
                AnswerEnd end = AnswerEnd::kComplete) {
  const Result<ChatAnswer> answer = ParseAnswer(prompt, text, end);
  EXPECT_TRUE(answer.ok()) << answer.status().ToString() << "\n" << text;
  return answer.ok() ? *answer : ChatAnswer();
}

std::string Without(std::string text, char what) {
  std::erase(text, what);
  return text;
}

// The model may space arguments as it likes.
void ExpectCall(const ToolCall& call, const ToolCall& expected) {
  EXPECT_EQ(call.name, expected.name);
  EXPECT_EQ(Without(call.arguments, ' '), Without(expected.arguments, ' '));
}

TEST(ChatTools, AreTold) {
  const ChatPrompt prompt = Rendered(kTools, Request());
  EXPECT_NE(prompt.text.find("\"name\": \"weather\""), std::string::npos) << prompt.text;
  EXPECT_NE(prompt.text.find("What the weather is like."), std::string::npos);
  EXPECT_NE(prompt.text.find("[\"Oslo\", \"Bern\"]"), std::string::npos);
  EXPECT_NE(prompt.text.find("\"name\": \"time\""), std::string::npos);
  ChatRequest without = Request();
  without.tools.clear();
  EXPECT_EQ(Rendered(kTools, without).text,
            "<|im_start|>user\nHow is Oslo?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTools, EarlierCallsAndTheirResultsAreTold) {
  ChatRequest request = Request();
  request.messages.push_back({.role = "assistant",
                              .content = "I look.",
                              .reasoning_content = "where is it?",
                              .tool_calls = {{"weather", R"({"city": "Oslo"})", "call_1"}}});
  request.messages.push_back(
      {.role = "tool", .content = "rain", .tool_call_id = "call_1", .name = "weather"});
  const std::string expected =
      "<|im_start|>assistant\nI look.\n" + kCall +
      "<|im_end|>\n<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
      "<|im_start|>assistant\n";
  EXPECT_TRUE(Rendered(kTools, request).text.ends_with(expected));
  EXPECT_TRUE(Rendered(kToolsAndThoughts, request)
                  .text.ends_with(
                      Replaced(expected, "I look.", "<think>\nwhere is it?\n</think>\n\nI look.")));
}

TEST(ChatTools, ACallIsReadOutOfAnAnswer) {
  for (const std::string& source : {kTools, kToolsAndThoughts, kToolsAndOpenThought}) {
    const ChatPrompt prompt = Rendered(source, Request());
    const ChatAnswer answer = Read(prompt, "I look.\n" + kCall);
    EXPECT_EQ(answer.content.substr(0, 7), "I look.");
    ASSERT_EQ(answer.tool_calls.size(), 1) << prompt.text;
    ExpectCall(answer.tool_calls[0], kCalled);
    // What follows a thought.
    const ChatAnswer later = Read(prompt, "\n\n" + kCall);
    EXPECT_EQ(later.content, "");
    ASSERT_EQ(later.tool_calls.size(), 1);
    EXPECT_EQ(Read(prompt, "It rains [1] {2}."), (ChatAnswer{.content = "It rains [1] {2}."}));
  }
}

TEST(ChatTools, SeveralCallsAreReadWhereTheyAreAllowed) {
  const std::string two = kCall + "\n" + Replaced(kCall, "Oslo", "Bern");
  ChatRequest request = Request();
  const ChatPrompt many = Rendered(kTools, request);
  const ChatAnswer answer = Read(many, two);
  ASSERT_EQ(answer.tool_calls.size(), 2);
  ExpectCall(answer.tool_calls[1], {.name = "weather", .arguments = R"({"city":"Bern"})"});
  request.parallel_tool_calls = false;
  const ChatPrompt one = Rendered(kTools, request);
  EXPECT_NE(one.grammar, many.grammar);
  EXPECT_EQ(Read(one, kCall).tool_calls.size(), 1);
}

TEST(ChatTools, APartialAnswerIsAPrefixOfTheWholeOne) {
  for (const std::string& source : {kTools, kToolsAndThoughts, kToolsAndOpenThought}) {
    const ChatPrompt prompt = Rendered(source, Request());
    const std::string text = "I look <b> at {it}.\n" + kCall + "\n" + kCall;
    const ChatAnswer whole = Read(prompt, text);
    ASSERT_EQ(whole.tool_calls.size(), 2);
    bool saw_half_arguments = false;
    for (size_t size = 0; size <= text.size(); ++size) {
      const ChatAnswer part = Read(prompt, text.substr(0, size), AnswerEnd::kPartial);
      EXPECT_TRUE(whole.content.starts_with(part.content)) << size << part.content;
      ASSERT_LE(part.tool_calls.size(), whole.tool_calls.size());
      for (size_t i = 0; i < part.tool_calls.size(); ++i) {
        EXPECT_EQ(part.tool_calls[i].name, whole.tool_calls[i].name) << text.substr(0, size);
        EXPECT_TRUE(whole.tool_calls[i].arguments.starts_with(part.tool_calls[i].arguments))
            << size << part.tool_calls[i].arguments;
        saw_half_arguments |= !part.tool_calls[i].arguments.empty() &&
                              part.tool_calls[i].arguments != whole.tool_calls[i].arguments;
      }
    }
    EXPECT_TRUE(saw_half_arguments);
  }
}

TEST(ChatTools, TheGrammarOfChosenCallsWaitsForTheTag) {
  const ChatPrompt prompt = Rendered(kTools, Request());
  EXPECT_FALSE(prompt.grammar.empty());
  ASSERT_FALSE(prompt.grammar_triggers.empty());
  EXPECT_EQ(prompt.grammar_triggers[0].kind, GrammarTrigger::Kind::kText);
  EXPECT_TRUE(prompt.grammar_triggers[0].text.starts_with("<tool_call>"));
  EXPECT_EQ(prompt.grammar_prefix, "");
  ChatRequest none = Request();
  none.tool_choice = "none";
  EXPECT_EQ(Rendered(kTools, none).grammar, "");
  EXPECT_EQ(Read(Rendered(kTools, none), kCall), ChatAnswer{.content = kCall});
}

class ChatGrammar : public TinyModelTest {
 protected:
  // What comes under the grammar of a prompt where `likely` is likely, then the end.
  static std::string Sampled(const ChatPrompt& prompt, const std::string& likely) {
    const auto sampler = Sampler::Create(*model_, {.temperature = 0,
                                                   .grammar = prompt.grammar,
                                                   .grammar_prefix = prompt.grammar_prefix,
                                                   .grammar_triggers = prompt.grammar_triggers});
    EXPECT_TRUE(sampler.ok()) << sampler.status().ToString() << prompt.grammar;
    if (!sampler.ok()) return {};
    const auto wanted = model_->Tokenize(likely, Model::AddBos::kNo, Model::Specials::kParse);
    std::string text;
    for (size_t i = 0; i < 300; ++i) {
      std::vector<float> logits(model_->shape().vocab_size, 0.0F);
      logits[kEnd] = 1;
      if (i < wanted->size()) logits[(*wanted)[i]] = 2;
      const Result<Token> token = (*sampler)->Sample(logits, static_cast<Position>(i));
      EXPECT_TRUE(token.ok()) << token.status().ToString() << "\n" << text;
      if (!token.ok() || model_->EndsGeneration(*token)) return text;
      text += model_->TokenText(*token, Model::ControlTokens::kShow);
    }
    return text + "...";
  }
  static constexpr Token kEnd = 2;  // of WriteRandomGguf()
};

TEST_F(ChatGrammar, MakesARequiredCallFromTheFirstCharacterOn) {
  for (const std::string& source : {kTools, kToolsAndThoughts, kToolsAndOpenThought}) {
    for (const Thinking thinking : {Thinking::kModelDefault, Thinking::kOff}) {
      ChatRequest request = Request();
      request.tool_choice = "required";
      request.thinking = thinking;
      request.parallel_tool_calls = false;
      const ChatPrompt prompt = Rendered(source, request);
      EXPECT_TRUE(prompt.grammar_triggers.empty());
      EXPECT_EQ(prompt.grammar_prefix, "");
      const std::string text = Sampled(prompt, "I look.");
      EXPECT_TRUE(text.starts_with("<tool_call>")) << text;
      EXPECT_EQ(Read(prompt, text).tool_calls.size(), 1) << text;
      EXPECT_EQ(Read(prompt, text).content, "") << text;
    }
  }
}

TEST_F(ChatGrammar, MakesTheNamedCall) {
  for (const Tool& tool : {kWeather, kTime}) {
    ChatRequest request = Request();
    request.tool_choice = tool.name;
    request.parallel_tool_calls = false;
    const ChatPrompt prompt = Rendered(kTools, request);
    EXPECT_NE(prompt.text.find("\"name\": \"weather\""), std::string::npos);
    EXPECT_NE(prompt.text.find("\"name\": \"time\""), std::string::npos);
    const ChatAnswer answer = Read(prompt, Sampled(prompt, "<tool_call>\n{\"name\": \""));
    ASSERT_EQ(answer.tool_calls.size(), 1);
    EXPECT_EQ(answer.tool_calls[0].name, tool.name);
  }
}

TEST_F(ChatGrammar, LeavesTheTextAheadOfAChosenCallFree) {
  ChatRequest request = Request();
  request.parallel_tool_calls = false;
  const ChatPrompt prompt = Rendered(kTools, request);
  const std::string text = Sampled(prompt, "Well {\"a\": [.\n<tool_call>\n");
  EXPECT_TRUE(text.starts_with("Well {\"a\": [.\n<tool_call>")) << text;
  EXPECT_EQ(Read(prompt, text).tool_calls.size(), 1) << text;
}

TEST_F(ChatGrammar, MakesJsonOfASchema) {
  ChatRequest request = {.messages = {{"user", "Where?"}},
                         .response_format = ResponseFormat::kJsonSchema,
                         .json_schema = kWeather.parameters};
  for (const std::string& source : {kTools, kToolsAndThoughts, kToolsAndOpenThought}) {
    const ChatPrompt prompt = Rendered(source, request);
    const std::string text = Sampled(prompt, "Oslo");
    const std::string bare = Without(Without(Without(text, ' '), '\n'), '\t');
    EXPECT_TRUE(bare == R"({"city":"Oslo"})" || bare == R"({"city":"Bern"})") << text;
    EXPECT_EQ(Read(prompt, text).content, text);
  }
  request.response_format = ResponseFormat::kJsonObject;
  EXPECT_TRUE(Sampled(Rendered(kTools, request), "Oslo").starts_with("{"));
}

TEST_F(ChatGrammar, ATextObeysItsFormatWhereNoToolIsCalled) {
  ChatRequest request = Request();
  request.response_format = ResponseFormat::kJsonSchema;
  request.json_schema = R"({"type": "object", "properties": {"a": {"enum": [1]}},)"
                        R"( "required": ["a"]})";
  request.parallel_tool_calls = false;
  for (const std::string& source : {kTools, kToolsAndThoughts, kToolsAndOpenThought}) {
    const ChatPrompt prompt = Rendered(source, request);
    EXPECT_TRUE(prompt.grammar_triggers.empty());
    const std::string text = Sampled(prompt, "{\"a\":");
    EXPECT_EQ(Without(Without(Without(text, ' '), '\n'), '\t'), "{\"a\":1}");
    EXPECT_EQ(Read(prompt, text).content, text);
    const ChatAnswer call = Read(prompt, Sampled(prompt, "<tool_call>"));
    EXPECT_EQ(call.tool_calls.size(), 1u);
    EXPECT_EQ(call.content, "");
    EXPECT_FALSE(Sampled(prompt, "No.").starts_with("No"));
  }
  request.tool_choice = "required";
  EXPECT_TRUE(Sampled(Rendered(kTools, request), "{").starts_with("<tool_call>"));
}

TEST(ChatTools, OddSchemasAreToldAsTheyAreAndWidenedInTheGrammar) {
  ChatRequest request = Request();
  request.tools[0].parameters =
      R"({"type": "object", "properties": {"a": true, "]": {"type": "string"},)"
      R"( "n": {"type": "number", "multipleOf": 0.5}, "far": {"$ref": "https://example.org/a.json"}}})";
  request.tools.push_back({.name = "third", .parameters = R"({"type": "unheard of"})"});
  for (const std::string choice : {"auto", "required", "weather", "third"}) {
    request.tool_choice = choice;
    const ChatPrompt prompt = Rendered(kTools, request);
    EXPECT_NE(prompt.text.find("https://example.org/a.json"), std::string::npos);
    EXPECT_NE(prompt.text.find("unheard of"), std::string::npos);
    std::vector<std::string> widened = {"tools[0].parameters.properties.n",
                                        "tools[0].parameters.properties.far",
                                        "tools[2].parameters"};
    if (choice == "weather") widened.pop_back();
    if (choice == "third") widened.erase(widened.begin(), widened.end() - 1);
    EXPECT_EQ(prompt.widened, widened);
  }
  // Without calls there is no grammar that could be widened.
  request.tool_choice = "none";
  EXPECT_TRUE(Rendered(kTools, request).widened.empty());
}

TEST_F(ChatGrammar, DefinitionsOfOneToolAreNotThoseOfAnother) {
  ChatRequest request = Request();
  for (const size_t i : {0, 1}) {
    request.tools[i].parameters =
        std::string(R"({"type": "object", "properties": {"k": {"$ref": "#/$defs/k"}}, "required":)"
                    R"( ["k"], "$defs": {"k": {"type": "object", "properties": {"n": {"enum": [)") +
        std::to_string(i + 1) + R"(]}, "k": {"$ref": "#/$defs/k"}}, "required": ["n"]}}})";
  }
  request.tool_choice = "required";
  request.parallel_tool_calls = false;
  const ChatPrompt prompt = Rendered(kTools, request);
  const ChatAnswer answer = Read(
      prompt, Sampled(prompt, "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"k\": {\"n\":"));
  ASSERT_EQ(answer.tool_calls.size(), 1u);
  const std::string bare =
      Without(Without(Without(answer.tool_calls[0].arguments, ' '), '\n'), '\t');
  EXPECT_TRUE(bare.starts_with("{\"k\":{\"n\":2")) << bare;
}

TEST_F(ChatGrammar, IsTheCallersOwn) {
  const ChatRequest request = {.messages = {{"user", "?"}}, .grammar = "root ::= \"yes\""};
  const ChatPrompt prompt = Rendered(kToolsAndThoughts, request);
  EXPECT_EQ(Sampled(prompt, "no"), "yes");
}

TEST(ChatPrompts, AnAnswerBehindAThoughtIsContent) {
  for (const std::string& source : {kToolsAndThoughts, kToolsAndOpenThought}) {
    for (const Thinking thinking : {Thinking::kModelDefault, Thinking::kOff}) {
      const ChatPrompt prompt =
          Rendered(source, {.messages = {{"user", "hi"}}, .thinking = thinking});
      EXPECT_EQ(prompt.thinking_start, "<think>");
      EXPECT_EQ(prompt.thinking_end, "</think>");
      EXPECT_EQ(prompt.opens_in_thinking, source == kToolsAndOpenThought);
      EXPECT_EQ(Read(prompt, "\n\nHello.\n\n").content, "\n\nHello.\n\n");
      EXPECT_EQ(Read(prompt, "").content, "");
    }
  }
}

TEST(ChatPrompts, WithoutAFormatAllIsContent) {
  EXPECT_EQ(Read({}, " " + kCall), ChatAnswer{.content = " " + kCall});
}

// As pebble's is, of which the analysis makes a format that no answer has.
TEST(ChatPrompts, WithoutToolsATextInNoFormatIsContent) {
  const std::string source =
      "{% for message in messages %}{% if message['role'] == 'user' %}Question: "
      "{{ message['content'] | trim }}{% elif message['role'] == 'assistant' %}<think></think> "
      "{{ message['content'] | trim }}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<think>{% endif %}";
  const ChatPrompt prompt = Rendered(source, {.messages = {{"user", "How many?"}}});
  for (const std::string& text : {std::string(" The answer Ben seven."), std::string(600, '[')}) {
    EXPECT_EQ(Read(prompt, text), ChatAnswer{.content = text});
    EXPECT_EQ(Read(prompt, text, AnswerEnd::kPartial), ChatAnswer{.content = text});
  }
}

TEST(ChatPrompts, WhatIsNoAnswerIsRefused) {
  const ChatPrompt prompt = Rendered(kTools, Request());
  const std::string unknown = Replaced(kCall, "weather", "thunder");
  const auto answer = ParseAnswer(prompt, unknown, AnswerEnd::kComplete);
  EXPECT_EQ(answer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(answer.status().Text().starts_with("the answer is not in the model's format: "))
      << answer.status().Text();
}

TEST(ChatPrompts, BracketsWithoutEndDoNotFillTheStack) {
  const Tool any = {.name = "any", .parameters = R"({"type": "object"})"};
  const ChatPrompt prompt = Rendered(kTools, {.messages = {{"user", "?"}}, .tools = {any}});
  for (const int levels : {60, 250, 5000, 1000000}) {
    const std::string text =
        "<tool_call>\n{\"name\": \"any\", \"arguments\": {\"a\": " + std::string(levels, '[');
    const auto answer = ParseAnswer(prompt, text, AnswerEnd::kPartial);
    if (levels < 500) {
      EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    } else {
      EXPECT_EQ(answer.status().Text(),
                "the answer is not in the model's format: its brackets are nested too deeply");
    }
  }
}

TEST(ChatRequests, BadOnesAreRefusedByTheirField) {
  struct Case {
    std::function<void(ChatRequest&)> change;
    std::string message;
  };
  const auto tool_message = [](ChatRequest& r) {
    r.messages.push_back({.role = "tool", .content = "rain"});
  };
  const auto call = [](std::string name, std::string arguments) {
    return [=](ChatRequest& r) {
      r.messages.push_back({.role = "assistant", .content = "", .tool_calls = {{name, arguments}}});
    };
  };
  const std::string deep = "{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  const std::vector<Case> cases = {
      {[](ChatRequest& r) { r.messages.clear(); }, "messages: expected at least one"},
      {[](ChatRequest& r) { r.messages[0].role = "robot"; },
       "messages[0].role: expected one of system, developer, user, assistant, tool, found "
       "\"robot\""},
      {tool_message, "messages[1].tool_call_id: expected the id"},
      {[](ChatRequest& r) { r.messages[0].tool_call_id = "1"; },
       "messages[0].tool_call_id: expected none in a message of role user"},
      {[](ChatRequest& r) { r.messages[0].tool_calls = {kCalled}; },
       "messages[0].tool_calls: expected none in a message of role user"},
      {[](ChatRequest& r) { r.messages[0].reasoning_content = "hm"; },
       "messages[0].reasoning_content: "},
      {call("", "{}"), "messages[1].tool_calls[0].name: expected a function"},
      {call("time", "{"), "messages[1].tool_calls[0].arguments: expected a JSON object: "},
      {call("time", "[]"),
       "messages[1].tool_calls[0].arguments: expected a JSON object, found other JSON"},
      {call("time", deep),
       "messages[1].tool_calls[0].arguments: expected JSON of at most 64 levels"},
      {[](ChatRequest& r) { r.tools[1].name = "a b"; }, "tools[1].name: expected 1 to 64 letters"},
      {[](ChatRequest& r) { r.tools[1].name = ""; }, "tools[1].name: expected 1 to 64 letters"},
      {[](ChatRequest& r) { r.tools[1].name = std::string(65, 'a'); }, "tools[1].name: expected"},
      {[](ChatRequest& r) { r.tools[1].name = "weather"; },
       "tools[1].name: expected distinct names, found \"weather\" twice"},
      {[](ChatRequest& r) { r.tools[0].parameters = "{"; },
       "tools[0].parameters: expected a JSON object: "},
      {[](ChatRequest& r) { r.tools[0].parameters = "3"; },
       "tools[0].parameters: expected a JSON object, found other JSON"},
      {[&](ChatRequest& r) { r.tools[0].parameters = deep; },
       "tools[0].parameters: expected JSON of at most 64 levels"},
      {[](ChatRequest& r) { r.tool_choice = "weathr"; },
       "tool_choice: expected auto, none, required or the name of a tool, found \"weathr\""},
      {[](ChatRequest& r) { r.tools.clear(), r.tool_choice = "required"; },
       "tool_choice: a call is required, but there are no tools"},
      {[](ChatRequest& r) { r.grammar = "root ::= \"a\""; },
       "grammar: cannot be combined with tools"},
      {[](ChatRequest& r) {
         r.tools.clear();
         r.response_format = ResponseFormat::kJsonObject;
         r.grammar = "root ::= \"a\"";
       },
       "grammar: cannot be combined with a response format"},
      {[](ChatRequest& r) {
         r.tools.clear();
         r.response_format = ResponseFormat::kJsonSchema;
         r.json_schema = "{]";
       },
       "response_format.json_schema: expected a JSON object: "},
      {[](ChatRequest& r) {
         r.tools.clear();
         r.response_format = ResponseFormat::kJsonSchema;
         r.json_schema = R"({"type": "unheard of"})";
       },
       "response_format.json_schema: expected a JSON schema that can be held to: #/type "},
  };
  for (const Case& one : cases) {
    ChatRequest request = Request();
    one.change(request);
    const Status status = Refusal(kTools, request);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_TRUE(status.Text().starts_with(one.message)) << status.Text();
  }
  EXPECT_TRUE(Refusal(kTools, Request()).ok());
}

// SmolLM2's template, as its file has it.
TEST(ChatRequests, WhatATemplateCannotTakeIsRefusedByItsField) {
  const std::string path = DefaultModelPath();
  if (path.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ChatRequest request = Request();
  Status status = (*model)->FormatChat(request).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.Text(), "tools: the chat template of the model does not support tools");
  request.tool_choice = "none";
  EXPECT_TRUE((*model)->FormatChat(request).ok());
  request.messages.push_back({.role = "assistant", .content = "", .tool_calls = {kCalled}});
  request.messages.push_back({.role = "tool", .content = "rain", .tool_call_id = "1"});
  const auto texts = (*model)->FormatChat(request);
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_EQ(texts->mended, std::vector<std::string>{"calls and results became texts"});
  for (const char* text : {"[call of weather]", "[result of a tool]\nrain"}) {
    EXPECT_NE(texts->text.find(text), std::string::npos) << texts->text;
  }
  const ChatRequest json = {.messages = {{"user", "hi"}},
                            .response_format = ResponseFormat::kJsonObject};
  const auto prompt = (*model)->FormatChat(json);
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_TRUE(prompt->text.ends_with("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(Read(*prompt, " {}").content, " {}");
}

TEST_F(ChatGrammar, ManyThreadsMayFormat) {
  const auto expected = model_->FormatChat({.messages = {{"user", "hi"}}});
  ASSERT_TRUE(expected.ok());
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&text] {
      for (int i = 0; i < 20; ++i) {
        const auto prompt = model_->FormatChat({.messages = {{"user", "hi"}}});
        text = prompt.ok() ? prompt->text : prompt.status().ToString();
        (void)ParseAnswer(*prompt, "Hello.", AnswerEnd::kPartial);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected->text);
}

}  // namespace
}  // namespace ebb
