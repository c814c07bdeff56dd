// Text laid out for a terminal, each character with the token that it came from, so that the text
// on the screen can be recoloured. Characters are UTF-8 and may span tokens: such a one belongs to
// the first of them. Bytes that are no character, and characters that would drive the terminal
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

class LiveText {
 public:
  // Bytes of the token at `position`.
  void Append(std::string_view bytes, Position position, TextPart part);
  // Ends a character of which only the beginning has come.
  void EndCharacter();
  // Lays out all lines again when the width changes. REQUIRES: at least one column.
  void SetWidth(int columns);

  [[nodiscard]] size_t num_lines() const { return line_begin_.size(); }
  [[nodiscard]] size_t num_characters() const { return cells_.size(); }
  // Ends with a line break.
  [[nodiscard]] bool EndsLine() const { return !cells_.empty() && IsLineBreak(cells_.back()); }
  // The SGR parameters of a token's text; empty: none.
  using Style = std::function<std::string(Position position, TextPart part)>;
  // A line with its escape sequences, without a line break; ends unstyled.
  [[nodiscard]] std::string Line(size_t line, const Style& style) const;
  // All characters from the given one on, line breaks only where the text has them.
  [[nodiscard]] std::string From(size_t character, const Style& style) const;

 private:
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
