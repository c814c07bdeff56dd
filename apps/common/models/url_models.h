// Finds, fetches, lists and removes models that come from a URL. They lie in ~/.cache/ebb/urls, in
// a folder for each URL that is named after the URL's hash and holds the model's files and a file
// `url` with the model's name.
#ifndef EBB_APPS_PULL_URL_MODELS_H_
#define EBB_APPS_PULL_URL_MODELS_H_

#include <cstdint>
#include <vector>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/remote_models.h"

namespace ebb::cli {

[[nodiscard]] Result<StoredModel> FindUrlModel(const ModelName& name);
[[nodiscard]] Result<StoredModel> PullUrlModel(const ModelName& name,
                                               const FetchSettings& settings);
// Returns the downloads of the model's files, whose paths are names without a folder.
[[nodiscard]] std::vector<FileDownload> UrlDownloads(const ModelName& name);
[[nodiscard]] std::vector<StoredModel> StoredUrlModels();
[[nodiscard]] Result<uint64_t> RemoveUrlModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_URL_MODELS_H_
