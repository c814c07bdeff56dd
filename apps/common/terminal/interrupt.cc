#include "apps/common/terminal/interrupt.h"

#include <csignal>
#include <cstring>

#include <unistd.h>

#include "apps/common/terminal/exit_code.h"

namespace ebb::cli {
namespace {

// Signal handlers write these variables, so they must be lock-free atomics.
std::atomic<bool> interrupted{false};
std::atomic<int> ending_signal{0};  // SIGTERM or SIGHUP
std::atomic<const char*> exit_bytes{nullptr};
std::atomic<const char*> interrupt_text{nullptr};
std::atomic<bool> keeps_on{false};  // see KeepOnInterrupt()
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);

// Writes the bytes of SetExitBytes(). Calls only functions that are safe in a signal handler.
void WriteExitBytes(int file) {
  const char* bytes = exit_bytes.load(std::memory_order_relaxed);
  const bool written = bytes == nullptr || write(file, bytes, strlen(bytes)) >= 0;
  (void)written;  // the process ends either way
}

// Sets the flag at the first signal and ends the process at the second. Calls only functions that
// are safe in a signal handler.
extern "C" void OnInterrupt(int signal) {
  if (signal != SIGINT) ending_signal.store(signal, std::memory_order_relaxed);
  if (!interrupted.exchange(true, std::memory_order_relaxed)) {
    const char* text = interrupt_text.load(std::memory_order_relaxed);
    const bool written =
        text == nullptr || signal != SIGINT || write(STDERR_FILENO, text, strlen(text)) >= 0;
    (void)written;  // the text is only for the user
    return;
  }
  if (signal == SIGINT && keeps_on.load(std::memory_order_relaxed)) return;
  WriteExitBytes(STDOUT_FILENO);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// Ends the process with its message and exit code. Calls only functions that are safe in a signal
// handler.
extern "C" void OnInterruptAtPrompt(int signal) {
  constexpr char kMessage[] = "ebb: interrupted\n";
  const ExitCode code = signal == SIGHUP ? ExitCode::kHungUp : ExitCode::kInterrupted;
  WriteExitBytes(STDERR_FILENO);
  const bool written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) >= 0;
  (void)written;  // the process ends either way
  _exit(static_cast<int>(code));
}

void Arm(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // Without SA_RESTART a signal ends the wait for input.
  sigaction(signal, &action, nullptr);
}

void ArmAll(void (*handler)(int)) {
  Arm(SIGINT, handler);
  Arm(SIGTERM, handler);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) Arm(SIGHUP, handler);
}

}  // namespace

const std::atomic<bool>* InstallInterruptHandler() {
  interrupted.store(MustEnd());
  ArmAll(OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return &interrupted;
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }
bool MustEnd() { return ending_signal.load(std::memory_order_relaxed) != 0; }
bool HungUp() { return ending_signal.load(std::memory_order_relaxed) == SIGHUP; }

void EndOnInterrupt() { ArmAll(OnInterruptAtPrompt); }

void EndOnTermination() {
  interrupted.store(MustEnd());
  ArmAll(OnInterruptAtPrompt);
  Arm(SIGINT, OnInterrupt);
}

void KeepOnInterrupt() { keeps_on.store(true, std::memory_order_relaxed); }

void SetInterruptText(const char* text) { interrupt_text.store(text, std::memory_order_relaxed); }

void SetExitBytes(const char* bytes) { exit_bytes.store(bytes, std::memory_order_relaxed); }

}  // namespace ebb::cli
