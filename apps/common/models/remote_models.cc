#include "apps/common/models/remote_models.h"

#include <cstdlib>
#include <utility>

#include "apps/common/models/hub_models.h"
#include "apps/common/models/ollama_models.h"
#include "apps/common/models/url_models.h"
#include "apps/common/terminal/say.h"

namespace ebb::cli {

FetchSettings FetchSettingsFor(bool quiet) {
  FetchSettings settings = {.quiet = quiet};
  if (const char* seconds = std::getenv("HF_HUB_DOWNLOAD_TIMEOUT"); seconds != nullptr) {
    if (const int given = std::atoi(seconds); given > 0) settings.http.stall_seconds = given;
  }
  if (!quiet) settings.http.say = [](std::string_view text) { Say("{}\n", text); };
  return settings;
}

Result<StoredModel> FindStoredModel(const ModelName& name) {
  switch (name.source) {
    case ModelName::Source::kHub:
      return FindHubModel(name);
    case ModelName::Source::kOllama:
      return FindOllamaModel(name);
    case ModelName::Source::kUrl:
      return FindUrlModel(name);
  }
  return Internal("unknown source of a model");
}

Result<StoredModel> PullRemoteModel(const ModelName& name, const FetchSettings& settings) {
  switch (name.source) {
    case ModelName::Source::kHub:
      return PullHubModel(name, settings);
    case ModelName::Source::kOllama:
      return PullOllamaModel(name, settings);
    case ModelName::Source::kUrl:
      return PullUrlModel(name, settings);
  }
  return Internal("unknown source of a model");
}

Result<StoredModel> FindOrPullModel(const ModelName& name, const FetchSettings& settings) {
  Result<StoredModel> found = FindStoredModel(name);
  const bool is_settled =
      found.ok() && (name.source != ModelName::Source::kHub || IsHubChoice(name, *found));
  return is_settled ? std::move(found) : PullRemoteModel(name, settings);
}

std::vector<StoredModel> StoredModels() {
  std::vector<StoredModel> models = StoredHubModels();
  for (const auto& others : {StoredOllamaModels(), StoredUrlModels()}) {
    models.insert(models.end(), others.begin(), others.end());
  }
  return models;
}

Result<uint64_t> RemoveStoredModel(const ModelName& name) {
  switch (name.source) {
    case ModelName::Source::kHub:
      return RemoveHubModel(name);
    case ModelName::Source::kOllama:
      return RemoveOllamaModel(name);
    case ModelName::Source::kUrl:
      return RemoveUrlModel(name);
  }
  return Internal("unknown source of a model");
}

}  // namespace ebb::cli
