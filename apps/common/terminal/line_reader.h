// Reads lines from the user: on a terminal with editing, history and pastes of several lines,
// plainly from a pipe or a file.
#ifndef EBB_APPS_TERMINAL_LINE_READER_H_
#define EBB_APPS_TERMINAL_LINE_READER_H_

#include <memory>
#include <optional>
#include <string>

namespace ebb::cli {

// LineReader reads lines from stdin, with an editor and a history if stdin is a terminal.
class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns the next line without its line end. On a terminal, pasted text becomes part of the
  // line, with its line breaks. Returns nothing at the end of input and when a signal interrupts
  // the wait.
  std::optional<std::string> Next(const std::string& prompt);

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;  // null: the input is no terminal
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_READER_H_
