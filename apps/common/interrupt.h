// Ctrl-C and the other signals that ask the program to end.
#ifndef EBB_APPS_INTERRUPT_H_
#define EBB_APPS_INTERRUPT_H_

#include <atomic>

namespace ebb::cli {

// Becomes true at the first Ctrl-C (SIGINT), SIGTERM or SIGHUP; the second one ends the process.
// Called again it counts from the start, except after SIGTERM or SIGHUP, which end the program and
// not one answer. A SIGHUP that is ignored, as under nohup, stays so. Also ignores SIGPIPE and
// SIGXFSZ, so that a closed stdout or a file past its limit is an error like any other.
[[nodiscard]] const std::atomic<bool>* InstallInterruptHandler();
// Reads the flag that the last InstallInterruptHandler() returned; false before the first call.
[[nodiscard]] bool Interrupted();
// Whether SIGTERM or SIGHUP came: the program is to end once what can be saved is saved.
[[nodiscard]] bool MustEnd();
// Whether SIGHUP came: the terminal is gone.
[[nodiscard]] bool HungUp();
// Until the next InstallInterruptHandler() a signal ends the program at once with its message and
// exit code: for waiting at a prompt, where a flag set just before the read would not be seen.
void EndOnInterrupt();

// Written to the terminal when a signal ends the process at once: the bytes that restore its modes.
// They outlive the process; null: nothing.
void SetExitBytes(const char* bytes);

}  // namespace ebb::cli

#endif  // EBB_APPS_INTERRUPT_H_
