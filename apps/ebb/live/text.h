// Lays text out for a terminal and remembers which token each character came from, so that the text
// on the screen can be recoloured. A UTF-8 character that spans several tokens belongs to the first
// of them. Bytes that are no character, and characters on which a terminal would act
// (DrivesTerminal()), show as U+FFFD.
#ifndef EBB_APPS_LIVE_TEXT_H_
#define EBB_APPS_LIVE_TEXT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/generate.h"
#include "ebb/types.h"

namespace ebb::cli {

// LiveText holds a text, lays it out in lines of a given width and remembers which token each
// character came from.
class LiveText {
 public:
  // Appends bytes of the token at `position`; a character may be split between two calls.
  void Append(std::string_view bytes, Position position, TextPart part);
  // Shows U+FFFD in place of a character whose last bytes have not come.
  void EndCharacter();
  // Lays out all lines again if the width, in columns, has changed. Less than one column counts as
  // one.
  void SetWidth(int columns);

  [[nodiscard]] size_t num_lines() const { return line_begin_.size(); }
  [[nodiscard]] size_t num_characters() const { return cells_.size(); }
  // Returns whether the text ends with a line break.
  [[nodiscard]] bool EndsLine() const { return !cells_.empty() && IsLineBreak(cells_.back()); }
  // Style returns the SGR parameters (colours) of a token's text; empty for none.
  using Style = std::function<std::string(Position position, TextPart part)>;
  // Returns a line with its escape sequences and without a line break; resets the style at its end.
  [[nodiscard]] std::string Line(size_t line, const Style& style) const;
  // Returns all characters from the given one on, with the line breaks of the text but not those of
  // the layout.
  [[nodiscard]] std::string From(size_t character, const Style& style) const;

 private:
  // Cell is a character of the text, or a place where bytes were no character.
  struct Cell {
    uint32_t begin = 0;  // in bytes_
    uint8_t length = 0;  // in bytes; 0: what stands there is no character
    uint8_t columns = 0;
    TextPart part = TextPart::kAnswer;
    Position position = 0;
  };
  void AddCharacter(std::string_view character, Position position, TextPart part);
  void Place(size_t cell);
  [[nodiscard]] bool IsLineBreak(const Cell& cell) const;
  [[nodiscard]] std::string Render(size_t begin, size_t end, const Style& style) const;

  std::string bytes_;
  std::vector<Cell> cells_;
  std::string half_;  // the beginning of a character
  Position half_position_ = 0;
  TextPart half_part_ = TextPart::kAnswer;
  int width_ = 80;                        // columns
  int column_ = 0;                        // where the next character goes
  std::vector<size_t> line_begin_ = {0};  // cells
};

}  // namespace ebb::cli

#endif  // EBB_APPS_LIVE_TEXT_H_
