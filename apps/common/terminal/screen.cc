#include "apps/common/terminal/screen.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/output.h"

namespace ebb::cli {
namespace {

// kEnter switches to the alternate screen and turns the cursor and wrapping off, so that a line
// that is too wide is cut.
constexpr char kEnter[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
constexpr char kLeave[] = "\033[0m\033[H\033[2J\033[?7h\033[?25h\033[?1049l";
// kBeginFrame makes terminals that know it show a frame as a whole; others ignore it.
constexpr std::string_view kBeginFrame = "\033[?2026h\033[H";
constexpr std::string_view kEndFrame = "\033[J\033[?2026l";

std::atomic<bool> came_back{false};

// Writes bytes to stdout. Calls only functions that are safe in a signal handler.
template <size_t N>
void WriteNow(const char (&bytes)[N]) {
  const int error = errno;
  if (write(STDOUT_FILENO, bytes, N - 1) < 0) errno = error;
}

// Handles Ctrl-Z: restores the terminal and stops the process within raise(); re-enters the screen
// when the process continues.
extern "C" void OnStop(int) {
  WriteNow(kLeave);
  raise(SIGSTOP);
  WriteNow(kEnter);
  came_back.store(true, std::memory_order_relaxed);
}

// Restores the terminal, then lets the signal have its usual effect.
extern "C" void OnEnd(int signal) {
  WriteNow(kLeave);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

bool TakesEscapes(int file) {
  const char* term = std::getenv("TERM");
  const bool takes = term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
  return takes && isatty(file) != 0;
}

bool Screen::IsThere() { return TakesEscapes(STDOUT_FILENO); }

Screen::Screen() {
  SetExitBytes(kLeave);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = kSignals[i] == SIGTSTP ? OnStop : OnEnd;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], nullptr, &before_[i]);
    // Signals that are ignored, as under nohup, or have another handler already keep what they
    // have.
    if (before_[i].sa_handler == SIG_DFL) sigaction(kSignals[i], &action, nullptr);
  }
  WriteNow(kEnter);
}

Screen::~Screen() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  WriteNow(kLeave);
  SetExitBytes(nullptr);
}

int TerminalColumns(int file, int otherwise) {
  winsize window = {};
  return ioctl(file, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 ? otherwise : window.ws_col;
}

Screen::Size Screen::size() const {
  winsize window = {};
  Size size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return size;
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

bool Screen::CameBack() { return came_back.exchange(false, std::memory_order_relaxed); }

Status Screen::Draw(const std::vector<std::string>& lines) {
  std::string frame(kBeginFrame);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) frame += "\r\n";
    frame += lines[i];
    frame += "\033[K";
  }
  frame += kEndFrame;
  return WriteToStdout(frame);
}

}  // namespace ebb::cli
