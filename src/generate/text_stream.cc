// Invariants: (1) text_ + pending_ is everything that was pushed, except a stop string that was
// found and what follows it; (2) between calls pending_ contains no whole stop string of the
// answer.
#include "src/generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "src/base/text/utf8.h"

namespace ebb {
namespace {

constexpr const char* kBlankBytes = " \t\r\n";

// Returns the length of the longest beginning of `word`, but not all of it, with which `text` ends.
size_t PrefixAtEnd(std::string_view text, std::string_view word) {
  if (word.empty()) return 0;
  for (size_t size = std::min(text.size(), word.size() - 1); size > 0; --size) {
    if (text.ends_with(word.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

ThoughtExtent FindThought(const ChatPrompt& prompt, std::string_view text) {
  TextStream stream({.thinking_start = prompt.thinking_start,
                     .thinking_end = prompt.thinking_end,
                     .opens_in_thinking = prompt.opens_in_thinking,
                     .channels = prompt.channels});
  (void)stream.Push(text);
  const bool is_unended = stream.in_thought();
  (void)stream.Finish();
  return {.bytes = stream.thought_bytes(), .is_unended = is_unended};
}

TextStream::TextStream(Options options) : options_(std::move(options)), part_(Part::kAnswer) {
  std::erase(options_.stops, "");
  std::erase(options_.turn_ends, "");
  if (options_.thinking_start.empty() || options_.thinking_end.empty()) return;
  part_ = options_.opens_in_thinking ? Part::kThought : Part::kUndecided;
}

void TextStream::SetStops(std::vector<std::string> stops) {
  options_.stops = std::move(stops);
  std::erase(options_.stops, "");
}

TextStream TextStream::WithoutSink() const {
  Options options = options_;
  options.sink = nullptr;
  TextStream copy(std::move(options));
  copy.pending_ = pending_;
  copy.part_ = part_;
  copy.skips_blanks_ = skips_blanks_;
  copy.state_ = state_;
  return copy;
}

TextStream::State TextStream::Push(std::string_view bytes) {
  pending_ += bytes;
  const bool ends = CutAt(options_.turn_ends);
  Advance(ends ? Hold::kHalfCharacters : Hold::kWhatMayChange);
  if (ends && state_ == State::kOpen) state_ = State::kStopString;
  return state_;
}

TextStream::State TextStream::Finish() {
  if (state_ == State::kOpen) Advance(Hold::kHalfCharacters);
  return state_;
}

void TextStream::Advance(Hold hold) {
  while (part_ != Part::kAnswer) {
    const bool decided = part_ == Part::kUndecided ? DecideStart(hold)
                         : part_ == Part::kThought ? EndThought(hold)
                                                   : PassMarks(hold);
    if (!decided) return;
  }
  AdvanceAnswer(hold);
}

bool TextStream::EndThought(Hold hold) {
  const size_t end = pending_.find(options_.thinking_end);
  if (end == std::string::npos) {
    Emit(pending_.size() - HeldBytes(hold), TextPart::kThought);
    return false;
  }
  part_ = options_.channels.empty() ? Part::kAnswer : Part::kMarks;
  skips_blanks_ = true;
  Emit(end + options_.thinking_end.size(), TextPart::kThought);
  return true;
}

bool TextStream::PassMarks(Hold hold) {
  const std::string_view pending = pending_;
  const auto [message, answer] = options_.channels;
  const std::string_view start = options_.thinking_start;
  const bool has_message = pending.starts_with(message);
  const std::string_view rest = has_message ? pending.substr(message.size()) : pending;
  const bool is_cut_off = answer.starts_with(rest) || start.starts_with(rest) ||
                          (!has_message && message.starts_with(rest));
  size_t size = pending.size() - rest.size();
  Part next = Part::kAnswer;
  if (rest.starts_with(answer)) {
    size += answer.size();
  } else if (rest.starts_with(start)) {
    size += start.size();
    next = Part::kThought;
  } else if (is_cut_off) {
    if (hold == Hold::kWhatMayChange) return false;
    size = pending.size();
  }
  part_ = next;
  Emit(size, TextPart::kThought);
  return true;
}

void TextStream::AdvanceAnswer(Hold hold) {
  if (skips_blanks_) {
    const size_t begin = std::min(pending_.find_first_not_of(kBlankBytes), pending_.size());
    skips_blanks_ = begin == pending_.size();
    Emit(begin, TextPart::kAnswer);
  }
  if (!CutAt(options_.stops)) {
    return Emit(pending_.size() - HeldBytes(hold), TextPart::kAnswer);
  }
  Emit(pending_.size() - HeldBytes(Hold::kHalfCharacters), TextPart::kAnswer);
  if (state_ == State::kOpen) state_ = State::kStopString;
}

bool TextStream::CutAt(const std::vector<std::string>& words) {
  size_t stop = std::string::npos;
  for (const std::string& word : words) {
    const size_t found = pending_.find(word);
    if (found >= stop) continue;
    stop = found;
    stop_string_ = word;
  }
  if (stop == std::string::npos) return false;
  pending_.resize(stop);
  return true;
}

bool TextStream::MayOpenThought(std::string_view bytes) const {
  if (!is_undecided() || bytes.empty()) return false;
  const std::string text = pending_ + std::string(bytes);
  const size_t begin = text.find_first_not_of(kBlankBytes);
  // Blanks alone do not continue the tag.
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(text).substr(begin);
  const std::string_view tag = options_.thinking_start;
  return rest.starts_with(tag) || tag.starts_with(rest);
}

bool TextStream::HasBegunTag() const {
  return is_undecided() && pending_.find_first_not_of(kBlankBytes) != std::string::npos;
}

bool TextStream::LeavesThoughtWithText(std::string_view bytes) const {
  if (!in_thought()) return false;
  const std::string text = pending_ + std::string(bytes);
  const size_t end = text.find(options_.thinking_end);
  return end != std::string::npos &&
         text.find_first_not_of(kBlankBytes, end + options_.thinking_end.size()) !=
             std::string::npos;
}

bool TextStream::DecideStart(Hold hold) {
  const std::string_view tag = options_.thinking_start;
  const size_t space = std::min(pending_.find_first_not_of(kBlankBytes), pending_.size());
  const std::string_view pending = pending_;
  const std::string_view rest = pending.substr(space);
  if (rest.starts_with(tag)) {
    part_ = Part::kThought;
    Emit(space + tag.size(), TextPart::kThought);
    return true;
  }
  if (hold == Hold::kWhatMayChange && tag.starts_with(rest)) return false;
  part_ = options_.channels.empty() ? Part::kAnswer : Part::kMarks;
  return true;
}

size_t TextStream::HeldBytes(Hold hold) const {
  size_t held = IncompleteUtf8Suffix(pending_);
  if (hold == Hold::kHalfCharacters) return held;
  for (const std::string& word : options_.turn_ends) {
    held = std::max(held, PrefixAtEnd(pending_, word));
  }
  if (part_ == Part::kThought) {
    return std::max(held, PrefixAtEnd(pending_, options_.thinking_end));
  }
  for (const std::string& word : options_.stops) {
    held = std::max(held, PrefixAtEnd(pending_, word));
  }
  return held;
}

void TextStream::Emit(size_t size, TextPart part) {
  if (size == 0 || state_ == State::kRefused) return;
  const std::string_view pending = pending_;
  const std::string_view piece = pending.substr(0, size);
  text_ += piece;
  if (part == TextPart::kThought) thought_bytes_ += piece.size();
  if (options_.sink && !options_.sink(piece, part)) state_ = State::kRefused;
  pending_.erase(0, size);
}

}  // namespace ebb
