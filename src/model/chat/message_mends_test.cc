// Histories that published templates refuse as they are, and template arguments: with the templates
// that come with llama.cpp's source.
#include "src/model/chat/message_mends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "src/model/chat/chat.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kMendTemplates = EBB_SOURCE_DIR "/build/deps/llama.cpp/models/templates";

std::vector<fs::path> AllTemplates() {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kMendTemplates, error)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

std::unique_ptr<ChatTemplate> TemplateOf(const fs::path& path) {
  std::stringstream source;
  source << std::ifstream(path).rdbuf();
  auto parsed = ChatTemplate::Parse(nullptr, source.str());
  return parsed.ok() ? *std::move(parsed) : nullptr;
}

ChatMessage Calling(const std::vector<std::string>& ids) {
  ChatMessage message = {.role = "assistant"};
  for (const std::string& id : ids) {
    message.tool_calls.push_back({.name = "weather", .arguments = R"({"x": 1})", .id = id});
  }
  return message;
}
ChatMessage ResultOf(const std::string& id, const std::string& text) {
  return {.role = "tool", .content = text, .tool_call_id = id, .name = "weather"};
}

struct History {
  std::string name;
  std::vector<ChatMessage> messages;
};

const std::string kFirst = "callAAAA1", kSecond = "callBBBB2";

const std::vector<History>& Histories() {
  static const std::vector<History> histories = {
      {"a result, then the user",
       {{"user", "alpha"}, Calling({kFirst}), ResultOf(kFirst, "beta"), {"user", "gamma"}}},
      {"a result, an answer, the user",
       {{"user", "alpha"},
        Calling({kFirst}),
        ResultOf(kFirst, "beta"),
        {"assistant", "gamma"},
        {"user", "delta"}}},
      {"parallel calls",
       {{"user", "alpha"},
        Calling({kFirst, kSecond}),
        ResultOf(kFirst, "beta"),
        ResultOf(kSecond, "gamma")}},
      {"parallel calls, then the user",
       {{"user", "alpha"},
        Calling({kFirst, kSecond}),
        ResultOf(kSecond, "beta"),
        ResultOf(kFirst, "gamma"),
        {"user", "delta"}}},
      {"two users", {{"user", "alpha"}, {"user", "beta"}}},
      {"two answers",
       {{"user", "alpha"}, {"assistant", "beta"}, {"assistant", "gamma"}, {"user", "delta"}}},
      {"an answer first", {{"assistant", "alpha"}, {"user", "beta"}}},
      {"no user", {{"system", "alpha"}, Calling({kFirst}), ResultOf(kFirst, "beta")}},
      {"a system alone before an answer", {{"system", "alpha"}, {"assistant", "beta"}}},
      {"a result without its call",
       {{"user", "alpha"}, ResultOf(kFirst, "beta"), {"user", "gamma"}}},
      {"a call without its result", {{"user", "alpha"}, Calling({kFirst}), {"user", "beta"}}},
      {"an interrupted agent",
       {{"system", "alpha"},
        {"user", "beta"},
        Calling({kFirst}),
        ResultOf(kFirst, "gamma"),
        {"user", "delta"},
        {"user", "epsilon"},
        Calling({kSecond}),
        ResultOf(kSecond, "zeta"),
        {"user", "eta"}}},
  };
  return histories;
}

TEST(MessageMends, TemplatesWithToolsTakeAllHistories) {
  const std::vector<fs::path> paths = AllTemplates();
  if (paths.empty()) EBB_SKIP_WITHOUT("llama_cpp_source") << kMendTemplates << " is not there";
  size_t num_templates = 0, num_mended = 0;
  for (const fs::path& path : paths) {
    const auto chat = TemplateOf(path);
    if (chat == nullptr || !chat->TakesTools()) continue;
    ++num_templates;
    for (const History& history : Histories()) {
      const auto prompt =
          chat->Render({.messages = history.messages,
                        .tools = {{.name = "weather", .parameters = R"({"type": "object"})"}}});
      EXPECT_TRUE(prompt.ok()) << path.filename() << ": " << history.name << ": "
                               << prompt.status().ToString();
      if (!prompt.ok()) continue;
      if (!prompt->mended.empty()) ++num_mended;
      for (const ChatMessage& message : history.messages) {
        EXPECT_NE(prompt->text.find(message.content), std::string::npos)
            << path.filename() << ": " << history.name << ": " << message.content << "\n"
            << prompt->text;
      }
    }
  }
  EXPECT_GE(num_templates, 40U);
  EXPECT_GE(num_mended, 10U);
}

TEST(MessageMends, ATemplateThatTakesTheMessagesGetsThemAsTheyAre) {
  const fs::path path = fs::path(kMendTemplates) / "Qwen-Qwen2.5-7B-Instruct.jinja";
  if (!fs::exists(path)) EBB_SKIP_WITHOUT("llama_cpp_source") << path << " is not there";
  const auto chat = TemplateOf(path);
  for (const History& history : Histories()) {
    const auto prompt = chat->Render({.messages = history.messages});
    ASSERT_TRUE(prompt.ok()) << history.name << prompt.status().ToString();
    EXPECT_THAT(prompt->mended, IsEmpty()) << history.name;
  }
}

TEST(MessageMends, FormsWithFewerChangesComeFirst) {
  const std::vector<ChatMessage> plain = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  EXPECT_EQ(MendedForms(plain).size(), 1U);
  const auto forms = MendedForms({{"user", "a"}, {"user", "b"}});
  ASSERT_EQ(forms.size(), 2U);
  EXPECT_THAT(forms[0].changes, IsEmpty());
  ASSERT_EQ(forms[1].messages.size(), 1U);
  EXPECT_EQ(forms[1].messages[0].content, "a\n\nb");
  EXPECT_THAT(forms[1].changes, ElementsAre("neighbours of one role were joined"));
  const auto calls = MendedForms(Histories()[3].messages);
  const std::vector<ChatMessage>& single = calls[1].messages;
  ASSERT_EQ(single.size(), 6U);
  EXPECT_EQ(single[2].content, "gamma");  // the result stands behind its own call
  EXPECT_EQ(single[4].content, "beta");
  EXPECT_EQ(calls.back().changes.size(), 2U);
}

TEST(TemplateArguments, ReachTheTemplateOrAreNamed) {
  const auto chat = ChatTemplate::Parse(
      nullptr,
      "{{ reasoning_effort }} {{ own }} {{ enable_thinking }}{% for m in messages %}{{ m.content }}"
      "{% endfor %}");
  ASSERT_TRUE(chat.ok());
  const auto prompt = (*chat)->Render(
      {.messages = {{"user", "hi"}},
       .template_arguments = {{"reasoning_effort", "\"low\""}, {"own", "[1]"}, {"other", "1"}}});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_THAT(prompt->text, HasSubstr("low 1 True"));
  EXPECT_THAT(prompt->unused_arguments, ElementsAre("other"));
  const auto off = (*chat)->Render({.messages = {{"user", "hi"}},
                                    .thinking = Thinking::kOff,
                                    .template_arguments = {{"enable_thinking", "true"}}});
  ASSERT_TRUE(off.ok()) << off.status().ToString();
  EXPECT_THAT(off->text, HasSubstr("False"));
}

TEST(TemplateArguments, OneThatATemplateRefusesIsLeftOut) {
  const auto chat = ChatTemplate::Parse(
      nullptr,
      "{% if reasoning_effort is defined and reasoning_effort != 'high' %}"
      "{{ raise_exception('no such effort') }}{% endif %}{% for m in messages %}{{ m.content }}"
      "{% endfor %}");
  ASSERT_TRUE(chat.ok());
  const auto prompt = (*chat)->Render(
      {.messages = {{"user", "hi"}}, .template_arguments = {{"reasoning_effort", "\"low\""}}});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_THAT(prompt->unused_arguments, ElementsAre("reasoning_effort"));
  EXPECT_THAT(prompt->mended, IsEmpty());
}

TEST(TemplateArguments, TheEffortOfGptOssIsTheRequests) {
  const fs::path path = fs::path(kMendTemplates) / "openai-gpt-oss-120b.jinja";
  if (!fs::exists(path)) EBB_SKIP_WITHOUT("llama_cpp_source") << path << " is not there";
  const auto chat = TemplateOf(path);
  for (const std::string effort : {"low", "high", "max"}) {
    const auto prompt =
        chat->Render({.messages = {{"user", "hi"}},
                      .template_arguments = {{"reasoning_effort", "\"" + effort + "\""}}});
    ASSERT_TRUE(prompt.ok());
    EXPECT_THAT(prompt->text, HasSubstr("Reasoning: " + effort));
  }
}

}  // namespace
}  // namespace ebb
