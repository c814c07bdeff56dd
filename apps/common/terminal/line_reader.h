// Lines from the user: with editing, history and pastes of several lines on a terminal, plainly
// from a pipe or a file.
#ifndef EBB_APPS_TERMINAL_LINE_READER_H_
#define EBB_APPS_TERMINAL_LINE_READER_H_

#include <memory>
#include <optional>
#include <string>

namespace ebb::cli {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its line end. What a terminal marks as pasted becomes a part of the line,
  // its line breaks too. Nothing at the end of input, and when a signal interrupted the wait.
  std::optional<std::string> Next(const std::string& prompt);

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;  // null: the input is no terminal
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_READER_H_
