// Models of a URL, in ~/.cache/ebb/urls: a folder for each URL, named after its hash, with the
// files and a file `url` that has the name.
#ifndef EBB_APPS_PULL_URL_MODELS_H_
#define EBB_APPS_PULL_URL_MODELS_H_

#include <cstdint>
#include <vector>

#include "apps/common/models/remote_models.h"

namespace ebb::cli {

[[nodiscard]] Result<StoredModel> FindUrlModel(const ModelName& name);
[[nodiscard]] Result<StoredModel> PullUrlModel(const ModelName& name,
                                               const FetchSettings& settings);
[[nodiscard]] std::vector<StoredModel> StoredUrlModels();
[[nodiscard]] Result<uint64_t> RemoveUrlModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_URL_MODELS_H_
