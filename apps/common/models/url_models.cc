#include "apps/common/models/url_models.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apps/common/models/fetch_progress.h"
#include "apps/common/models/gguf_names.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/net/file_download.h"
#include "apps/common/models/net/file_lock.h"
#include "apps/common/models/net/sha256.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

std::string UrlsFolder() {
  const std::string cache = CacheFolder();
  return cache.empty() ? "" : cache + "/urls";
}

// Returns the folder of a model. A hash in the name is part of the folder's key, since the same URL
// may serve another file later.
std::string FolderOf(const ModelName& name) {
  constexpr size_t kDigits = 16;
  const std::string key = name.sha256.empty() ? name.url : name.url + "#" + name.sha256;
  return fmt::format("{}/{}", UrlsFolder(), Sha256Of(key).substr(0, kDigits));
}

// UrlFile is one part of a model: its URL and its file name.
struct UrlFile {
  std::string url;
  std::string name;
};
std::vector<UrlFile> FilesOf(const ModelName& name) {
  const size_t query = std::min(name.url.find('?'), name.url.size());
  const std::string base = name.url.substr(0, query);
  const auto split = ParseSplitName(base);
  std::vector<UrlFile> files;
  for (int i = 1; split && i <= split->count; ++i) {
    const std::string part = PartName(*split, i);
    files.push_back({part + name.url.substr(query), part.substr(part.rfind('/') + 1)});
  }
  return files;
}

// Returns a description of the file's download that lacks the place of the file.
FileDownload DownloadOf(const UrlFile& file, const ModelName& name) {
  constexpr long kNotFound404 = 404;
  return {.url = file.url,
          .path = {},
          .sha256 = name.sha256,
          .explain = [url = file.url](const HttpAnswer& answer) {
            return answer.status == kNotFound404
                       ? NotFound(fmt::format("{} has no such file: {}", HostOf(url), url))
                       : OkStatus();
          }};
}

Status FetchUrlFile(const UrlFile& file, const ModelName& name, const FetchSettings& settings,
                    HttpClient* client) {
  const std::string path = fmt::format("{}/{}", FolderOf(name), file.name);
  if (settings.http.say) settings.http.say(fmt::format("fetching {}", file.name));
  FetchProgress progress(file.name, settings.quiet);
  FileDownload download = DownloadOf(file, name);
  download.path = path;
  download.on_progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
  const auto hash = DownloadFile(client, download);
  if (!hash.ok()) return hash.status();
  if (name.sha256.empty() && settings.http.say) {
    settings.http.say(
        fmt::format("no hash was given, so that {} is checked by its size alone; its SHA-256 is {}",
                    file.name, *hash));
  }
  return OkStatus();
}

}  // namespace

Result<StoredModel> FindUrlModel(const ModelName& name) {
  const std::string folder = FolderOf(name);
  const std::vector<UrlFile> files = FilesOf(name);
  StoredModel model = {.name = name.text,
                       .path = fmt::format("{}/{}", folder, files.front().name),
                       .num_files = static_cast<int>(files.size())};
  for (const UrlFile& file : files) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(fmt::format("{}/{}", folder, file.name), error);
    if (error) return NotFound(fmt::format("{} is not in {}", name.text, UrlsFolder()));
    model.bytes += bytes;
  }
  return model;
}

Result<StoredModel> PullUrlModel(const ModelName& name, const FetchSettings& settings) {
  if (UrlsFolder().empty()) {
    return NotFound(fmt::format("a model has nowhere to go: {}", kNoCacheFolder));
  }
  const std::string folder = FolderOf(name);
  EBB_ASSIGN_OR_RETURN(const auto lock, FileLock::Take(folder + "/lock", [&] {
                         if (settings.http.say) {
                           settings.http.say(fmt::format(
                               "another process is fetching {}; waiting for its end", name.text));
                         }
                       }));
  std::ofstream(folder + "/url") << name.text << "\n";
  HttpClient client(settings.http);
  for (const UrlFile& file : FilesOf(name)) {
    std::error_code error;
    if (fs::exists(fmt::format("{}/{}", folder, file.name), error)) continue;
    Status status = FetchUrlFile(file, name, settings, &client);
    if (status.ok()) continue;
    // The folder stays only if it holds bytes from which the next attempt can continue.
    const bool has_bytes = std::ranges::any_of(
        fs::directory_iterator(folder, error), [](const fs::directory_entry& entry) {
          return entry.path().string().find(".gguf") != std::string::npos;
        });
    if (!has_bytes) fs::remove_all(folder, error);
    return status;
  }
  return FindUrlModel(name);
}

std::vector<FileDownload> UrlDownloads(const ModelName& name) {
  std::vector<FileDownload> downloads;
  for (const UrlFile& file : FilesOf(name)) {
    downloads.push_back(DownloadOf(file, name));
    downloads.back().path = file.name;
  }
  return downloads;
}

std::vector<StoredModel> StoredUrlModels() {
  std::vector<StoredModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(UrlsFolder(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::ifstream file(entry->path() / "url");
    std::string text;
    std::getline(file, text);
    const Result<ModelName> name = ParseModelName(text);
    if (!name.ok() || name->source != ModelName::Source::kUrl) continue;
    Result<StoredModel> model = FindUrlModel(*name);
    if (model.ok()) models.push_back(*std::move(model));
  }
  std::ranges::sort(models, {}, &StoredModel::name);
  return models;
}

Result<uint64_t> RemoveUrlModel(const ModelName& name) {
  const std::string folder = FolderOf(name);
  std::error_code error;
  if (!fs::exists(folder + "/url", error)) {
    return NotFound(fmt::format("{} is not in {}", name.text, UrlsFolder()));
  }
  EBB_ASSIGN_OR_RETURN(const auto lock, FileLock::TryTake(folder + "/lock"));
  uint64_t freed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (const uintmax_t bytes = entry.file_size(error); !error) freed += bytes;
  }
  fs::remove_all(folder, error);
  if (error) return IoError(fmt::format("{}: {}", folder, error.message()));
  return freed;
}

}  // namespace ebb::cli
