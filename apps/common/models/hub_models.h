// Models of Hugging Face's hub, in its own cache.
#ifndef EBB_APPS_PULL_HUB_MODELS_H_
#define EBB_APPS_PULL_HUB_MODELS_H_

#include <cstdint>
#include <vector>

#include "apps/common/models/remote_models.h"

namespace ebb::cli {

// In the snapshot of refs/main. Without a quantization in the name, and where the usual one is not
// there, another that is.
[[nodiscard]] Result<StoredModel> FindHubModel(const ModelName& name);
// Whether the hub would choose the file that FindHubModel() found, whatever else it has.
[[nodiscard]] bool IsHubChoice(const ModelName& name, const StoredModel& found);
[[nodiscard]] Result<StoredModel> PullHubModel(const ModelName& name,
                                               const FetchSettings& settings);
[[nodiscard]] std::vector<StoredModel> StoredHubModels();
[[nodiscard]] Result<uint64_t> RemoveHubModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_MODELS_H_
