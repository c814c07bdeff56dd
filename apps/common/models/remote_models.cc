#include "apps/common/models/remote_models.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "apps/common/models/header_download.h"
#include "apps/common/models/hub_models.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/net/sha256.h"
#include "apps/common/models/ollama_models.h"
#include "apps/common/models/url_models.h"
#include "apps/common/terminal/say.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// Returns whether the stored model certainly is the one that the name means.
bool IsSettled(const ModelName& name, const Result<StoredModel>& found) {
  return found.ok() && (name.source != ModelName::Source::kHub || IsHubChoice(name, *found));
}

Result<std::vector<FileDownload>> DownloadsOf(const ModelName& name, const FetchSettings& settings,
                                              HttpClient* client) {
  switch (name.source) {
    case ModelName::Source::kHub:
      return HubDownloads(name, settings, client);
    case ModelName::Source::kOllama:
      return OllamaDownloads(name, client);
    case ModelName::Source::kUrl:
      return UrlDownloads(name);
  }
  return Internal("unknown source of a model");
}

// Fetches the beginnings of the model's files, except those that are there already.
Result<HeaderModel> FetchHeader(const ModelName& name, const FetchSettings& settings) {
  if (CacheFolder().empty()) {
    return NotFound(fmt::format("a model's header has nowhere to go: {}", kNoCacheFolder));
  }
  HttpClient client(settings.http);
  EBB_ASSIGN_OR_RETURN(std::vector<FileDownload> files, DownloadsOf(name, settings, &client));
  // Names the folder by the hashes too, so that the files of another revision have another folder.
  std::string key = name.text;
  for (const FileDownload& file : files) key += "\n" + file.sha256;
  constexpr size_t kDigits = 16;
  const std::string folder =
      fmt::format("{}/headers/{}", CacheFolder(), Sha256Of(key).substr(0, kDigits));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError(fmt::format("cannot make {}: {}", folder, error.message()));
  HeaderModel model;
  for (FileDownload& file : files) {
    const std::string file_name = file.path;
    file.path =
        fmt::format("{}/{}{}", folder, fs::path(file_name).stem().string(), kHeaderExtension);
    if (file.sha256.empty() || fs::file_size(file.path, error) != file.bytes || error) {
      EBB_ASSIGN_OR_RETURN(const uint64_t bytes, DownloadHeader(&client, file));
      if (settings.http.say) {
        settings.http.say(fmt::format("fetched the header of {} ({:.1f} MB)", file_name,
                                      static_cast<double>(bytes) / 1e6));
      }
    }
    if (model.path.empty()) model.path = file.path;
    model.bytes += fs::file_size(file.path, error);
  }
  return model;
}

}  // namespace

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
  return IsSettled(name, found) ? std::move(found) : PullRemoteModel(name, settings);
}

Result<HeaderModel> FindOrFetchHeader(const ModelName& name, const FetchSettings& settings) {
  const Result<StoredModel> found = FindStoredModel(name);
  const auto stored = [&] {
    return HeaderModel{.path = found->path, .bytes = found->bytes, .has_weights = true};
  };
  if (IsSettled(name, found)) return stored();
  Result<HeaderModel> header = FetchHeader(name, settings);
  if (!found.ok() || header.status().code() != StatusCode::kIo) return header;
  if (settings.http.say) {
    settings.http.say(fmt::format("{}; using the file that is there", header.status().message()));
  }
  return stored();
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
