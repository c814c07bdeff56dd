// Finds, fetches, lists and removes models by their names on Hugging Face's hub, in Ollama's
// registry, or at a URL.
#ifndef EBB_APPS_PULL_REMOTE_MODELS_H_
#define EBB_APPS_PULL_REMOTE_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/models/model_name.h"
#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

// StoredModel describes a model that came from a server and whose files are all on this machine.
struct StoredModel {
  std::string name;    // that ParseModelName() takes
  std::string path;    // of its first file
  uint64_t bytes = 0;  // of its files together
  int num_files = 1;
  std::string note = {};  // why the name does not find it; empty: it does
};

// FetchSettings configure how models are fetched.
struct FetchSettings {
  HttpSettings http = {};
  bool quiet = false;  // nothing on stderr
};
// Takes http.stall_seconds from $HF_HUB_DOWNLOAD_TIMEOUT; messages go to stderr.
[[nodiscard]] FetchSettings FetchSettingsFor(bool quiet);

// Looks for the model on this machine, without a request. Errors: kNotFound.
[[nodiscard]] Result<StoredModel> FindStoredModel(const ModelName& name);
// Asks the hub or the registry for the model's current files and fetches the missing ones. Returns
// the stored model if the server cannot be reached. Errors: see ListHubFiles(), DownloadFile().
[[nodiscard]] Result<StoredModel> PullRemoteModel(const ModelName& name,
                                                  const FetchSettings& settings);
// Returns the stored model without a request if it certainly is the one that the name means, else
// calls PullRemoteModel(). An hf: name without a quantization or a file asks the hub unless the
// stored file is the usual one (Q4_K_M).
[[nodiscard]] Result<StoredModel> FindOrPullModel(const ModelName& name,
                                                  const FetchSettings& settings);

// HeaderModel is a model on a server, or the files on this machine that stand for it.
struct HeaderModel {
  std::string path;          // of its first file
  uint64_t bytes = 0;        // of its files together, weights included
  bool has_weights = false;  // false: the files hold metadata alone, and zeros for weights
};
// kHeaderExtension ends the names of files that hold the metadata of a model alone.
inline constexpr std::string_view kHeaderExtension = ".gguf-header";
// Returns the stored model where FindOrPullModel() would return one without fetching it. Otherwise
// fetches the beginnings of its files, which hold the metadata, into sparse files in
// ~/.cache/ebb/headers; of these, files with a known hash are fetched once. Errors: see
// ListHubFiles(), DownloadHeader().
[[nodiscard]] Result<HeaderModel> FindOrFetchHeader(const ModelName& name,
                                                    const FetchSettings& settings);

// Lists the models in the hub's cache and in ebb's own.
[[nodiscard]] std::vector<StoredModel> StoredModels();
// Removes the model's files, except those that another stored model shares. Returns the number of
// bytes freed. Errors: kNotFound; kInvalidArgument if the name stands for several models.
[[nodiscard]] Result<uint64_t> RemoveStoredModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_REMOTE_MODELS_H_
