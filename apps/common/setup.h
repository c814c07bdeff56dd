// Opens the model, the engine and the session that the options describe.
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

// Loads the model of -m, or the default model. Fetches a model that -m names by hf:, ollama: or
// https: and that is not stored here. Errors: those of Model::Load(), FindModelFile() and
// FindOrPullModel().
[[nodiscard]] Result<std::shared_ptr<const Model>> OpenModel(const CliOptions& options);

// Loads the model of --draft-model, a whole model or a head for `model`, into options->engine; does
// nothing if there is none. Errors: those of OpenModel(); InvalidArgument for options that need
// another draft model.
[[nodiscard]] Status OpenDraftModel(std::shared_ptr<const Model> model, CliOptions* options);

// Returns the options with which OpenModel() loads the model, except that of a model that is not
// stored here only the metadata is fetched; `weights` is then WeightMode::kUnread, for estimates of
// memory. Errors: those of OpenModel() and FindOrFetchHeader().
[[nodiscard]] Result<ModelOptions> FindModelOrHeader(const CliOptions& options);

// Setup holds a model, an engine and a session. The session is resumed from the file of --session
// if that exists.
struct Setup {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;         // of the engine; destroyed before it
  std::optional<std::string> resumed = {};  // what was saved with the session
  std::shared_ptr<const void> file_lock;    // on the file of --session; null: none was taken
};
// Opens the model, an engine and a session as the options say.
[[nodiscard]] Result<Setup> OpenSetup(const CliOptions& options);
// Opens an engine and a session on a model that is loaded already.
[[nodiscard]] Result<Setup> OpenSetup(std::shared_ptr<const Model> model,
                                      const CliOptions& options);

// Returns the largest resident size of this process so far, in bytes.
[[nodiscard]] uint64_t PeakResidentBytes();

}  // namespace ebb::cli

#endif  // EBB_APPS_SETUP_H_
