#include "src/server/api/openai/answer.h"

#include <algorithm>
#include <utility>

namespace ebb::server {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// kShareOfNew: the parser reads the whole answer each time, so it runs only when 1/kShareOfNew of
// the text is new. A long answer then costs time in proportion to its length.
constexpr size_t kShareOfNew = 64;

// Counts the bytes at the end of `text` that must be held back, since they may be blanks or a
// beginning of the tag.
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

AnswerReader::AnswerReader(std::shared_ptr<const ChatPrompt> prompt, Calls calls, CallIds ids,
                           ToolNames names)
    : prompt_(std::move(prompt)),
      thought_end_(prompt_->thinking_end + prompt_->channels.message + prompt_->channels.answer),
      between_(MarksBetweenThoughts(*prompt_)),
      calls_(calls),
      ids_(ids),
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
  is_over_ = true;
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
  piece.Append(Rest());
  return piece;
}

// Returns how many bytes at the end of `content` may begin a call.
size_t AnswerReader::BytesOfMark(std::string_view content) const {
  size_t held = 0;
  for (const GrammarTrigger& trigger : prompt_->grammar_triggers) {
    if (trigger.kind != GrammarTrigger::Kind::kText) continue;
    size_t size = std::min(trigger.text.size(), content.size());
    while (size > held && !content.ends_with(std::string_view(trigger.text).substr(0, size)))
      --size;
    held = std::max(held, size);
  }
  return held;
}

AnswerPiece AnswerReader::Rest() {
  // The stream has sent pieces of the part that could be parsed, depending on how the text was
  // split. The search finds the longest such part, and all of it is sent, so that the answer does
  // not depend on the split.
  size_t good = 0;
  for (size_t bad = answer_.size() + 1; bad - good > 1;) {
    const size_t middle = good + (bad - good) / 2;
    const std::string_view begin = std::string_view(answer_).substr(0, middle);
    (ParseAnswer(*prompt_, begin, AnswerEnd::kPartial).ok() ? good : bad) = middle;
  }
  const Result<ChatAnswer> part =
      ParseAnswer(*prompt_, std::string_view(answer_).substr(0, good), AnswerEnd::kPartial);
  AnswerPiece piece;
  if (part.ok()) piece = Compare(*part, AnswerEnd::kPartial);
  if (num_calls_ > 0) {
    are_calls_whole_ = part.ok() && part->tool_calls.size() >= num_calls_ &&
                       std::ranges::all_of(part->tool_calls, [](const ToolCall& call) {
                         return Json::accept(call.arguments);
                       });
  } else {
    // Marks of the format before the content are not part of it.
    const size_t at = part.ok() ? answer_.find(part->content) : 0;
    good = at == std::string::npos ? 0 : at + sent_content_bytes_;
  }
  piece.content += answer_.substr(std::min(good, answer_.size()));
  return piece;
}

// Returns the text of the thought that can be sent: without its tags and without blanks at both
// ends.
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
    // Parses from the last mark of a call on, then from earlier ones for several calls.
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
  const size_t held = is_over_ ? 0 : BytesOfMark(answer.content);
  const size_t certain = answer.content.size() - held;
  if (certain > sent_content_bytes_) {
    piece.content = answer.content.substr(sent_content_bytes_, certain - sent_content_bytes_);
    sent_content_bytes_ = certain;
  }
  for (size_t i = 0; i < answer.tool_calls.size(); ++i) {
    const ToolCall& call = answer.tool_calls[i];
    // Some formats parse "{" as a call although text may follow, so a call counts only once it has
    // an argument.
    const bool has_arguments = call.arguments.find(':') != std::string::npos;
    const bool is_certain =
        has_arguments || i + 1 < answer.tool_calls.size() || end == AnswerEnd::kComplete;
    if (call.name.empty() || !is_certain) break;
    CallPiece call_piece = {.index = i};
    if (i == num_calls_) {
      ++num_calls_;
      sent_argument_bytes_.push_back(0);
      call_piece.id = call.id.empty() ? MakeCallId(ids_.seed, ids_.choice, i) : call.id;
      const auto renamed = names_.find(call.name);
      call_piece.name = renamed == names_.end() ? call.name : renamed->second;
    }
    if (call.arguments.size() > sent_argument_bytes_[i]) {
      call_piece.arguments = call.arguments.substr(sent_argument_bytes_[i]);
      sent_argument_bytes_[i] = call.arguments.size();
    }
    if (!call_piece.name.empty() || !call_piece.arguments.empty())
      piece.calls.push_back(std::move(call_piece));
  }
  return piece;
}

}  // namespace ebb::server
