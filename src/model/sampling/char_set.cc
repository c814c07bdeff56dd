#include "src/model/sampling/char_set.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "src/base/text/utf8.h"

namespace ebb {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

}  // namespace

CharSet::CharSet(std::initializer_list<Range> ranges) {
  for (const auto& [first, last] : ranges) Add(first, last);
}

CharSet CharSet::Of(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  CharSet set;
  for (const auto& [first, last] : ranges) set.Add(first, last);
  return set;
}

void CharSet::Add(char32_t first, char32_t last) {
  const auto begin =
      std::ranges::lower_bound(ranges_, first, {}, [](const Range& r) { return r.second + 1; });
  const auto end = std::upper_bound(begin, ranges_.end(), last + 1,
                                    [](char32_t c, const Range& range) { return c < range.first; });
  if (begin == end) {
    ranges_.insert(begin, {first, last});
    return;
  }
  *begin = {std::min(first, begin->first), std::max(last, std::prev(end)->second)};
  ranges_.erase(begin + 1, end);
}

void CharSet::Add(const CharSet& other) {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  *this = Of(std::move(all));
}

CharSet CharSet::Complement() const {
  CharSet outside;
  char32_t next = 0;
  const auto add = [&](char32_t first, char32_t last) {
    // Leaves out surrogates, which are no characters.
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
  for (auto a = ranges_.begin(), b = other.ranges_.begin();
       a != ranges_.end() && b != other.ranges_.end();) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->second, b->second);
    if (first <= last) both.Add(first, last);
    a->second < b->second ? ++a : ++b;
  }
  return both;
}

bool CharSet::Meets(char32_t first, char32_t last) const {
  const auto range = std::ranges::lower_bound(ranges_, first, {}, &Range::second);
  return range != ranges_.end() && range->first <= last;
}

std::u32string CodePoints(std::string_view text) {
  std::u32string points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t size = Utf8Length(text[i]);
    char32_t c = size == 1 ? lead : lead & (0xFF >> (size + 1));
    bool is_well = size > 0 && i + size <= text.size();
    for (size_t k = 1; is_well && k < size; ++k) {
      is_well = ContinuesUtf8(text[i + k]);
      c = (c << 6) | (text[i + k] & 0x3F);
    }
    points.push_back(is_well ? c : U'\uFFFD');
    i += is_well ? size : 1;
  }
  return points;
}

}  // namespace ebb
