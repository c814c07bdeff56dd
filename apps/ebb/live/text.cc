#include "apps/ebb/live/text.h"

#include <locale.h>
#include <algorithm>
#include <clocale>
#include <cwchar>

#include <fmt/format.h>

#include "apps/common/terminal/terminal_text.h"
#include "src/base/text/utf8.h"

namespace ebb::cli {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";
constexpr int kTabColumns = 4;

// Decodes a UTF-8 character. REQUIRES: it has the length that its first byte announces.
wchar_t CodePoint(std::string_view character) {
  if (character.size() == 1) return static_cast<wchar_t>(character[0]);
  auto code = static_cast<uint32_t>(static_cast<unsigned char>(character[0])) &
              (0xFFu >> (character.size() + 1));
  for (const char byte : character.substr(1)) {
    code = code << 6 | (static_cast<unsigned char>(byte) & 0x3Fu);
  }
  return static_cast<wchar_t>(code);
}

// Returns the columns that a character takes, or -1 if it may not be shown. Uses a UTF-8 locale,
// since only there the C library knows the widths.
int Columns(wchar_t code) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return code < 0x20 || (code >= 0x7F && code < 0xA0) ? -1 : 1;
  const locale_t before = uselocale(utf8);
  const int columns = wcwidth(code);
  uselocale(before);
  return columns;
}

}  // namespace

void LiveText::Append(std::string_view bytes, Position position, TextPart part) {
  for (const char byte : bytes) {
    if (!half_.empty() && !ContinuesUtf8(byte)) EndCharacter();
    if (half_.empty()) {
      half_position_ = position;
      half_part_ = part;
    }
    half_ += byte;
    if (half_.size() >= std::max<size_t>(Utf8Length(half_.front()), 1)) {
      const std::string character = std::move(half_);
      half_.clear();
      AddCharacter(character, half_position_, half_part_);
    }
  }
}

void LiveText::EndCharacter() {
  if (half_.empty()) return;
  half_.clear();
  AddCharacter("", half_position_, half_part_);
}

void LiveText::AddCharacter(std::string_view character, Position position, TextPart part) {
  Cell cell = {.begin = static_cast<uint32_t>(bytes_.size()),
               .columns = 1,
               .part = part,
               .position = position};
  if (character == "\r") return;
  if (character == "\n" || character == "\t") {
    cell.length = 1;
    cell.columns = character == "\t" ? kTabColumns : 0;
  } else if (!character.empty() && Utf8Length(character.front()) == character.size()) {
    const wchar_t code = CodePoint(character);
    const int columns = code == 0 || DrivesTerminal(code) ? -1 : Columns(code);
    if (columns >= 0) {
      cell.length = static_cast<uint8_t>(character.size());
      cell.columns = static_cast<uint8_t>(columns);
    }
  }
  if (cell.length > 0) bytes_ += character;
  cells_.push_back(cell);
  Place(cells_.size() - 1);
}

bool LiveText::IsLineBreak(const Cell& cell) const {
  return cell.length == 1 && bytes_[cell.begin] == '\n';
}

void LiveText::Place(size_t index) {
  const Cell& cell = cells_[index];
  if (IsLineBreak(cell)) {
    line_begin_.push_back(index + 1);
    column_ = 0;
    return;
  }
  if (column_ > 0 && column_ + cell.columns > width_) {
    line_begin_.push_back(index);
    column_ = 0;
  }
  column_ += cell.columns;
}

void LiveText::SetWidth(int columns) {
  if (columns == width_) return;
  width_ = std::max(columns, 1);
  line_begin_ = {0};
  column_ = 0;
  for (size_t i = 0; i < cells_.size(); ++i) Place(i);
}

std::string LiveText::Render(size_t begin, size_t end, const Style& style) const {
  std::string text;
  std::string set;
  Position position = -1;
  TextPart part = TextPart::kAnswer;
  for (size_t i = begin; i < end; ++i) {
    const Cell& cell = cells_[i];
    if (cell.position != position || cell.part != part) {
      position = cell.position;
      part = cell.part;
      std::string wanted = style(position, part);
      if (wanted != set) {
        if (!set.empty()) text += "\033[0m";
        if (!wanted.empty()) text += fmt::format("\033[{}m", wanted);
        set = std::move(wanted);
      }
    }
    const std::string_view bytes(bytes_.data() + cell.begin, cell.length);
    if (bytes.empty()) {
      text += kReplacement;
    } else if (bytes == "\t") {
      text.append(std::min(kTabColumns, width_), ' ');
    } else {
      text += bytes;
    }
  }
  if (!set.empty()) text += "\033[0m";
  return text;
}

std::string LiveText::Line(size_t line, const Style& style) const {
  size_t end = line + 1 < line_begin_.size() ? line_begin_[line + 1] : cells_.size();
  if (end > line_begin_[line] && IsLineBreak(cells_[end - 1])) --end;
  return Render(line_begin_[line], end, style);
}

std::string LiveText::From(size_t character, const Style& style) const {
  return Render(character, cells_.size(), style);
}

}  // namespace ebb::cli
