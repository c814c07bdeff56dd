#include "src/model/chat/system_messages.h"

#include <algorithm>
#include <utility>

namespace ebb {
namespace {

constexpr const char* kBetweenTexts = "\n\n";

// Joins two texts with a separator, unless one of them is empty.
std::string JoinTexts(const std::string& front, const std::string& back) {
  return front.empty() || back.empty() ? front + back : front + kBetweenTexts + back;
}

// Waiting holds texts of system messages that wait for a user's message.
class Waiting {
 public:
  void Add(const std::string& text) { text_ = JoinTexts(text_, text); }
  void PutInto(std::vector<ChatMessage>* placed) {
    if (text_.empty()) return;
    // The waiting text joins the last message if that is a user's message; otherwise it becomes a
    // new message.
    if (!placed->empty() && placed->back().role == "user") {
      placed->back().content = JoinTexts(placed->back().content, text_);
    } else {
      placed->push_back({"user", text_});
    }
    text_.clear();
  }
  void PutInto(ChatMessage* user) {
    user->content = JoinTexts(std::exchange(text_, {}), user->content);
  }

 private:
  std::string text_;
};

}  // namespace

bool IsSystem(const ChatMessage& message) {
  return message.role == "system" || message.role == "developer";
}

SystemSupport FindSystemSupport(const RenderMessages& render) {
  const ChatMessage first = {"system", "Seven dwarfs."};
  const ChatMessage second = {"system", "Nine rings."};
  const ChatMessage question = {"user", "How many?"};
  const ChatMessage answer = {"assistant", "All of them."};
  const auto shows = [&](const std::vector<ChatMessage>& messages) {
    const std::optional<std::string> text = render(messages);
    return text.has_value() && std::ranges::all_of(messages, [&](const ChatMessage& message) {
             return !IsSystem(message) || text->find(message.content) != std::string::npos;
           });
  };
  return {.first = shows({first, question}),
          .several = shows({first, second, question}),
          .later = shows({question, answer, first, question}),
          .alone = shows({first})};
}

Result<std::vector<ChatMessage>> PlaceSystemMessages(const std::vector<ChatMessage>& messages,
                                                     const SystemSupport& support) {
  if (std::ranges::all_of(messages, IsSystem) && !(support.first && support.alone)) {
    return Unsupported("messages",
                       "the chat template of the model leaves a system message out that no other "
                       "message follows; expected a message of a user");
  }
  std::vector<ChatMessage> placed;
  Waiting waiting;
  bool is_front = true;
  for (const ChatMessage& message : messages) {
    if (!IsSystem(message)) {
      is_front = false;
      placed.push_back(message);
      if (message.role == "user") waiting.PutInto(&placed.back());
    } else if (is_front ? !support.first : !support.later) {
      waiting.Add(message.content);
    } else if (!support.several && !placed.empty() && IsSystem(placed.back())) {
      placed.back().content = JoinTexts(placed.back().content, message.content);
    } else {
      placed.push_back(message);
    }
  }
  waiting.PutInto(&placed);
  return placed;
}

}  // namespace ebb
