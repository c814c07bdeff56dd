// Escapes text from outside (of a model, of file names) for a terminal, so that the terminal shows
// it and does not obey it: control characters and bidirectional overrides could retitle its window,
// erase text, answer in the user's place or reorder words.
#ifndef EBB_APPS_TERMINAL_TERMINAL_TEXT_H_
#define EBB_APPS_TERMINAL_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace ebb::cli {

// Returns whether a terminal would act on the character instead of showing it: C0 except newline
// and tab, DEL, C1, and the bidirectional overrides U+202A to U+202E and U+2066 to U+2069.
[[nodiscard]] bool DrivesTerminal(char32_t character);

// TerminalText escapes UTF-8 for a terminal; the text arrives in pieces that may end within a
// character.
class TerminalText {
 public:
  // Returns the text to write for the next bytes: C0 and DEL as ^[ and ^?, other characters that
  // drive a terminal as <U+009B>, bytes that are no character as U+FFFD, the rest as it is. A
  // carriage return before a newline belongs to the line end and is left out.
  [[nodiscard]] std::string Show(std::string_view bytes);
  // Returns the text to write for an unfinished character at the end of the bytes.
  [[nodiscard]] std::string End();

 private:
  std::string pending_;  // the begin of a character, or a carriage return
};

[[nodiscard]] std::string ShownOnTerminal(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_TERMINAL_TEXT_H_
