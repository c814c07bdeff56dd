#include "src/model/chat/chat.h"

#include <fmt/format.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/model/loaded/loaded_model.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using Thinking = Model::Thinking;

// In the manner of Qwen3: a thought is the model's choice and can be closed beforehand.
constexpr const char* kChosenThought =
    "{%- for message in messages %}"
    "{%- set content = message.content %}"
    "{%- if message.role == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";

// In the manner of later R1 distillates: the prompt itself opens the thought.
constexpr const char* kOpenThought =
    "{{ bos_token }}{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<A>' + content + '<E>' }}{% else %}{{ '<U>' + content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<A><think>\\n' }}{% endif %}";

// In the manner of earlier ones: only earlier thoughts are cut out.
constexpr const char* kCutThought =
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<A>' + content + '<E>' }}{% else %}{{ '<U>' + content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<A>' }}{% endif %}";

class ChatTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.File("model.gguf");
    const Status status = WriteRandomGguf({.num_layers = 1}, path_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // The model with other metadata.
  template <typename Change>
  std::shared_ptr<const Model> LoadWith(Change change) {
    Result<GgufEdit> edit = GgufEdit::Open(path_);
    EXPECT_TRUE(edit.ok()) << edit.status().ToString();
    change(edit->metadata());
    const std::string edited = folder_.File("edited.gguf");
    const Status status = edit->Save(edited);
    EXPECT_TRUE(status.ok()) << status.ToString();
    Result<std::shared_ptr<const Model>> model = Model::Load({.path = edited});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? *model : nullptr;
  }
  ChatPrompt Render(const char* source, const std::vector<ChatMessage>& messages,
                    Thinking thinking = Thinking::kModelDefault) {
    const auto model = LoadWith([&](gguf_context* metadata) {
      gguf_set_val_str(metadata, "tokenizer.chat_template", source);
    });
    Result<ChatPrompt> prompt = model->FormatChat(messages, thinking);
    EXPECT_TRUE(prompt.ok()) << prompt.status().ToString();
    return prompt.ok() ? *std::move(prompt) : ChatPrompt();
  }
  Status Refusal(const char* source) {
    const auto model = LoadWith([&](gguf_context* metadata) {
      gguf_set_val_str(metadata, "tokenizer.chat_template", source);
    });
    const std::vector<ChatMessage> messages = {{"user", "hi"}};
    return model->FormatChat(messages, Thinking::kModelDefault).status();
  }

  TempFolder folder_;
  std::string path_;
};

const std::vector<ChatMessage> kTwoTurns = {{"system", "be brief"},
                                            {"user", "one"},
                                            {"assistant", "<think>\nhm\n</think>\n\n1"},
                                            {"user", "two"}};

TEST_F(ChatTest, AppliesTheTemplateOfTheFile) {
  const auto model = LoadWith([](gguf_context*) {});
  const std::vector<ChatMessage> messages = {{"system", "be brief"}, {"user", "hi"}};
  const Result<ChatPrompt> prompt = model->FormatChat(messages, Thinking::kModelDefault);
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  EXPECT_EQ(prompt->text,
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(prompt->thinking_start, "");
  EXPECT_EQ(prompt->thinking_end, "");
  EXPECT_FALSE(prompt->opens_in_thinking);
}

TEST_F(ChatTest, FindsTheTagsOfAThoughtThatTheModelChooses) {
  const ChatPrompt prompt = Render(kChosenThought, kTwoTurns);
  EXPECT_EQ(prompt.text,
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
            "<|im_start|>assistant\n1<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(prompt.thinking_start, "<think>");
  EXPECT_EQ(prompt.thinking_end, "</think>");
  EXPECT_FALSE(prompt.opens_in_thinking);
}

TEST_F(ChatTest, AsksTheTemplateForNoThought) {
  const ChatPrompt prompt = Render(kChosenThought, {{"user", "hi"}}, Thinking::kOff);
  EXPECT_TRUE(prompt.text.ends_with("assistant\n<think>\n\n</think>\n\n")) << prompt.text;
  EXPECT_FALSE(prompt.opens_in_thinking);
}

TEST_F(ChatTest, KnowsThatThePromptOpensAThought) {
  const ChatPrompt prompt = Render(kOpenThought, kTwoTurns);
  EXPECT_TRUE(prompt.text.ends_with("<U>one<A>\n\n1<E><U>two<A><think>\n")) << prompt.text;
  EXPECT_EQ(prompt.thinking_start, "<think>");
  EXPECT_EQ(prompt.thinking_end, "</think>");
  EXPECT_TRUE(prompt.opens_in_thinking);
}

TEST_F(ChatTest, FindsTheTagsInATemplateThatOnlyCutsThoughts) {
  const ChatPrompt prompt = Render(kCutThought, kTwoTurns);
  EXPECT_TRUE(prompt.text.ends_with("<U>two<A>")) << prompt.text;
  EXPECT_EQ(prompt.thinking_start, "<think>");
  EXPECT_EQ(prompt.thinking_end, "</think>");
  EXPECT_FALSE(prompt.opens_in_thinking);
}

TEST_F(ChatTest, LeavesBosToTheTokenizer) {
  for (const bool add_bos : {false, true}) {
    const auto model = LoadWith([&](gguf_context* metadata) {
      gguf_set_val_str(metadata, "tokenizer.chat_template", kOpenThought);
      gguf_set_val_bool(metadata, "tokenizer.ggml.add_bos_token", add_bos);
    });
    const std::vector<ChatMessage> messages = {{"user", "hi"}};
    const Result<ChatPrompt> prompt = model->FormatChat(messages, Thinking::kModelDefault);
    ASSERT_TRUE(prompt.ok());
    const auto tokens =
        model->Tokenize(prompt->text, Model::AddBos::kAsModelSays, Model::Specials::kParse);
    ASSERT_TRUE(tokens.ok());
    constexpr Token kBos = 1;
    EXPECT_EQ(std::count(tokens->begin(), tokens->end(), kBos), 1) << "add_bos " << add_bos;
    EXPECT_EQ(tokens->front(), kBos);
  }
}

TEST_F(ChatTest, SaysWhereATemplateDoesNotParse) {
  const Status status = Refusal("{% if %}");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(status.Text().starts_with("the chat template does not parse: ")) << status.Text();
  EXPECT_NE(status.Text(), "the chat template does not parse: std::exception");
}

TEST_F(ChatTest, PassesOnWhatATemplateRaises) {
  const Status status = Refusal("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(status.Text().starts_with("the chat template refuses: ")) << status.Text();
  EXPECT_NE(status.Text().find("roles must alternate"), std::string::npos) << status.Text();
}

TEST_F(ChatTest, ThreadsRenderTheirOwnConversationsAtOnce) {
  const auto model = LoadWith([&](gguf_context* metadata) {
    gguf_set_val_str(metadata, "tokenizer.chat_template",
                     "{% for m in messages %}[{{ m.content }}]{% endfor %}");
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&model, thread] {
      for (int i = 0; i < 50; ++i) {
        const std::string text = fmt::format("{} of {}", i, thread);
        const std::vector<ChatMessage> messages = {{"user", text}};
        const Result<ChatPrompt> prompt = model->FormatChat(messages, Thinking::kModelDefault);
        ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
        EXPECT_EQ(prompt->text, "[" + text + "]");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ChatTest, ATemplateOfTheOptionsStandsForTheFiles) {
  const std::vector<ChatMessage> messages = {{"user", "hi"}};
  for (const auto& [source, text] :
       {std::pair<std::string, std::string>{"{% for m in messages %}[{{ m.content }}]{% endfor %}",
                                            "[hi]"},
        {"chatml", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}}) {
    const auto model = Model::Load({.path = path_, .chat_template = source});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    EXPECT_EQ((*model)->chat_template(), source);
    const auto prompt = (*model)->FormatChat(messages, Thinking::kModelDefault);
    ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
    EXPECT_EQ(prompt->text, text);
  }
  const auto broken = Model::Load({.path = path_, .chat_template = "{% if %}"});
  EXPECT_EQ(broken.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(broken.status().field(), "chat_template");
  EXPECT_THAT(broken.status().message(), testing::HasSubstr("does not parse"));
}

TEST_F(ChatTest, AFileWithoutATemplateIsAnError) {
  const auto model = LoadWith(
      [](gguf_context* metadata) { gguf_remove_key(metadata, "tokenizer.chat_template"); });
  const std::vector<ChatMessage> messages = {{"user", "hi"}};
  const Status status = model->FormatChat(messages, Thinking::kModelDefault).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.Text(), "the model file has no chat template; give the prompt as raw text");
}

}  // namespace
}  // namespace ebb
