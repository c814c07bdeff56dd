#include "apps/common/models/hub_models.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "apps/common/models/fetch_progress.h"
#include "apps/common/models/gguf_names.h"
#include "apps/common/models/hub_api.h"
#include "apps/common/models/hub_cache.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/net/file_download.h"
#include "apps/common/models/net/file_lock.h"
#include "src/base/text/near_names.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 8;

std::optional<std::string> FileOf(const ModelName& name, const std::vector<std::string>& files) {
  if (name.file.empty()) return ChooseModelFile(files, name.quant);
  const auto found = std::ranges::find(files, name.file);
  return found == files.end() ? std::nullopt : std::optional(*found);
}

// Returns the paths of all parts of a split file in order, or the file alone if it is not split.
std::vector<std::string> PartsOf(const std::string& file) {
  const auto split = ParseSplitName(file);
  if (!split) return {file};
  std::vector<std::string> parts;
  for (int i = 1; i <= split->count; ++i) parts.push_back(PartName(*split, i));
  return parts;
}

// Returns the stored model whose first file is `file` in the snapshot, or nothing if a part is
// missing.
std::optional<StoredModel> StoredIn(const CachedRepo& repo, const std::string& commit,
                                    const std::string& file) {
  StoredModel model = {.name = fmt::format("hf:{}/{}", repo.repo(), file),
                       .path = repo.FilePath(commit, file)};
  const std::vector<std::string> parts = PartsOf(file);
  model.num_files = static_cast<int>(parts.size());
  for (const std::string& part : parts) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(repo.FilePath(commit, part), error);
    if (error) return std::nullopt;
    model.bytes += bytes;
  }
  return model;
}

// Returns an error that names what the repository has instead: its quantizations or files of near
// names.
Status NoSuchFile(const ModelName& name, const std::vector<std::string>& paths) {
  std::vector<std::string> models;
  std::ranges::copy_if(paths, std::back_inserter(models), IsModelFile);
  if (models.empty()) {
    return NotFound(
        fmt::format("hf:{} has no GGUF file; a repository whose name ends with -GGUF "
                    "may have one",
                    name.repo));
  }
  const std::vector<std::string> quants = QuantTags(models);
  if (!name.quant.empty() && !quants.empty()) {
    return NotFound(fmt::format("hf:{} has no file of the quantization {}; it has {}", name.repo,
                                name.quant, fmt::join(quants, ", ")));
  }
  const std::string wanted = name.file.empty() ? name.quant : name.file;
  return NotFound(fmt::format("hf:{} has no file {}; near names: {}", name.repo, wanted,
                              fmt::join(NearNames(wanted, models, kMostNames), ", ")));
}

// Chooses the file that the name means and returns its parts as the hub lists them. Errors:
// NotFound; InvalidArgument; Unsupported if the hub has no hash to check a part by.
Result<std::vector<HubFile>> ListedParts(const ModelName& name, const HubListing& listing) {
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files) paths.push_back(file.path);
  const std::optional<std::string> chosen = FileOf(name, paths);
  if (!chosen) return NoSuchFile(name, paths);
  if (const auto split = ParseSplitName(*chosen); !split || split->index != 1) {
    return InvalidArgument(fmt::format("{} is no first part of a model", *chosen));
  }
  std::vector<HubFile> parts;
  for (const std::string& path : PartsOf(*chosen)) {
    const auto found = std::ranges::find(listing.files, path, &HubFile::path);
    if (found == listing.files.end()) {
      return NotFound(fmt::format("hf:{} lists no {}, a part of the model", name.repo, path));
    }
    if (found->sha256.empty() || found->bytes == 0) {
      return Unsupported(fmt::format("hf:{}/{}: the hub has no SHA-256 of the file to check it by",
                                     name.repo, path));
    }
    parts.push_back(*found);
  }
  return parts;
}

// HubParts are the files of a model at a commit.
struct HubParts {
  std::string commit;
  std::vector<HubFile> files;
};

// Asks the hub for the files that the name means.
Result<HubParts, HttpFailure> ListParts(const ModelName& name, const FetchSettings& settings,
                                        HttpClient* client) {
  const Result<HubListing, HttpFailure> listing = ListHubFiles(client, name.repo);
  if (!listing.ok()) return listing.error();
  if (listing->num_refused > 0 && settings.http.say) {
    settings.http.say(fmt::format("hf:{} lists {} file names that leave its folder; ignored",
                                  name.repo, listing->num_refused));
  }
  Result<std::vector<HubFile>> files = ListedParts(name, *listing);
  if (!files.ok()) return HttpFailure{HttpFailure::Kind::kFinal, files.status()};
  return HubParts{.commit = listing->commit, .files = *std::move(files)};
}

// Returns a description of the file's download that lacks the place of the file.
FileDownload DownloadOf(const std::string& repo, const std::string& commit, const HubFile& file) {
  return {.url = HubFileUrl(repo, commit, file.path),
          .token = HubToken(),
          .path = {},
          .sha256 = file.sha256,
          .bytes = file.bytes,
          .explain = [repo](const HttpAnswer& answer) { return ExplainHubAnswer(answer, repo); }};
}

bool HasBlob(const CachedRepo& repo, const HubFile& file) {
  std::error_code error;
  return fs::file_size(repo.Blob(file.sha256), error) == file.bytes && !error;
}

// Returns whether the snapshot holds the file itself instead of a symbolic link, as on file systems
// without links.
bool IsCopied(const CachedRepo& repo, const std::string& commit, const HubFile& file) {
  const fs::path place = repo.FilePath(commit, file.path);
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(place, error)) &&
         fs::file_size(place, error) == file.bytes;
}

// Fetches a file unless its blob is stored, and links it into the snapshot.
Status FetchHubFile(const CachedRepo& repo, const std::string& commit, const HubFile& file,
                    const FetchSettings& settings, HttpClient* client) {
  const std::string name = fs::path(file.path).filename().string();
  if (IsCopied(repo, commit, file)) return OkStatus();
  if (!HasBlob(repo, file)) {
    EBB_ASSIGN_OR_RETURN(const auto lock, FileLock::Take(repo.LockPath(file.sha256), [&] {
                           if (settings.http.say) {
                             settings.http.say(fmt::format(
                                 "another process is fetching {}; waiting for its end", name));
                           }
                         }));
    if (!HasBlob(repo, file)) {
      std::error_code error;
      fs::create_directories(repo.BlobFolder(), error);
      if (error) {
        return IoError(fmt::format("cannot make {}: {}", repo.BlobFolder(), error.message()));
      }
      constexpr uint64_t kMegabyte = 1000000;
      if (settings.http.say) {
        settings.http.say(fmt::format("fetching {} ({} MB)", name, file.bytes / kMegabyte));
      }
      FetchProgress progress(name, settings.quiet);
      FileDownload download = DownloadOf(repo.repo(), commit, file);
      download.path = repo.Blob(file.sha256);
      download.on_progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
      const auto hash = DownloadFile(client, download);
      if (!hash.ok()) return hash.status();
    }
  }
  return repo.Link(commit, file.path, file.sha256);
}

// Returns the shortest name by which FindHubModel() finds `file` among `files` of the snapshot.
std::string NameOf(const CachedRepo& repo, const std::string& file,
                   const std::vector<std::string>& files) {
  const std::string tag = QuantTag(file);
  if (!tag.empty() && ChooseModelFile(files, tag) == file) {
    return fmt::format("hf:{}:{}", repo.repo(), tag);
  }
  return fmt::format("hf:{}/{}", repo.repo(), file);
}

}  // namespace

Result<StoredModel> FindHubModel(const ModelName& name) {
  const CachedRepo repo(name.repo);
  if (HubCacheFolder().empty()) return NotFound(std::string(kNoCacheFolder));
  const std::string commit = repo.MainCommit();
  const std::optional<std::string> file =
      commit.empty() ? std::nullopt : FileOf(name, repo.Files(commit));
  std::optional<StoredModel> model = file ? StoredIn(repo, commit, *file) : std::nullopt;
  if (!model) return NotFound(fmt::format("{} is not in {}", name.text, HubCacheFolder()));
  return *std::move(model);
}

bool IsHubChoice(const ModelName& name, const StoredModel& found) {
  if (!name.file.empty()) return true;
  const std::string_view in_repo = std::string_view(found.name).substr(name.repo.size() + 4);
  return IsFirstChoice(in_repo, name.quant);
}

Result<StoredModel> PullHubModel(const ModelName& name, const FetchSettings& settings) {
  const Result<StoredModel> stored = FindHubModel(name);
  if (HubIsOffline()) {
    if (stored.ok()) return stored;
    return NotFound(
        fmt::format("{}, and HF_HUB_OFFLINE forbids to fetch it", stored.status().message()));
  }
  if (HubCacheFolder().empty()) {
    return NotFound(fmt::format("a model has nowhere to go: {}", kNoCacheFolder));
  }
  HttpClient client(settings.http);
  const Result<HubParts, HttpFailure> parts = ListParts(name, settings, &client);
  if (!parts.ok()) {
    const HttpFailure& failure = parts.error();
    if (failure.kind == HttpFailure::Kind::kFinal || !stored.ok()) return failure.status;
    if (settings.http.say) {
      settings.http.say(fmt::format("{}; using the file that is there", failure.status.message()));
    }
    return stored;
  }
  const CachedRepo repo(name.repo);
  for (const HubFile& part : parts->files) {
    EBB_RETURN_IF_ERROR(FetchHubFile(repo, parts->commit, part, settings, &client));
  }
  // Only now that all files are stored, refs/main moves to their commit, since other programs look
  // for files there.
  EBB_RETURN_IF_ERROR(repo.SetMainCommit(parts->commit));
  std::optional<StoredModel> model = StoredIn(repo, parts->commit, parts->files.front().path);
  if (!model) return NotFound(fmt::format("{} was removed meanwhile", name.text));
  return *std::move(model);
}

Result<std::vector<FileDownload>> HubDownloads(const ModelName& name, const FetchSettings& settings,
                                               HttpClient* client) {
  if (HubIsOffline()) {
    return NotFound(fmt::format("{} is not in {}, and HF_HUB_OFFLINE forbids to ask the hub",
                                name.text, HubCacheFolder()));
  }
  const Result<HubParts, HttpFailure> parts = ListParts(name, settings, client);
  if (!parts.ok()) return parts.error().status;
  std::vector<FileDownload> downloads;
  for (const HubFile& file : parts->files) {
    downloads.push_back(DownloadOf(name.repo, parts->commit, file));
    downloads.back().path = fs::path(file.path).filename().string();
  }
  return downloads;
}

std::vector<StoredModel> StoredHubModels() {
  std::vector<StoredModel> models;
  for (const CachedRepo& repo : CachedRepos()) {
    std::set<std::string> seen;  // bytes, by their real path
    const std::string main = repo.MainCommit();
    std::vector<std::string> commits = repo.Commits();
    std::stable_partition(commits.begin(), commits.end(),
                          [&](const std::string& c) { return c == main; });
    for (const std::string& commit : commits) {
      const std::vector<std::string> files = repo.Files(commit);
      for (const std::string& file : files) {
        if (!IsModelFile(file)) continue;
        std::optional<StoredModel> model = StoredIn(repo, commit, file);
        std::error_code error;
        if (!model || !seen.insert(fs::canonical(model->path, error).string()).second) continue;
        if (commit == main) {
          model->name = NameOf(repo, file, files);
        } else {
          model->note = fmt::format("an earlier revision, {}", commit.substr(0, 8));
        }
        models.push_back(*std::move(model));
      }
    }
  }
  return models;
}

Result<uint64_t> RemoveHubModel(const ModelName& name) {
  const CachedRepo repo(name.repo);
  std::set<std::string> wanted;
  std::set<std::string> all;
  for (const std::string& commit : repo.Commits()) {
    std::vector<std::string> models = repo.Files(commit);
    std::erase_if(models, [](const std::string& file) { return !IsModelFile(file); });
    all.insert(models.begin(), models.end());
    const bool takes_any = name.file.empty() && name.quant.empty();
    if (takes_any) continue;
    if (auto file = FileOf(name, models)) wanted.insert(*std::move(file));
  }
  if (name.file.empty() && name.quant.empty()) wanted = all;
  if (wanted.empty()) return NotFound(fmt::format("{} is not in {}", name.text, HubCacheFolder()));
  if (wanted.size() > 1) {
    return InvalidArgument(fmt::format("{} stands for several models; name one of hf:{}/{}",
                                       name.text, name.repo,
                                       fmt::join(wanted, fmt::format(", hf:{}/", name.repo))));
  }
  return repo.Remove(PartsOf(*wanted.begin()));
}

}  // namespace ebb::cli
