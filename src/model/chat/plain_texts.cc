#include "src/model/chat/plain_texts.h"

#include <algorithm>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

#include "src/base/text/utf8.h"

namespace ebb {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns five random private-use characters (U+E000 to U+F8FF), which no client can guess.
std::string NewMark() {
  constexpr uint32_t kFirst = 0xe000, kCount = 6400;
  constexpr int kCharacters = 5;
  std::random_device random;
  std::string mark;
  for (int i = 0; i < kCharacters; ++i) {
    const uint32_t point = kFirst + random() % kCount;
    mark += static_cast<char>(0xe0 | point >> 12);
    mark += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    mark += static_cast<char>(0x80 | (point & 0x3f));
  }
  return mark;
}

}  // namespace

PlainTexts::PlainTexts(const SpecialTexts* specials, std::string_view template_source,
                       std::vector<std::string> thought_tags)
    : specials_(specials), thought_tags_(std::move(thought_tags)) {
  // A special text ("<|im_end|>") becomes a control token. The template itself may contain the
  // beginning of one, or its beginning and its end, so that a message's text between or after them
  // would make it whole. The loop collects the pieces that would do so; messages that contain one
  // are tokenized as plain text there.
  for (const std::string_view text : specials->texts()) {
    size_t longest_begin = 0;
    while (longest_begin + 1 < text.size() &&
           template_source.find(text.substr(0, longest_begin + 1)) != std::string_view::npos) {
      ++longest_begin;
    }
    size_t first_end = text.size();
    while (first_end > 1 &&
           template_source.find(text.substr(first_end - 1)) != std::string_view::npos) {
      --first_end;
    }
    for (size_t begin = 1; begin <= longest_begin; ++begin) {
      endings_.emplace(text.substr(begin));
      longest_ = std::max(longest_, text.size() - begin);
      for (size_t end = std::max(first_end, begin + 1); end < text.size(); ++end) {
        middles_.emplace(text.substr(begin, end - begin));
      }
    }
  }
}

// Marker marks the texts of one request.
class PlainTexts::Marker {
 public:
  Marker(const PlainTexts& texts, std::string behind, std::string ahead)
      : texts_(texts), behind_(std::move(behind)), ahead_(std::move(ahead)) {}

  [[nodiscard]] bool has_marked() const { return has_marked_; }

  void MarkContent(const ChatMessage& message, std::string* content) {
    MarkText(message.role == "assistant" ? texts_.thought_tags_ : std::vector<std::string>(),
             content);
  }
  void MarkText(std::string* text) { MarkText({}, text); }
  // Marks the strings of a JSON text; a text that is no JSON is marked like any other.
  void MarkJson(std::string* text) {
    const OrderedJson json = OrderedJson::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return MarkText(text);
    const bool had_marked = std::exchange(has_marked_, false);
    const OrderedJson marked = InJson(json);
    if (has_marked_) *text = marked.dump();
    has_marked_ = has_marked_ || had_marked;
  }

 private:
  // Recurses for each level; CheckRequest() limits the levels of a request's JSON.
  OrderedJson InJson(const OrderedJson& json) {
    if (json.is_string()) return InString(json.get<std::string>());
    if (json.is_array()) {
      OrderedJson marked = OrderedJson::array();
      for (const OrderedJson& item : json) marked.push_back(InJson(item));
      return marked;
    }
    if (!json.is_object()) return json;
    OrderedJson marked = OrderedJson::object();
    for (const auto& [key, value] : json.items()) marked[InString(key)] = InJson(value);
    return marked;
  }

  [[nodiscard]] std::string InString(std::string text) {
    MarkText(&text);
    return text;
  }

  // Marks a text. kept: texts within which no mark is set.
  void MarkText(const std::vector<std::string>& kept, std::string* text) {
    std::string marked;
    if (CompletesSpecial(*text)) marked = ahead_;
    size_t copied = 0;
    for (size_t i = 0; i < text->size(); ++i) {
      const std::string_view rest = std::string_view(*text).substr(i);
      const auto tag = std::ranges::find_if(
          kept, [&](const std::string& one) { return !one.empty() && rest.starts_with(one); });
      if (tag != kept.end()) {
        i += tag->size() - 1;
        continue;
      }
      const SpecialTexts::Match match = texts_.specials_->Find(rest);
      if (match.length == 0 && !match.is_cut_off) continue;
      const size_t end = std::min(i + std::max<size_t>(Utf8Length((*text)[i]), 1), text->size());
      if (end <= copied) continue;
      marked.append(*text, copied, end - copied);
      marked += behind_;
      copied = end;
    }
    if (marked.empty()) return;
    has_marked_ = true;
    *text = marked.append(*text, copied, std::string::npos);
  }

  [[nodiscard]] bool CompletesSpecial(const std::string& text) const {
    if (texts_.middles_.contains(text)) return true;
    for (size_t size = 1; size <= std::min(text.size(), texts_.longest_); ++size) {
      if (texts_.endings_.contains(text.substr(0, size))) return true;
    }
    return false;
  }

  const PlainTexts& texts_;
  const std::string behind_;
  const std::string ahead_;
  bool has_marked_ = false;
};

std::optional<PlainTexts::Marked> PlainTexts::Mark(const ChatRequest& request) const {
  if (specials_->texts().empty()) return std::nullopt;
  Marked marked = {.request = request};
  marked.behind = NewMark();
  marked.ahead = NewMark();
  Marker marker(*this, marked.behind, marked.ahead);
  for (ChatMessage& message : marked.request.messages) {
    marker.MarkContent(message, &message.content);
    marker.MarkText(&message.reasoning_content);
    marker.MarkText(&message.tool_call_id);
    marker.MarkText(&message.name);
    for (ToolCall& call : message.tool_calls) {
      marker.MarkText(&call.name);
      marker.MarkJson(&call.arguments);
      marker.MarkText(&call.id);
    }
  }
  for (Tool& tool : marked.request.tools) {
    marker.MarkText(&tool.name);
    marker.MarkText(&tool.description);
    marker.MarkJson(&tool.parameters);
  }
  for (auto& [name, value] : marked.request.template_arguments) marker.MarkJson(&value);
  if (!marker.has_marked()) return std::nullopt;
  return marked;
}

void PlainTexts::TakeMarks(const Marked& marked, ChatPrompt* prompt) {
  const std::string text = std::exchange(prompt->text, {});
  prompt->plain_at.clear();
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.starts_with(marked.behind)) {
      if (!prompt->text.empty()) prompt->plain_at.push_back(prompt->text.size() - 1);
      i += marked.behind.size();
    } else if (rest.starts_with(marked.ahead)) {
      prompt->plain_at.push_back(prompt->text.size());
      i += marked.ahead.size();
    } else {
      prompt->text += text[i++];
    }
  }
}

}  // namespace ebb
