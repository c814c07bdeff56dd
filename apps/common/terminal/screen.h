// Uses the alternate screen of the terminal on stdout while an object of the class Screen lives.
// The previous content comes back at its end, also when a signal ends the program at once, and
// while Ctrl-Z stops it.
#ifndef EBB_APPS_TERMINAL_SCREEN_H_
#define EBB_APPS_TERMINAL_SCREEN_H_

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// Returns whether the file is a terminal that understands escape sequences: false if TERM is "dumb"
// or unset.
[[nodiscard]] bool TakesEscapes(int file);

// Returns the width of the terminal `file`, or `otherwise` if it is no terminal or has no width.
[[nodiscard]] int TerminalColumns(int file, int otherwise);

// Screen shows lines on the terminal's alternate screen and restores the terminal at its end.
class Screen {
 public:
  // Enters the alternate screen. REQUIRES: IsThere(), and no other Screen exists.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Returns whether stdout is a terminal that can move its cursor.
  [[nodiscard]] static bool IsThere();

  struct Size {
    int columns = 80;
    int rows = 24;
    bool operator==(const Size&) const = default;
  };
  [[nodiscard]] Size size() const;
  // Returns whether Ctrl-Z left the screen, and the process came back to it, since the last call;
  // it must then be redrawn.
  [[nodiscard]] static bool CameBack();
  // Draws the lines from the top and clears the rest of the screen. REQUIRES: no line is wider than
  // the screen.
  [[nodiscard]] Status Draw(const std::vector<std::string>& lines);

 private:
  // kSignals are the signals that the screen handles to restore the terminal: Ctrl-Z, and those
  // that end the program at once. The program itself handles Ctrl-C (interrupt.h).
  static constexpr std::array kSignals = {SIGTSTP, SIGHUP, SIGQUIT, SIGABRT,
                                          SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SCREEN_H_
