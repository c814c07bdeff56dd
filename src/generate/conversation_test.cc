// Tests conversations with a small model of random weights; each test chooses the model's chat
// template.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using Kind = Conversation::Kind;
using OnEnd = GenerateOptions::OnEnd;

// kThoughts is a template that omits the thoughts of earlier turns. It opens a thought, or closes
// it at once if thoughts are off.
constexpr const char* kThoughts =
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '[A]' + content + '[E]' }}{% else %}{{ '[U]' + content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[A]<think>\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}";

constexpr const char* kTools =
    "{%- if tools %}{{- '<tools>' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    "{{- '</tools>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}{{- '[U]' + message.content + '[E]\\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '[A]' + message.content }}"
    "{%- for tool_call in message.tool_calls %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + tool_call.function.name + '\", \"arguments\": ' }}"
    "{{- tool_call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}"
    "{{- '[E]\\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{{- '[U]<tool_response>' + message.content + '</tool_response>[E]\\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '[A]' }}{%- endif %}";

std::shared_ptr<const Model> ModelWith(const char* chat_template) {
  const TempFolder folder;
  Status status = WriteRandomGguf({.context = 2048}, folder.File("plain.gguf"));
  EXPECT_TRUE(status.ok()) << status.ToString();
  Result<GgufEdit> edit = GgufEdit::Open(folder.File("plain.gguf"));
  EXPECT_TRUE(edit.ok()) << edit.status().ToString();
  edit->SetText("tokenizer.chat_template", chat_template);
  status = edit->Save(folder.File("model.gguf"));
  EXPECT_TRUE(status.ok()) << status.ToString();
  auto model = Model::Load({.path = folder.File("model.gguf")});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return *model;
}

const std::shared_ptr<const Model>& Thinker() {
  static const std::shared_ptr<const Model> kModel = ModelWith(kThoughts);
  return kModel;
}
const std::shared_ptr<const Model>& Caller() {
  static const std::shared_ptr<const Model> kModel = ModelWith(kTools);
  return kModel;
}

std::vector<Token> Tokens(const Model& model, const std::string& text) {
  const auto tokens = model.Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse);
  EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
  return *tokens;
}

Turn Begun(const Model& model, const Conversation& talk, const std::vector<ChatMessage>& messages) {
  Result<Turn> turn = BeginTurn(model, talk, messages);
  EXPECT_TRUE(turn.ok()) << turn.status().ToString();
  return turn.ok() ? *std::move(turn) : Turn();
}

std::unique_ptr<Session> OpenIn(const std::unique_ptr<Engine>& engine,
                                const SessionOptions& options = {}) {
  auto session = engine->OpenSession(options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return *std::move(session);
}
std::unique_ptr<Engine> EngineOf(const std::shared_ptr<const Model>& model,
                                 const EngineOptions& options = {.threads = 1}) {
  auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

// Reads the turn's new tokens, generates the answer, and ends the turn.
GenerateResult Take(const Model& model, const Turn& turn, const GenerateOptions& options,
                    const SamplingOptions& sampling, Session* session, Conversation* talk) {
  const auto sampler = SamplerFor(turn, model, sampling);
  EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
  if (!turn.goes_on.has_value()) {
    const auto unread = KeepPrefix(turn.tokens, session);
    EXPECT_TRUE(unread.ok()) << unread.status().ToString();
    const Status read = session->Prefill(*unread).status;
    EXPECT_TRUE(read.ok()) << read.ToString();
  }
  GenerateResult result = Generate(*session, **sampler, OptionsFor(turn, options));
  EndTurn(turn, result, SavedState(**sampler), talk);
  return result;
}

const ChatMessage kOne = {"user", "one"};
const ChatMessage kTwo = {"user", "two"};

TEST(Conversation, AThoughtStaysInItsMessageAndIsLeftOutOfLaterPrompts) {
  const auto engine = EngineOf(Thinker());
  const auto session = OpenIn(engine);
  Conversation talk = {.request = {.messages = {{"system", "S"}}}};
  const Turn first = Begun(*Thinker(), talk, {kOne});
  EXPECT_EQ(first.tokens, Tokens(*Thinker(), "[U]S[U]one[A]<think>\n"));
  EXPECT_TRUE(first.prompt.opens_in_thinking);
  const GenerateResult result =
      Take(*Thinker(), first, {.thinking_budget = 7},
           {.temperature = 0, .grammar = R"(root ::= "\n\nyes")"}, session.get(), &talk);
  ASSERT_EQ(result.finish_reason, FinishReason::kStop);
  const std::string thought = result.text.substr(0, result.thought_bytes);
  EXPECT_TRUE(thought.ends_with("</think>")) << result.text;
  EXPECT_EQ(result.text.substr(result.thought_bytes), "\n\nyes");
  ASSERT_EQ(talk.request.messages.size(), 3U);
  EXPECT_EQ(talk.request.messages[2].content, "<think>\n" + thought + "\n\nyes");
  const Turn second = Begun(*Thinker(), talk, {kTwo});
  EXPECT_EQ(second.tokens, Tokens(*Thinker(), "[U]S[U]one[A]\n\nyes[E][U]two[A]<think>\n"));
  // The prompts of both turns are equal up to the point where the thought began.
  EXPECT_EQ(CommonPrefix(*session, second.tokens), Tokens(*Thinker(), "[U]S[U]one[A]").size());
}

TEST(Conversation, AThoughtWithoutAnEndIsClosedInItsMessage) {
  Conversation talk;
  const Turn turn = Begun(*Thinker(), talk, {kOne});
  EndTurn(turn, {.finish_reason = FinishReason::kLength, .text = "hm", .answer = {.tokens = {5}}},
          "", &talk);
  EXPECT_EQ(talk.request.messages.back().content, "<think>\nhm\n</think>");
  EXPECT_EQ(Begun(*Thinker(), talk, {kTwo}).tokens,
            Tokens(*Thinker(), "[U]one[A][E][U]two[A]<think>\n"));
}

TEST(Conversation, ATurnThatIsGivenUpLeavesNothing) {
  const auto engine = EngineOf(Thinker());
  const auto session = OpenIn(engine);
  Conversation talk;
  const std::string before = EncodeConversation(talk);
  const Turn turn = Begun(*Thinker(), talk, {kOne});
  ASSERT_TRUE(session->Prefill(turn.tokens).ok());
  EXPECT_EQ(EncodeConversation(talk), before);
  const Turn other = Begun(*Thinker(), talk, {kTwo});
  EXPECT_EQ(other.index, 0U);
  EXPECT_EQ(other.tokens, Tokens(*Thinker(), "[U]two[A]<think>\n"));
}

TEST(Conversation, AQuestionThatWasNeverAnsweredWasNotSaid) {
  Conversation talk;
  for (const FinishReason reason : {FinishReason::kCancelled, FinishReason::kError}) {
    const Turn turn = Begun(*Thinker(), talk, {kOne});
    EndTurn(turn, {.finish_reason = reason}, "", &talk);
    EXPECT_TRUE(talk.request.messages.empty());
  }
  // An empty answer is an answer, too.
  const Turn turn = Begun(*Thinker(), talk, {kOne});
  EXPECT_EQ(turn.index, 2U);
  EndTurn(turn, {.finish_reason = FinishReason::kStop}, "", &talk);
  EXPECT_EQ(talk.request.messages.size(), 2U);
}

TEST(Conversation, SeedsCountUpWithTheTurns) {
  const Turn turn = {.index = 4};
  const auto fifth = SamplerFor(turn, *Thinker(), {.temperature = 2, .seed = 10});
  const auto same = Sampler::Create(*Thinker(), {.temperature = 2, .seed = 14});
  const auto first = Sampler::Create(*Thinker(), {.temperature = 2, .seed = 10});
  ASSERT_TRUE(fifth.ok() && same.ok() && first.ok());
  const std::vector<float> flat(Thinker()->shape().vocab_size, 0.0F);
  std::vector<Token> of_fifth, of_same, of_first;
  for (Position position = 0; position < 8; ++position) {
    of_fifth.push_back(*(*fifth)->Sample(flat, position));
    of_same.push_back(*(*same)->Sample(flat, position));
    of_first.push_back(*(*first)->Sample(flat, position));
  }
  EXPECT_EQ(of_fifth, of_same);
  EXPECT_NE(of_fifth, of_first);
}

struct CutCase {
  Kind kind;
  Thinking thinking;
};

// After each part of an answer, saves the session and the conversation and loads them again, as
// another process would.
TEST(Conversation, AnAnswerThatWasCutGoesOnToTheSameText) {
  for (const CutCase& with : {CutCase{Kind::kChat, Thinking::kModelDefault},
                              {Kind::kChat, Thinking::kOff},
                              {Kind::kText, Thinking::kModelDefault}}) {
    const auto engine = EngineOf(Thinker());
    const SamplingOptions sampling = {.repeat_penalty = 1.3F, .seed = 9};
    const auto begin = [&](Session* session, Conversation* talk) {
      talk->kind = with.kind;
      talk->request.thinking = with.thinking;
      if (with.kind == Kind::kChat) return Begun(*Thinker(), *talk, {kOne});
      const auto turn = BeginTextTurn(*Thinker(), *talk, "tide", session->tokens());
      EXPECT_TRUE(turn.ok());
      return *turn;
    };
    const GenerateOptions endless = {.on_end = OnEnd::kIgnore, .thinking_budget = 9};
    const auto limited = [&](int max_tokens) {
      GenerateOptions options = endless;
      options.max_tokens = max_tokens;
      return options;
    };
    const auto whole_session = OpenIn(engine);
    Conversation whole;
    const Turn whole_turn = begin(whole_session.get(), &whole);
    const GenerateResult expected =
        Take(*Thinker(), whole_turn, limited(30), sampling, whole_session.get(), &whole);
    const auto session = OpenIn(engine);
    Conversation talk;
    const Turn turn = begin(session.get(), &talk);
    GenerateResult result = Take(*Thinker(), turn, limited(4), sampling, session.get(), &talk);
    for (const int more : {8, 18}) {
      const auto again = DecodeConversation(EncodeConversation(talk));
      ASSERT_TRUE(again.ok()) << again.status().ToString();
      talk = *again;
      const auto goes_on = ContinueTurn(*Thinker(), talk, OnEnd::kStop);
      ASSERT_TRUE(goes_on.ok()) << goes_on.status().ToString();
      EXPECT_EQ(goes_on->index, 0U);
      EXPECT_TRUE(goes_on->tokens.empty());
      result = Take(*Thinker(), *goes_on, limited(more), sampling, session.get(), &talk);
    }
    EXPECT_EQ(result.text, expected.text);
    EXPECT_EQ(session->logits_hash(), whole_session->logits_hash());
    EXPECT_EQ(EncodeConversation(talk), EncodeConversation(whole));
    EXPECT_EQ(talk.num_turns, 1U);
  }
}

TEST(Conversation, ATextGoesOnBehindTheLastTokenThatWasShown) {
  const auto engine = EngineOf(Thinker());
  const auto session = OpenIn(engine);
  Conversation talk = {.kind = Kind::kText};
  const auto first = BeginTextTurn(*Thinker(), talk, "tide", session->tokens());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->tokens, Tokens(*Thinker(), "tide"));
  const GenerateResult result =
      Take(*Thinker(), *first, {.max_tokens = 5, .on_end = OnEnd::kIgnore}, {.temperature = 0},
           session.get(), &talk);
  const auto second = BeginTextTurn(*Thinker(), talk, " and", session->tokens());
  ASSERT_TRUE(second.ok());
  std::vector<Token> expected = first->tokens;
  expected.insert(expected.end(), result.answer.tokens.begin(), result.answer.tokens.end());
  const auto more = Thinker()->Tokenize(" and", Model::AddBos::kNo, Model::Specials::kParse);
  expected.insert(expected.end(), more->begin(), more->end());
  EXPECT_EQ(second->tokens, expected);
  EXPECT_EQ(second->index, 1U);
  EXPECT_TRUE(talk.request.messages.empty());
}

TEST(Conversation, WhatCannotBeginSaysWhy) {
  Conversation talk;
  const auto none = ContinueTurn(*Thinker(), talk, OnEnd::kIgnore);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "expected a prompt: the conversation has no answer to go on with");
  EndTurn(Begun(*Thinker(), talk, {kOne}),
          {.finish_reason = FinishReason::kStop, .text = "a", .answer = {.tokens = {5}}}, "",
          &talk);
  const auto over = ContinueTurn(*Thinker(), talk, OnEnd::kStop);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.status().message(),
            "expected a prompt: the last answer is over; on_end kIgnore goes on with it");
  EXPECT_TRUE(ContinueTurn(*Thinker(), talk, OnEnd::kIgnore).ok());
  const ChatMessage nobody = {"nobody", "hello"};
  const auto role = BeginTurn(*Thinker(), talk, {&nobody, 1});
  ASSERT_FALSE(role.ok());
  EXPECT_THAT(role.status().Text(), HasSubstr("messages[2].role: expected one of"));
  const auto empty = BeginTextTurn(*ModelWith("{{ '' }}"), {.kind = Kind::kText}, "", {});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.status().message(), "expected a prompt, found an empty one");
  const auto state = SamplerFor({.goes_on = OpenAnswer()}, *Thinker(), {});
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.status().code(), StatusCode::kCorrupt);
}

const Tool kWeather = {.name = "weather",
                       .parameters = R"({"type": "object", "properties": {"city": )"
                                     R"({"type": "string"}}, "required": ["city"]})"};
constexpr const char* kCallText =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";

TEST(Conversation, CallsOfAnAnswerBecomeCallsOfItsMessage) {
  Conversation talk = {.request = {.tools = {kWeather}}};
  std::set<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    const Turn turn = Begun(*Caller(), talk, {kOne});
    const GenerateResult result = {
        .finish_reason = FinishReason::kStop, .text = kCallText, .answer = {.tokens = {5}}};
    const auto told = AnswerMessage(turn.prompt, result);
    ASSERT_TRUE(told.ok()) << told.status().ToString();
    ASSERT_EQ(told->tool_calls.size(), 1U);
    EXPECT_EQ(told->tool_calls[0].name, "weather");
    EXPECT_EQ(told->content, "");
    EndTurn(turn, result, "", &talk);
    const ChatMessage& message = talk.request.messages.back();
    ASSERT_EQ(message.tool_calls.size(), 1U);
    EXPECT_EQ(message.tool_calls[0].name, "weather");
    EXPECT_THAT(message.tool_calls[0].arguments, HasSubstr("Oslo"));
    const std::string id = message.tool_calls[0].id;
    EXPECT_EQ(id.size(), 9U);
    EXPECT_TRUE(ids.insert(id).second) << id;
    EXPECT_EQ(message.content, "");
    // The next turn must accept the tool's result.
    const Turn next =
        Begun(*Caller(), talk, {{.role = "tool", .content = "rain", .tool_call_id = id}});
    ASSERT_FALSE(next.tokens.empty());
    EndTurn(next, {.finish_reason = FinishReason::kStop, .text = "It rains."}, "", &talk);
    EXPECT_EQ(talk.request.messages.back().content, "It rains.");
  }
  const auto again = DecodeConversation(EncodeConversation(talk));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(EncodeConversation(*again), EncodeConversation(talk));
  ASSERT_EQ(again->request.messages.size(), talk.request.messages.size());
  EXPECT_EQ(again->request.messages[1].tool_calls, talk.request.messages[1].tool_calls);
  EXPECT_EQ(again->request.messages[2].tool_call_id, talk.request.messages[2].tool_call_id);
}

TEST(Conversation, ACallThatWasCutStaysText) {
  Conversation talk = {.request = {.tools = {kWeather}}};
  const std::string half = std::string(kCallText).substr(0, 40);
  const GenerateResult result = {
      .finish_reason = FinishReason::kLength, .text = half, .answer = {.tokens = {5}}};
  const Turn turn = Begun(*Caller(), talk, {kOne});
  EndTurn(turn, result, "", &talk);
  EXPECT_EQ(talk.request.messages.back().content, half);
  EXPECT_TRUE(talk.request.messages.back().tool_calls.empty());
  EXPECT_TRUE(BeginTurn(*Caller(), talk, {&kTwo, 1}).ok());
}

TEST(Conversation, AGrammarOfThePromptIsTheSamplers) {
  Conversation talk = {.request = {.response_format = ResponseFormat::kJsonObject}};
  const auto engine = EngineOf(Caller());
  const auto session = OpenIn(engine);
  const Turn turn = Begun(*Caller(), talk, {kOne});
  const GenerateResult result = Take(*Caller(), turn, {.max_tokens = 3},
                                     {.grammar = R"(root ::= "no")"}, session.get(), &talk);
  EXPECT_EQ(result.text.front(), '{') << result.text;
}

TEST(AnswerMessage, TellsTheThoughtFromTheRest) {
  struct Case {
    std::string text;
    size_t thought_bytes;
    std::string thought, content;
  };
  ChatPrompt prompt = {.thinking_start = "<think>", .thinking_end = "</think>"};
  for (const Case& c : std::vector<Case>{{"yes", 0, "", "yes"},
                                         {"<think>\nhm\n</think>\n\nyes", 20, "hm", "yes"},
                                         {"hm\n</think>\n\nyes", 11, "hm", "yes"},
                                         {"hm, well", 8, "hm, well", ""},
                                         {"</think>yes", 8, "", "yes"},
                                         {" \n yes", 0, "", " \n yes"}}) {
    const auto message = AnswerMessage(
        prompt,
        {.finish_reason = FinishReason::kStop, .text = c.text, .thought_bytes = c.thought_bytes});
    ASSERT_TRUE(message.ok()) << message.status().ToString();
    EXPECT_EQ(message->role, "assistant");
    EXPECT_EQ(message->reasoning_content, c.thought) << c.text;
    EXPECT_EQ(message->content, c.content) << c.text;
  }
}

// Messages must not contain channel marks, because gpt-oss's template refuses content with marks.
TEST(Conversation, ChannelMarksStayOutOfMessages) {
  ChatPrompt prompt = {
      .thinking_start = "<|channel|>analysis<|message|>",
      .thinking_end = "<|end|>",
      .channels = {.message = "<|start|>assistant", .answer = "<|channel|>final<|message|>"}};
  const std::string analysis = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  struct Case {
    std::string thought, content, said;
  };
  for (const Case& c :
       std::vector<Case>{{analysis + prompt.channels.answer, "yes", "hm"},
                         {prompt.channels.answer, "yes", ""},
                         {analysis + analysis + prompt.channels.answer, "yes", "hm\n\nhm"},
                         {analysis + "<|channel|>fin", "", "hm"}}) {
    const GenerateResult result = {.finish_reason = FinishReason::kStop,
                                   .text = c.thought + c.content,
                                   .thought_bytes = c.thought.size()};
    Conversation talk;
    EndTurn({.messages = {kOne}, .prompt = prompt}, result, "", &talk);
    const auto answer = AnswerMessage(prompt, result);
    ASSERT_TRUE(answer.ok());
    for (const ChatMessage& message : {talk.request.messages.back(), *answer}) {
      EXPECT_EQ(message.content, c.content) << c.thought;
      EXPECT_EQ(message.reasoning_content, c.said) << c.thought;
    }
  }
}

TEST(AnswerMessage, AnAnswerInNoFormatIsRefused) {
  const Turn turn = Begun(*Caller(), {.request = {.tools = {kWeather}}}, {kOne});
  const auto message = AnswerMessage(
      turn.prompt, {.finish_reason = FinishReason::kStop, .text = "<tool_call>\nno JSON"});
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.status().code(), StatusCode::kInvalidArgument);
}

TEST(ConversationBytes, WhatIsNoConversationIsRefused) {
  Conversation talk = {
      .request = {.messages = {{"user", "one"}, {"assistant", "a"}}},
      .num_turns = 1,
      .last = {.so_far = {.begin = 3, .tokens = {5, 6}, .text_bytes = 1}, .sampler = "state"}};
  const std::string bytes = EncodeConversation(talk);
  ASSERT_TRUE(DecodeConversation(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = DecodeConversation(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.status().code(), StatusCode::kCorrupt);
  }
  const auto with = [&](size_t at, char value) {
    std::string changed = bytes;
    changed[at] = value;
    return DecodeConversation(changed).status().message();
  };
  EXPECT_THAT(with(0, 1), HasSubstr("another version"));
  EXPECT_THAT(with(4, 2), HasSubstr("neither a chat nor a text"));
  EXPECT_THAT(with(6, 2), HasSubstr("thoughts are neither on nor off"));
  talk.last.so_far.begin = -1;
  EXPECT_THAT(DecodeConversation(EncodeConversation(talk)).status().message(),
              HasSubstr("an answer before the first token"));
}

TEST(PromptFailed, SaysWhichLimitEndedIt) {
  const auto reason = [](const Status& error) {
    const GenerateResult result = PromptFailed(error);
    EXPECT_EQ(result.error.message(), error.message());
    return result.finish_reason;
  };
  EXPECT_EQ(reason(ContextFull("full")), FinishReason::kContext);
  EXPECT_EQ(reason(T0Full("full")), FinishReason::kCap);
  EXPECT_EQ(reason(T1Full("full")), FinishReason::kCap);
  EXPECT_EQ(reason(OutOfMemory("full")), FinishReason::kCap);
  EXPECT_EQ(reason(StorageFull("full")), FinishReason::kCap);
  EXPECT_EQ(reason(Cancelled("stop")), FinishReason::kCancelled);
  EXPECT_EQ(reason(IoError("disk")), FinishReason::kError);
}

struct Told {
  std::vector<std::string> texts;
  std::vector<FinishReason> ends;
  std::vector<size_t> kept;
  std::vector<uint64_t> hashes;
  LosslessReport report;
};

// Runs five turns. Each prompt omits the earlier thoughts, so that the session is rolled back into
// tokens that were verified ahead. Stop strings, a grammar, or the length end the answers.
Told FiveTurns(const EngineOptions& engine_options, const SessionOptions& options) {
  const auto engine = EngineOf(Thinker(), engine_options);
  const auto session = OpenIn(engine, options);
  Conversation talk;
  Told told;
  for (int i = 0; i < 5; ++i) {
    GenerateOptions generate = {.max_tokens = 160, .thinking_budget = 30 + i};
    SamplingOptions sampling = {.seed = 3};
    if (i == 1) generate.stops = {"tide and tide"};
    if (i < 3) sampling.grammar = R"(root ::= ("ebb " | "tide and " | "moon "){8} "sea")";
    if (i >= 3) generate.on_end = OnEnd::kIgnore;
    const Turn turn = Begun(*Thinker(), talk, {{"user", "turn " + std::to_string(i)}});
    told.kept.push_back(CommonPrefix(*session, turn.tokens));
    const GenerateResult result = Take(*Thinker(), turn, generate, sampling, session.get(), &talk);
    told.texts.push_back(result.text);
    told.ends.push_back(result.finish_reason);
    told.hashes.push_back(session->logits_hash());
  }
  if (const LosslessReport* report = session->lossless_report()) told.report = *report;
  return told;
}

TEST(PromptBytes, OfMoreThanTheContextHasRoomForAreRefusedWithoutTokenizing) {
  const Model& model = *Thinker();
  EXPECT_EQ(model.longest_token_bytes(), std::string("<|im_start|>").size());
  EXPECT_EQ(model.LeastTokens(24), 2u);
  EXPECT_EQ(model.LeastTokens(25), 3u);
  const ChatMessage message = {"user", std::string(12'000, 'a')};
  constexpr int kContext = 1000;
  const Status chat = BeginTurn(model, {}, {&message, 1}, kContext).status();
  EXPECT_EQ(chat.code(), StatusCode::kContextFull);
  EXPECT_EQ(
      chat.message(),
      "the prompt has 12014 bytes, so at least 1002 tokens (none has more than 12 bytes), which "
      "exceeds the available context size of 1000 tokens");
  const Conversation text = {.kind = Kind::kText};
  EXPECT_EQ(BeginTextTurn(model, text, message.content, {}, kContext).status().code(),
            StatusCode::kContextFull);
  EXPECT_TRUE(BeginTextTurn(model, text, message.content, {}, kContext + 1).ok());
  EXPECT_TRUE(BeginTurn(model, {}, {&message, 1}).ok());
  EXPECT_NE(CheckPromptBytes(model, 24, /*kept=*/998, kContext)
                .message()
                .find("behind the 998 of the session"),
            std::string::npos);
}

TEST(LosslessConversation, GivesTheTokensAndBitsOfTheFullCache) {
  const Told full = FiveTurns({.threads = 1}, {});
  EXPECT_EQ(full.ends[1], FinishReason::kStopString) << full.texts[1];
  EXPECT_EQ(full.ends[0], FinishReason::kStop);
  EXPECT_EQ(full.ends[4], FinishReason::kLength);
  for (const auto& [least, most] : {std::pair(0, 64), {1, 64}, {3, 5}, {8, 8}}) {
    for (const T1Place place : {T1Place::kHost, T1Place::kFile, T1Place::kNone}) {
      const Told lossless =
          FiveTurns({.threads = 1, .tiers = EngineTiers{.t1 = place}},
                    {.policy = {.name = "attention",
                                .budget = {Budget::Unit::kPercent, 25},
                                .window = 8,
                                .interval = 8},
                     .lossless = LosslessOptions{.draft_min = least, .draft_max = most}});
      EXPECT_EQ(lossless.texts, full.texts) << least << " " << most;
      EXPECT_EQ(lossless.kept, full.kept);
      EXPECT_EQ(lossless.hashes, full.hashes) << least << " " << most;
      if (least > 0) {
        EXPECT_GT(lossless.report.accepted, 0);
        EXPECT_GT(lossless.report.drafted, lossless.report.accepted);
      }
    }
  }
}

}  // namespace
}  // namespace ebb
