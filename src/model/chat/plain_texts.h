// Keeps the texts of messages plain: "<|im_end|>" in a message is text, while in the chat template
// it is a token.
//
// A template is a program, and its output does not show the origin of its parts. Therefore texts of
// a request that could be read as special tokens are marked before the template sees them, and the
// marks are removed from its output. PlainTexts keeps the offsets of the bytes that no special
// token may cover.
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
  // Prepares to mark texts. REQUIRES: `specials` outlives the object. thought_tags: tags that stay
  // unmarked in an assistant's content, where templates look for them.
  PlainTexts(const SpecialTexts* specials, std::string_view template_source,
             std::vector<std::string> thought_tags);

  struct Marked {
    ChatRequest request;
    std::string behind;  // the mark behind a character that is plain
    std::string ahead;   // the mark in front of one
  };
  // Returns the request with marks; nullopt: none of its texts could be read as a special token.
  [[nodiscard]] std::optional<Marked> Mark(const ChatRequest& request) const;
  // Removes the marks from prompt->text and sets prompt->plain_at.
  static void TakeMarks(const Marked& marked, ChatPrompt* prompt);

 private:
  class Marker;

  const SpecialTexts* const specials_;
  const std::vector<std::string> thought_tags_;
  // endings_ holds the texts that would complete a special text which the template may have begun,
  // as the beginning of a message's text. middles_ holds those that do so as a message's whole
  // text, after which the template may also continue.
  std::unordered_set<std::string> endings_;
  std::unordered_set<std::string> middles_;
  size_t longest_ = 0;  // of the endings
};

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_PLAIN_TEXTS_H_
