// Provides sets of characters, and converts texts to code points.
#ifndef EBB_MODEL_SAMPLING_CHAR_SET_H_
#define EBB_MODEL_SAMPLING_CHAR_SET_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb {

// CharSet is a set of Unicode scalar values, stored as sorted ranges that do not touch and include
// both ends.
class CharSet {
 public:
  using Range = std::pair<char32_t, char32_t>;
  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges);
  // Makes a set of ranges, which may overlap and be in any order, in O(n log n).
  static CharSet Of(std::vector<Range> ranges);

  // Adds a range. REQUIRES: first <= last.
  void Add(char32_t first, char32_t last);
  void Add(const CharSet& other);
  [[nodiscard]] CharSet Complement() const;
  [[nodiscard]] CharSet Intersection(const CharSet& other) const;
  [[nodiscard]] bool Contains(char32_t c) const { return Meets(c, c); }
  // Returns whether the set contains some character from `first` to `last`.
  [[nodiscard]] bool Meets(char32_t first, char32_t last) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// Returns the code points of a UTF-8 text; invalid bytes become U+FFFD.
[[nodiscard]] std::u32string CodePoints(std::string_view text);

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_CHAR_SET_H_
