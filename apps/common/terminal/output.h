// Generated text on its way to stdout: at once, and noticing when its reader is gone.
#ifndef EBB_APPS_TERMINAL_OUTPUT_H_
#define EBB_APPS_TERMINAL_OUTPUT_H_

#include <string>
#include <string_view>

#include "apps/common/options/options.h"
#include "apps/common/terminal/terminal_text.h"
#include "ebb/generate.h"
#include "ebb/status.h"

namespace ebb::cli {

// All of it, at once. Errors: the stream cannot be written, or its reader is gone.
[[nodiscard]] Status WriteToStdout(std::string_view bytes);
[[nodiscard]] Status WriteToStderr(std::string_view bytes);
// Text that may hold names from outside: on a terminal as ShownOnTerminal(), elsewhere as it is.
[[nodiscard]] Status WriteTextToStdout(std::string_view text);

// Before a long run: whether the file that it ends in can be written. A file that is there stays as
// it is, and none is left where there was none; a pipe or a device is not opened, since that would
// end its reader. An empty path: no file is asked for. Errors: IoError.
[[nodiscard]] Status CheckWritable(const std::string& path);

// A terminal gets the text as ShownOnTerminal(), a pipe or a file gets its bytes.
class TextOutput {
 public:
  // When Finish() ends an unfinished line.
  enum class LineEnd { kOnTerminals, kAlways };
  TextOutput(Thoughts thoughts, LineEnd line_end);
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  // False when stdout cannot be written; status() says why. May be given to GenerateOptions.
  bool Write(std::string_view text, TextPart part);
  // Ends dimming, and the line: the shell's prompt, or the next turn, begins one of its own.
  void Finish();
  [[nodiscard]] const Status& status() const { return status_; }
  // Whether what comes on the same terminal now would stand in the middle of a line.
  [[nodiscard]] bool in_line() const { return terminal_ && !at_line_start_; }

 private:
  bool WriteText(std::string_view text);
  bool WriteAll(std::string_view bytes);
  void SetDim(TextPart part);

  Thoughts thoughts_;
  LineEnd line_end_;
  bool terminal_;
  bool dims_;           // thoughts
  TerminalText shown_;  // of a terminal
  bool dimmed_ = false;
  bool trim_ = false;  // blanks between a hidden thought and the answer
  bool at_line_start_ = true;
  Status status_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_OUTPUT_H_
