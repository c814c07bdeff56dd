// The terminal on stdout, its alternate screen in use while this object lives: what stood on it
// before comes back, also when a signal ends the program at once and while Ctrl-Z stops it.
#ifndef EBB_APPS_TERMINAL_SCREEN_H_
#define EBB_APPS_TERMINAL_SCREEN_H_

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// Whether the file is a terminal that takes escape sequences: not with TERM=dumb, nor without TERM.
[[nodiscard]] bool TakesEscapes(int file);

class Screen {
 public:
  // At most one at a time. REQUIRES: IsThere().
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Whether stdout is a terminal that can move its cursor.
  [[nodiscard]] static bool IsThere();

  struct Size {
    int columns = 80;
    int rows = 24;
    bool operator==(const Size&) const = default;
  };
  [[nodiscard]] Size size() const;
  // Whether the screen was left and entered again since the last call.
  [[nodiscard]] static bool CameBack();
  // Lines from the top, none wider than the screen; the rest of the screen is emptied.
  [[nodiscard]] Status Draw(const std::vector<std::string>& lines);

 private:
  // The signals that are handled: Ctrl-Z, and those that end the program at once. Ctrl-C is the
  // program's.
  static constexpr std::array kSignals = {SIGTSTP, SIGHUP, SIGQUIT, SIGABRT,
                                          SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SCREEN_H_
