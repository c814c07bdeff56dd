#include "src/model/schema/char_set.h"

#include <algorithm>
#include <cstddef>

namespace ebb {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

}  // namespace

CharSet::CharSet(std::initializer_list<Range> ranges) {
  for (const auto& [first, last] : ranges) Add(first, last);
}

void CharSet::Add(char32_t first, char32_t last) {
  std::vector<Range> ranges;
  for (const Range& range : ranges_) {
    const bool touches = range.first <= last + 1 && first <= range.second + 1;
    if (touches) {
      first = std::min(first, range.first);
      last = std::max(last, range.second);
    } else {
      ranges.push_back(range);
    }
  }
  ranges.insert(std::ranges::upper_bound(ranges, Range{first, last}), {first, last});
  ranges_ = std::move(ranges);
}

void CharSet::Add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges_) Add(first, last);
}

CharSet CharSet::Complement() const {
  CharSet outside;
  char32_t next = 0;
  const auto add = [&](char32_t first, char32_t last) {
    // Halves of characters are none.
    if (first < 0xD800) outside.Add(first, std::min<char32_t>(last, 0xD7FF));
    if (last > 0xDFFF) outside.Add(std::max<char32_t>(first, 0xE000), last);
  };
  for (const auto& [first, last] : ranges_) {
    if (first > next) add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) add(next, kLastCodePoint);
  return outside;
}

CharSet CharSet::Intersection(const CharSet& other) const {
  CharSet both;
  for (const Range& a : ranges_) {
    for (const Range& b : other.ranges_) {
      const char32_t first = std::max(a.first, b.first), last = std::min(a.second, b.second);
      if (first <= last) both.Add(first, last);
    }
  }
  return both;
}

bool CharSet::Contains(char32_t c) const {
  return std::ranges::any_of(ranges_,
                             [c](const Range& r) { return c >= r.first && c <= r.second; });
}

std::u32string CodePoints(std::string_view text) {
  std::u32string points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = size == 1 ? lead : lead & (0xFF >> (size + 1));
    bool is_well = i + size <= text.size() && (lead < 0x80 || lead >= 0xC2) && lead < 0xF5;
    for (size_t k = 1; is_well && k < size; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      is_well = (byte & 0xC0) == 0x80;
      c = (c << 6) | (byte & 0x3F);
    }
    points.push_back(is_well ? c : U'\uFFFD');
    i += is_well ? size : 1;
  }
  return points;
}

}  // namespace ebb
