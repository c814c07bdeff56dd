// Sets of characters, and texts as code points.
#ifndef EBB_MODEL_SCHEMA_CHAR_SET_H_
#define EBB_MODEL_SCHEMA_CHAR_SET_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb {

// A set of Unicode scalar values: sorted ranges that do not touch, both ends included.
class CharSet {
 public:
  using Range = std::pair<char32_t, char32_t>;
  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges);
  // Takes ranges in any order, which may overlap. Time: O(n log n).
  static CharSet Of(std::vector<Range> ranges);

  // REQUIRES: first <= last.
  void Add(char32_t first, char32_t last);
  void Add(const CharSet& other);
  [[nodiscard]] CharSet Complement() const;
  [[nodiscard]] CharSet Intersection(const CharSet& other) const;
  [[nodiscard]] bool Contains(char32_t c) const { return Meets(c, c); }
  // Returns whether it contains some character from `first` to `last`.
  [[nodiscard]] bool Meets(char32_t first, char32_t last) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// Code points; what is no UTF-8 becomes U+FFFD.
[[nodiscard]] std::u32string CodePoints(std::string_view text);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_CHAR_SET_H_
