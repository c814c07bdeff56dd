// From options to a model, an engine and a session.
#ifndef EBB_APPS_SETUP_H_
#define EBB_APPS_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/common/options/options.h"
#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Loads -m, or the default model; fetches it where -m names one that lies elsewhere and is not
// here. Errors: those of Model::Load, FindModelFile() and FindOrPullModel().
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenModel(const CliOptions& options);

// With --session, and a file of that name, its session is resumed.
struct Setup {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;         // of the engine; destroyed before it
  std::optional<std::string> resumed = {};  // what was saved with the session
  std::shared_ptr<const void> file_lock;    // on the file of --session; null: none was taken
};
[[nodiscard]] Result<Setup> OpenSetup(const CliOptions& options);
// With a model that is loaded already.
[[nodiscard]] Result<Setup> OpenSetup(std::shared_ptr<const Model> model,
                                      const CliOptions& options);

// The largest resident size of this process so far.
[[nodiscard]] uint64_t PeakResidentBytes();

}  // namespace ebb::cli

#endif  // EBB_APPS_SETUP_H_
