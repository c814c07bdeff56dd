#include "src/server/api/openai/answer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The parser reads all of an answer each time: it is asked again when this share of it is new, so
// that a long answer costs time in proportion to its length.
constexpr size_t kShareOfNew = 64;

// The bytes at the end of `text` that may turn out to be blanks, the tag, or blanks around it.
size_t HeldBytes(std::string_view text, std::string_view tag) {
  const auto without_blanks = [](std::string_view of) {
    return of.substr(0, of.find_last_not_of(kBlanks) + 1);
  };
  std::string_view rest = without_blanks(text);
  if (rest.size() == text.size()) {
    size_t size = std::min(tag.size(), rest.size());
    while (size > 0 && !rest.ends_with(tag.substr(0, size))) --size;
    rest.remove_suffix(size);
  } else if (rest.ends_with(tag)) {
    rest.remove_suffix(tag.size());
  }
  return text.size() - without_blanks(rest).size();
}

// Nine letters and digits, since the templates of some models take no other.
std::string CallId(size_t number) { return fmt::format("call{:05}", number); }

}  // namespace

void AnswerPiece::Append(AnswerPiece more) {
  thought += more.thought;
  content += more.content;
  for (CallPiece& piece : more.calls) {
    if (!calls.empty() && calls.back().index == piece.index) {
      calls.back().arguments += piece.arguments;
    } else {
      calls.push_back(std::move(piece));
    }
  }
}

AnswerReader::AnswerReader(std::shared_ptr<const ChatPrompt> prompt, Calls calls, size_t first_call,
                           ToolNames names)
    : prompt_(std::move(prompt)),
      thought_end_(prompt_->thinking_end + prompt_->channels.message + prompt_->channels.answer),
      between_(MarksBetweenThoughts(*prompt_)),
      calls_(calls),
      first_call_(first_call),
      names_(std::move(names)) {}

AnswerPiece AnswerReader::Add(std::string_view text, TextPart part) {
  AnswerPiece piece;
  if (part == TextPart::kThought) {
    has_thought_ = true;
    thought_ += text;
    if (calls_ == Calls::kParsed) whole_thought_ += text;
    piece.thought = TakeThought();
    return piece;
  }
  if (has_thought_ && !thought_is_over_) piece.thought = EndThought();
  if (has_thought_ && !content_begun_) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  }
  if (text.empty()) return piece;
  content_begun_ = true;
  if (calls_ == Calls::kNone) {
    piece.content = text;
    return piece;
  }
  answer_ += text;
  if (answer_.size() - parsed_bytes_ < answer_.size() / kShareOfNew) return piece;
  parsed_bytes_ = answer_.size();
  const Result<ChatAnswer> answer = ParseAnswer(*prompt_, answer_, AnswerEnd::kPartial);
  if (answer.ok()) piece.Append(Compare(*answer, AnswerEnd::kPartial));
  return piece;
}

AnswerPiece AnswerReader::End(AnswerEnd end) {
  AnswerPiece piece;
  const bool is_in_thought = has_thought_ && !thought_is_over_;
  if (is_in_thought) piece.thought = EndThought();
  if (is_in_thought && end == AnswerEnd::kComplete) piece.Append(CallsOfThought());
  if (calls_ == Calls::kNone || answer_.empty()) return piece;
  const Result<ChatAnswer> answer = ParseAnswer(*prompt_, answer_, end);
  if (answer.ok()) {
    piece.Append(Compare(*answer, end));
    return piece;
  }
  is_malformed_ = true;
  // An incomplete call is sent as content, so that no text is lost. Text that was sent already is
  // left out.
  if (num_calls_ == 0) piece.content += answer_.substr(std::min(told_content_, answer_.size()));
  return piece;
}

// Blanks at both ends do not belong to a thought, nor do its tags.
std::string AnswerReader::TakeThought() {
  if (!thought_begun_) {
    const std::string& tag = prompt_->thinking_start;
    const size_t begin = std::min(thought_.find_first_not_of(kBlanks), thought_.size());
    std::string_view rest = std::string_view(thought_).substr(begin);
    const bool may_be_tag = !prompt_->opens_in_thinking && !tag.empty() &&
                            rest.substr(0, tag.size()) == tag.substr(0, rest.size());
    const std::string& mark = prompt_->channels.answer;
    if (!mark.empty() && mark.starts_with(rest)) return "";
    if (may_be_tag && rest.size() < tag.size()) return "";
    if (may_be_tag) rest.remove_prefix(tag.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    if (rest.empty()) return "";
    thought_ = std::string(rest);
    thought_begun_ = true;
  }
  JoinThoughts(between_, &thought_);
  const size_t held = std::max(HeldBytes(thought_, thought_end_), HeldBytes(thought_, between_));
  const size_t size = thought_.size() - held;
  std::string taken = thought_.substr(0, size);
  thought_.erase(0, size);
  return taken;
}

std::string AnswerReader::EndThought() {
  thought_is_over_ = true;
  if (!thought_begun_) return "";
  std::string_view rest = thought_;
  const auto strip = [&] { rest = rest.substr(0, rest.find_last_not_of(kBlanks) + 1); };
  strip();
  rest = WithoutThoughtEnd(rest, *prompt_);
  strip();
  return std::string(rest);
}

AnswerPiece AnswerReader::CallsOfThought() {
  constexpr size_t kMostTries = 8;
  size_t tries = 0;
  for (const GrammarTrigger& trigger : prompt_->grammar_triggers) {
    if (trigger.kind != GrammarTrigger::Kind::kText || trigger.text.empty()) continue;
    // From the last mark of a call on, and from those before it, of several calls.
    size_t at = whole_thought_.rfind(trigger.text);
    ChatAnswer calls;
    while (at != std::string::npos && tries++ < kMostTries) {
      Result<ChatAnswer> answer =
          ParseAnswer(*prompt_, std::string_view(whole_thought_).substr(at), AnswerEnd::kComplete);
      const bool is_all = answer.ok() && !answer->tool_calls.empty() &&
                          answer->content.find_first_not_of(kBlanks) == std::string::npos;
      if (!is_all) break;
      calls.tool_calls = std::move(answer->tool_calls);
      at = at == 0 ? std::string::npos : whole_thought_.rfind(trigger.text, at - 1);
    }
    if (!calls.tool_calls.empty()) return Compare(calls, AnswerEnd::kComplete);
  }
  return {};
}

// Returns the part of `answer` that was not sent yet. A call is sent once its name is certain: when
// it has arguments, another one follows, or the answer is over.
AnswerPiece AnswerReader::Compare(const ChatAnswer& answer, AnswerEnd end) {
  AnswerPiece piece;
  if (answer.content.size() > told_content_) {
    piece.content = answer.content.substr(told_content_);
    told_content_ = answer.content.size();
  }
  for (size_t i = 0; i < answer.tool_calls.size(); ++i) {
    const ToolCall& call = answer.tool_calls[i];
    const bool is_certain =
        !call.arguments.empty() || i + 1 < answer.tool_calls.size() || end == AnswerEnd::kComplete;
    if (call.name.empty() || !is_certain) break;
    CallPiece news = {.index = i};
    if (i == num_calls_) {
      ++num_calls_;
      told_arguments_.push_back(0);
      news.id = call.id.empty() ? CallId(first_call_ + i) : call.id;
      const auto renamed = names_.find(call.name);
      news.name = renamed == names_.end() ? call.name : renamed->second;
    }
    if (call.arguments.size() > told_arguments_[i]) {
      news.arguments = call.arguments.substr(told_arguments_[i]);
      told_arguments_[i] = call.arguments.size();
    }
    if (!news.name.empty() || !news.arguments.empty()) piece.calls.push_back(std::move(news));
  }
  return piece;
}

}  // namespace ebb::server
