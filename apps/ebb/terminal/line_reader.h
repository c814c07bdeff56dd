// Lines from the user: with editing and history on a terminal, plainly from a pipe or a file.
#ifndef EBB_APPS_TERMINAL_LINE_READER_H_
#define EBB_APPS_TERMINAL_LINE_READER_H_

#include <optional>
#include <string>

namespace ebb::cli {

class LineReader {
 public:
  LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Nothing at the end of input, and when a signal interrupted the wait.
  std::optional<std::string> Next(const std::string& prompt);

 private:
  bool terminal_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_READER_H_
