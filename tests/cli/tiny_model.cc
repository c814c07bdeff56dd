#include "tests/cli/tiny_model.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"

namespace ebb {
namespace {

constexpr const char* kThinkingTemplate =
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '[A]' + content + '<|im_end|>' }}{% else %}{{ '[U]' + content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[A]<think>\\n' }}{% endif %}";

}  // namespace

TinyModel::TinyModel() {
  Status status = WriteRandomGguf({.context = kContext}, path());
  EXPECT_TRUE(status.ok()) << status.ToString();
  Result<GgufEdit> edit = GgufEdit::Open(path());
  EXPECT_TRUE(edit.ok()) << edit.status().ToString();
  gguf_set_val_str(edit->metadata(), "tokenizer.chat_template", kThinkingTemplate);
  status = edit->Save(thinking_path());
  EXPECT_TRUE(status.ok()) << status.ToString();
  status = WriteRandomGguf(
      {.family = "gemma3", .sliding_window = 16, .window_pattern = 2, .context = kContext},
      windows_path());
  EXPECT_TRUE(status.ok()) << status.ToString();
  edit = GgufEdit::Open(windows_path());
  EXPECT_TRUE(edit.ok()) << edit.status().ToString();
  gguf_set_val_str(edit->metadata(), "tokenizer.chat_template", kThinkingTemplate);
  status = edit->Save(windows_path());
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace ebb
