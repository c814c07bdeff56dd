// Reads lines from the user: on a terminal with editing, history and pastes of several lines,
// plainly from a pipe or a file.
#ifndef EBB_APPS_TERMINAL_LINE_READER_H_
#define EBB_APPS_TERMINAL_LINE_READER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::cli {

// LineReader reads lines from stdin, with an editor and a history if stdin is a terminal.
class LineReader {
 public:
  // Complete returns the lines that begin with the typed text; Tab shows them, or types the rest.
  using Complete = std::function<std::vector<std::string>(std::string_view typed)>;

  // Reads the history of earlier runs from `history_file` and keeps it there, readable by the user
  // alone; an empty name keeps none. Makes the file's folder. Without a terminal it
  // touches neither.
  LineReader(std::string history_file, Complete complete);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns the next line without its line end. On a terminal, pasted text becomes part of the
  // line, with its line breaks. Returns nothing at the end of input and when a signal interrupts
  // the wait, after which had_typed() says whether a line was begun.
  std::optional<std::string> Next(const std::string& prompt);
  // Adds a text of one or several lines to the history.
  void Remember(const std::string& text);
  // Returns whether stdin is a terminal on which lines are edited.
  [[nodiscard]] bool is_editor() const { return editor_ != nullptr; }
  // Returns whether a line had characters when a signal interrupted Next() the last time.
  [[nodiscard]] bool had_typed() const;

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;  // null: the input is no terminal
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_READER_H_
