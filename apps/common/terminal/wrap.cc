#include "apps/common/terminal/wrap.h"

#include <algorithm>

namespace ebb::cli {

std::string Wrapped(std::string_view text, int indent, int columns) {
  std::string lines;
  int column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const auto length = static_cast<int>(end - begin);
    if (column > indent && column + 1 + length > columns) {
      lines += '\n';
      lines.append(static_cast<size_t>(indent), ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines.append(text.substr(begin, end - begin));
    column += length;
    begin = end + 1;
  }
  return lines;
}

std::string LinesWithin(std::string_view text, int columns) {
  constexpr int kIndent = 2;
  if (columns <= kIndent) return std::string(text);
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.size() > static_cast<size_t>(columns)) {
      // The first line has no indent, and Wrapped() counts one.
      lines += Wrapped(line, kIndent, columns);
    } else {
      lines += line;
    }
    if (end < text.size()) lines += '\n';
    begin = end + 1;
  }
  return lines;
}

}  // namespace ebb::cli
