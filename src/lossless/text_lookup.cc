#include "src/lossless/text_lookup.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace ebb {
namespace {

// kExpected holds the initial rates by the length of the match (3, 4 to 7, 8 to 15, ...), each of
// which weighs as much as kExpectedWeight guesses.
constexpr double kExpected[] = {0.4, 0.6, 0.8, 0.9, 0.95, 0.98};
constexpr double kExpectedWeight = 8;

constexpr size_t kFewestSlots = 1024;

}  // namespace

TextLookup::TextLookup() {
  static_assert(std::size(kExpected) == kKinds);
  for (int i = 0; i < kKinds; ++i) {
    right_[i].memory = 160;
    right_[i].Add(kExpected[i], kExpectedWeight);
  }
}

int TextLookup::KindOf(size_t match) {
  const int octave = static_cast<int>(std::bit_width(match)) - std::bit_width(kShortestMatch);
  return std::clamp(octave, 0, kKinds - 1);
}

bool TextLookup::SameBefore(size_t end, size_t other) const {
  const auto last = [&](size_t at) { return text_.begin() + static_cast<ptrdiff_t>(at); };
  return std::equal(last(end - kShortestMatch), last(end), last(other - kShortestMatch));
}

size_t TextLookup::SlotOf(size_t end) const {
  const Token* const first = text_.data() + end - kShortestMatch;
  const size_t mask = last_end_.size() - 1;
  size_t slot = XXH3_64bits(first, kShortestMatch * sizeof(Token)) & mask;
  while (last_end_[slot] != 0 && !SameBefore(last_end_[slot], end)) slot = (slot + 1) & mask;
  return slot;
}

// Maps the tokens before `end` to `end`. REQUIRES: no later end was remembered.
void TextLookup::Remember(size_t end) {
  if (end < kShortestMatch) return;
  if (2 * (num_ends_ + 1) > last_end_.size()) {
    last_end_.assign(std::max(kFewestSlots, 2 * last_end_.size()), 0);
    num_ends_ = 0;
    for (size_t before = kShortestMatch; before < end; ++before) Remember(before);
  }
  uint32_t& last = last_end_[SlotOf(end)];
  if (last == 0) ++num_ends_;
  last = static_cast<uint32_t>(end);
}

void TextLookup::Append(Token token) {
  const bool right = match_ > 0 && text_[from_] == token;
  if (match_ > 0) right_[KindOf(match_)].Add(right ? 1 : 0);
  text_.push_back(token);
  if (right) {
    ++match_;
    ++from_;
  } else {
    Find();
  }
  Remember(text_.size());
}

// Finds the last earlier occurrence of the last tokens. REQUIRES: the end of the text was not
// remembered yet.
void TextLookup::Find() {
  match_ = 0;
  const size_t end = text_.size();
  if (end < kShortestMatch || last_end_.empty()) return;
  from_ = last_end_[SlotOf(end)];
  while (match_ < from_ && text_[from_ - 1 - match_] == text_[end - 1 - match_]) ++match_;
}

void TextLookup::TruncateTo(size_t size) {
  if (size >= text_.size()) return;
  std::vector<Token> kept(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(size));
  text_.clear();
  last_end_.clear();
  num_ends_ = 0;
  match_ = 0;
  const auto learnt = right_;
  for (const Token token : kept) Append(token);
  right_ = learnt;
}

Token TextLookup::Next(size_t i) const {
  const size_t period = text_.size() - from_;
  return text_[from_ + i % period];
}

double TextLookup::ProbabilityOfNext(size_t i) const { return right_[KindOf(match_ + i)].value(); }

size_t TextLookup::NumWorthIt(
    size_t most, double rate,
    const std::function<double(int num_tokens, double num_taken)>& seconds) const {
  if (match_ == 0) return 0;
  size_t best = 0;
  double all_right = 1, tokens = 1;
  for (size_t i = 0; i < most; ++i) {
    all_right *= ProbabilityOfNext(i);
    tokens += all_right;
    const double of_these = tokens / seconds(static_cast<int>(i) + 2, tokens);
    if (of_these <= rate) continue;
    rate = of_these;
    best = i + 1;
  }
  return best;
}

}  // namespace ebb
