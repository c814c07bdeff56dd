// Finds, fetches, lists and removes models of Hugging Face's hub, in the hub's own cache.
#ifndef EBB_APPS_PULL_HUB_MODELS_H_
#define EBB_APPS_PULL_HUB_MODELS_H_

#include <cstdint>
#include <vector>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/remote_models.h"

namespace ebb::cli {

// Looks for the model in the snapshot of refs/main, without a request. If the name gives no
// quantization and the file of the usual one (Q4_K_M) is missing, returns another file that is
// present. Errors: kNotFound.
[[nodiscard]] Result<StoredModel> FindHubModel(const ModelName& name);
// Returns whether the hub's listing, too, would lead to the file that FindHubModel() found,
// whatever other files it contains. If not, a request must decide.
[[nodiscard]] bool IsHubChoice(const ModelName& name, const StoredModel& found);
[[nodiscard]] Result<StoredModel> PullHubModel(const ModelName& name,
                                               const FetchSettings& settings);
// Returns the downloads of the model's files, whose paths are names without a folder. Errors: see
// ListHubFiles().
[[nodiscard]] Result<std::vector<FileDownload>> HubDownloads(const ModelName& name,
                                                             const FetchSettings& settings,
                                                             HttpClient* client);
[[nodiscard]] std::vector<StoredModel> StoredHubModels();
[[nodiscard]] Result<uint64_t> RemoveHubModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_MODELS_H_
