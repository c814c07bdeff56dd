// From options to a model, an engine and a session.
#ifndef EBB_APPS_SETUP_H_
#define EBB_APPS_SETUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/ebb/options/options.h"
#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Loads -m, or the default model. Errors: those of Model::Load and of FindModelFile().
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenModel(const CliOptions& options);

// With --session, and a file of that name, its session is resumed.
struct Setup {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;         // of the engine; destroyed before it
  std::optional<std::string> resumed = {};  // what was saved with the session
};
[[nodiscard]] Result<Setup> OpenSetup(const CliOptions& options);
// With a model that is loaded already.
[[nodiscard]] Result<Setup> OpenSetup(std::shared_ptr<const Model> model,
                                      const CliOptions& options);

// Becomes true at the first Ctrl-C (SIGINT) or SIGTERM; the second ends the process. Called again,
// it starts anew. Also ignores SIGPIPE, so that a closed stdout is an error like any other.
[[nodiscard]] const std::atomic<bool>* InstallInterruptHandler();
// What the last InstallInterruptHandler() returned shows; false before.
[[nodiscard]] bool Interrupted();
// Until the next InstallInterruptHandler(), Ctrl-C ends the program at once with its message and
// exit code: for waiting at a prompt, where a flag set just before the read would not be seen.
void EndOnInterrupt();

// Written to stdout when a second Ctrl-C ends the process at once: what gives a terminal back. It
// outlives the process; null: nothing.
void SetExitBytes(const char* words);

// The largest resident size of this process so far.
[[nodiscard]] uint64_t PeakResidentBytes();

}  // namespace ebb::cli

#endif  // EBB_APPS_SETUP_H_
