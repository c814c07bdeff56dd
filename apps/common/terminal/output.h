// Writes generated text to stdout without buffering, and notices when the reader is gone.
#ifndef EBB_APPS_TERMINAL_OUTPUT_H_
#define EBB_APPS_TERMINAL_OUTPUT_H_

#include <string>
#include <string_view>

#include "apps/common/terminal/terminal_text.h"
#include "ebb/generate.h"
#include "ebb/status.h"

namespace ebb::cli {

// Thoughts selects whether the output shows, dims or hides the model's thoughts.
enum class Thoughts { kShow, kDim, kHide };

// Writes all bytes at once. Errors: the stream cannot be written, or its reader is gone.
[[nodiscard]] Status WriteToStdout(std::string_view bytes);
[[nodiscard]] Status WriteToStderr(std::string_view bytes);
// Writes text that may hold names from outside: on a terminal as ShownOnTerminal() escapes it,
// elsewhere unchanged.
[[nodiscard]] Status WriteTextToStdout(std::string_view text);

// Checks, before a long run, that its output file can be written. Leaves an existing file as it is
// and creates none; does not open a pipe or a device, since closing it would signal the end to its
// reader. Returns ok for an empty path, which stands for no file. Errors: IoError.
[[nodiscard]] Status CheckWritable(const std::string& path);

// TextOutput writes an answer to stdout: to a terminal as ShownOnTerminal() escapes it, to a pipe
// or file unchanged.
class TextOutput {
 public:
  // LineEnd selects the outputs on which Finish() ends an unfinished line.
  enum class LineEnd { kOnTerminals, kAlways };
  TextOutput(Thoughts thoughts, LineEnd line_end);
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  // Writes a piece of the answer. Returns false if stdout cannot be written; status() says why.
  // Suits GenerateOptions as a sink.
  bool Write(std::string_view text, TextPart part);
  // Ends dimming and the last line, so that the shell's prompt or the next turn starts on a new
  // line.
  void Finish();
  [[nodiscard]] const Status& status() const { return status_; }
  // Returns whether other output to the same terminal would start in the middle of a line.
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
