// Keeps the texts of messages plain: "<|im_end|>" in a message is text, and the same in the chat
// template is a token.
//
// A template is a program, whose output no longer tells what came from where. So the texts of a
// request that could be read as special tokens get marks before the template sees them, and the
// marks are taken out of its output again: what remains of them are the offsets of bytes that no
// special token covers.
#ifndef EBB_MODEL_CHAT_PLAIN_TEXTS_H_
#define EBB_MODEL_CHAT_PLAIN_TEXTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ebb/chat.h"
#include "src/model/chat/special_texts.h"

namespace ebb {

class PlainTexts {
 public:
  // The specials must outlive it. thought_tags: stay as they are in an assistant's content, where
  // templates look for them.
  PlainTexts(const SpecialTexts* specials, std::string_view template_source,
             std::vector<std::string> thought_tags);

  struct Marked {
    ChatRequest request;
    std::string behind;  // the mark behind a character that is plain
    std::string ahead;   // the mark in front of one
  };
  // Nothing where no text of the request could be read as a special token.
  [[nodiscard]] std::optional<Marked> Mark(const ChatRequest& request) const;
  // Takes the marks out of prompt->text and sets prompt->plain_at.
  static void TakeMarks(const Marked& marked, ChatPrompt* prompt);

 private:
  class Marker;

  const SpecialTexts* const specials_;
  const std::vector<std::string> thought_tags_;
  // What completes a special text that the template may have begun: as the beginning of a message's
  // text; as all of it, where the template may also end it.
  std::unordered_set<std::string> endings_;
  std::unordered_set<std::string> middles_;
  size_t longest_ = 0;  // of the endings
};

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_PLAIN_TEXTS_H_
