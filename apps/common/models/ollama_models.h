// Finds, fetches, lists and removes models of Ollama's registry, which lie in ~/.cache/ebb/ollama
// in Ollama's own layout:
//
//   blobs/sha256-HEX                      the bytes, a GGUF file
//   manifests/HOST/NAMESPACE/NAME/TAG     the registry's manifest
//
// A model that Ollama itself has fetched ($OLLAMA_MODELS, or ~/.ollama/models) is found there.
#ifndef EBB_APPS_PULL_OLLAMA_MODELS_H_
#define EBB_APPS_PULL_OLLAMA_MODELS_H_

#include <cstdint>
#include <vector>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/remote_models.h"

namespace ebb::cli {

[[nodiscard]] Result<StoredModel> FindOllamaModel(const ModelName& name);
[[nodiscard]] Result<StoredModel> PullOllamaModel(const ModelName& name,
                                                  const FetchSettings& settings);
// Returns the download of the model's file, whose path is a name without a folder. Errors: those of
// PullOllamaModel().
[[nodiscard]] Result<std::vector<FileDownload>> OllamaDownloads(const ModelName& name,
                                                                HttpClient* client);
// Lists the models in ebb's own folder.
[[nodiscard]] std::vector<StoredModel> StoredOllamaModels();
[[nodiscard]] Result<uint64_t> RemoveOllamaModel(const ModelName& name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_OLLAMA_MODELS_H_
