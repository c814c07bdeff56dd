// Handles Ctrl-C and the other signals that ask a program to end.
#ifndef EBB_APPS_TERMINAL_INTERRUPT_H_
#define EBB_APPS_TERMINAL_INTERRUPT_H_

#include <atomic>

namespace ebb::cli {

// Installs handlers of Ctrl-C (SIGINT), SIGTERM and SIGHUP and returns a flag that the first such
// signal sets; a second signal ends the process at once, except after KeepOnInterrupt(). Each call
// clears the flag, so that Ctrl-C ends one answer; after SIGTERM or SIGHUP the flag stays set,
// because these end the program. Leaves SIGHUP ignored if it was, as under nohup. Also ignores
// SIGPIPE and SIGXFSZ, so that writing to a closed stdout or beyond the file size limit returns an
// error.
[[nodiscard]] const std::atomic<bool>* InstallInterruptHandler();
// Reads the flag that the last InstallInterruptHandler() returned; false before the first call.
[[nodiscard]] bool Interrupted();
// Returns whether SIGTERM or SIGHUP came: the program should save what it can and exit.
[[nodiscard]] bool MustEnd();
// Returns whether SIGHUP came: the terminal is gone, so writing to it fails.
[[nodiscard]] bool HungUp();
// Makes a signal end the program at once, with its message and exit code, until the next
// InstallInterruptHandler(). Call this before waiting at a prompt: a read would not notice a flag
// that a signal set just before the read began.
void EndOnInterrupt();

// Makes SIGTERM and SIGHUP end the program at once, as EndOnInterrupt() does, and Ctrl-C set the
// flag that Interrupted() reads, which it clears first: for a prompt at which Ctrl-C clears the
// line.
void EndOnTermination();

// Makes every Ctrl-C only set the flag, for a conversation that a second one must not lose. A
// SIGTERM still ends the process if Ctrl-C came before.
void KeepOnInterrupt();
// Sets the text that the first Ctrl-C prints on stderr, for work that stops some time after it;
// null for none. `text` must stay valid until the next call.
void SetInterruptText(const char* text);

// Sets the bytes to write to the terminal when a signal ends the process at once, which restore the
// terminal's modes. `bytes` must stay valid until the process ends; null for none.
void SetExitBytes(const char* bytes);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_INTERRUPT_H_
