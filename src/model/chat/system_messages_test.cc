// System messages under templates that take one of them, or none.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

// In the manner of Gemma: the first message's text goes into the question, and roles alternate.
constexpr const char* kRolesAlternate =
    "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] + '\n' %}"
    "{% set ms = messages[1:] %}{% else %}{% set s = '' %}{% set ms = messages %}{% endif %}"
    "{% for m in ms %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<{{ m['role'] }}>{{ (s if loop.first else '') + m['content'] }}{% endfor %}";
// In the manner of pebble: only questions and answers are shown. llama.cpp's common library itself
// puts the first message's text into the second then.
constexpr const char* kWithoutSystem =
    "{% for m in messages %}{% if m['role'] == 'user' %}Question: {{ m['content'] | trim }}"
    "{% elif m['role'] == 'assistant' %}Answer: {{ m['content'] | trim }}{% endif %}{% endfor %}";
constexpr const char* kEveryRole =
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}";

Result<std::string> TextOrRefusal(const std::string& chat_template,
                                  const std::vector<ChatMessage>& messages) {
  const TempFolder folder;
  ExpectOk(WriteRandomGguf({.num_layers = 1}, folder.File("plain.gguf")));
  Result<GgufEdit> edit = GgufEdit::Open(folder.File("plain.gguf"));
  EXPECT_TRUE(edit.ok()) << edit.status().ToString();
  edit->SetText("tokenizer.chat_template", chat_template);
  ExpectOk(edit->Save(folder.File("model.gguf")));
  const auto model = Model::Load({.path = folder.File("model.gguf")});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  EBB_ASSIGN_OR_RETURN(const ChatPrompt prompt, (*model)->FormatChat({.messages = messages}));
  return prompt.text;
}

std::string TextOf(const std::string& chat_template, const std::vector<ChatMessage>& messages) {
  const Result<std::string> text = TextOrRefusal(chat_template, messages);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

TEST(SystemMessages, SeveralBecomeOneWhereTheTemplateTakesOne) {
  for (const char* second : {"system", "developer"}) {
    EXPECT_EQ(TextOf(kRolesAlternate, {{"system", "a"}, {second, "b"}, {"user", "c"}}),
              "<user>a\n\nb\nc");
  }
  EXPECT_EQ(TextOf(kRolesAlternate, {{"developer", "a"}, {"user", "c"}}), "<user>a\nc");
}

TEST(SystemMessages, StayAsTheyAreWhereTheTemplateShowsThem) {
  EXPECT_EQ(TextOf(kEveryRole, {{"system", "a"}, {"system", "b"}, {"user", "c"}, {"system", "d"}}),
            "<system>a<system>b<user>c<system>d");
  EXPECT_EQ(TextOf(kEveryRole, {{"system", "a"}}), "<system>a");
}

TEST(SystemMessages, ALaterOneGoesInFrontOfTheQuestionThatFollows) {
  const std::vector<ChatMessage> messages = {
      {"system", "a"}, {"user", "b"}, {"assistant", "c"}, {"system", "d"}, {"user", "e"}};
  EXPECT_EQ(TextOf(kRolesAlternate, messages), "<user>a\nb<assistant>c<user>d\n\ne");
  EXPECT_EQ(TextOf(kRolesAlternate, {{"user", "b"}, {"system", "d"}}), "<user>b\n\nd");
}

TEST(SystemMessages, GoIntoTheQuestionWhereTheTemplateLeavesThemOut) {
  EXPECT_EQ(TextOf(kWithoutSystem, {{"system", "a"}, {"developer", "b"}, {"user", "c"}}),
            "Question: a\n\nb\nc");
}

TEST(SystemMessages, AreRefusedAloneWhereTheTemplateWouldLeaveThemOut) {
  for (const char* chat_template : {kRolesAlternate, kWithoutSystem}) {
    const Status status = TextOrRefusal(chat_template, {{"system", "a"}}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.Text(),
              "messages: the chat template of the model leaves a system message out that no other "
              "message follows; expected a message of a user");
  }
}

TEST(SystemMessages, OtherRefusalsAreInTheWordsOfTheTemplate) {
  const std::string refuses =
      "{% for m in messages %}{% if m['content'] == 'b' %}"
      "{{ raise_exception('no b') }}{% endif %}{% endfor %}";
  EXPECT_EQ(
      TextOrRefusal(refuses, {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}).status().Text(),
      "the chat template refuses: no b");
}

}  // namespace
}  // namespace ebb
