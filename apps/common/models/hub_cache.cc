#include "apps/common/models/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/models/net/file_lock.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "models--";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status FileError(const fs::path& path, const std::error_code& error) {
  return IoError(fmt::format("{}: {}", path.string(), error.message()));
}

bool IsCommitName(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// Removes the folder and its parents below `top`, as far as they are empty.
void RemoveEmptyFolders(fs::path folder, const fs::path& top) {
  std::error_code error;
  while (folder != top && fs::is_empty(folder, error) && !error && fs::remove(folder, error)) {
    folder = folder.parent_path();
  }
}

// Returns the names of the blobs to which symbolic links of the snapshots lead.
std::set<std::string> BlobsInUse(const fs::path& snapshots) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(snapshots, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_symlink(error)) {
      names.insert(fs::read_symlink(entry->path(), error).filename().string());
    }
  }
  return names;
}

}  // namespace

std::string HubHome() {
  if (std::string home = Environment("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = Environment("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return cache + "/huggingface";
  }
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface";
}

std::string HubCacheFolder() {
  if (std::string cache = Environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  const std::string home = HubHome();
  return home.empty() ? "" : home + "/hub";
}

CachedRepo::CachedRepo(std::string repo) : repo_(std::move(repo)), cache_(HubCacheFolder()) {
  std::string name = repo_;
  if (const size_t slash = name.find('/'); slash != std::string::npos) {
    name.replace(slash, 1, "--");
  }
  folder_ = fmt::format("{}/{}{}", cache_, kFolderPrefix, name);
}

std::string CachedRepo::Blob(const std::string& sha256) const {
  return fmt::format("{}/{}", BlobFolder(), sha256);
}

std::string CachedRepo::LockPath(const std::string& sha256) const {
  return fmt::format("{}/.locks/{}/{}.lock", cache_, fs::path(folder_).filename().string(), sha256);
}

std::string CachedRepo::FilePath(const std::string& commit, const std::string& path) const {
  return fmt::format("{}/snapshots/{}/{}", folder_, commit, path);
}

std::string CachedRepo::MainCommit() const {
  std::ifstream file(folder_ + "/refs/main");
  std::string commit;
  std::getline(file, commit);
  return IsCommitName(commit) ? commit : "";
}

Status CachedRepo::SetMainCommit(const std::string& commit) const {
  if (MainCommit() == commit) return OkStatus();
  const std::string path = folder_ + "/refs/main";
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::error_code error;
  fs::create_directories(folder_ + "/refs", error);
  if (error) return FileError(path, error);
  std::ofstream file(draft);
  file << commit;
  file.close();
  if (!file) return IoError(fmt::format("cannot write {}", draft));
  fs::rename(draft, path, error);
  return error ? FileError(path, error) : OkStatus();
}

std::vector<std::string> CachedRepo::Commits() const {
  std::vector<std::string> commits;
  std::error_code error;
  for (fs::directory_iterator entry(folder_ + "/snapshots", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsCommitName(name)) commits.push_back(name);
  }
  std::ranges::sort(commits);
  return commits;
}

std::vector<std::string> CachedRepo::Files(const std::string& commit) const {
  std::vector<std::string> files;
  const fs::path top = fmt::format("{}/snapshots/{}", folder_, commit);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(top, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code of_file;
    // Follows the link.
    if (entry->path().extension() == ".gguf" && fs::is_regular_file(entry->path(), of_file)) {
      files.push_back(entry->path().lexically_relative(top).string());
    }
  }
  std::ranges::sort(files);
  return files;
}

Status CachedRepo::Link(const std::string& commit, const std::string& path,
                        const std::string& sha256) const {
  const fs::path place = FilePath(commit, path);
  std::error_code error;
  fs::create_directories(place.parent_path(), error);
  if (error) return FileError(place, error);
  const fs::path target = fs::path(Blob(sha256)).lexically_relative(place.parent_path());
  if (fs::is_symlink(place, error) && fs::read_symlink(place, error) == target) return OkStatus();
  const fs::path draft = fmt::format("{}.{}", place.string(), getpid());
  fs::remove(draft, error);
  fs::create_symlink(target, draft, error);
  if (error) {
    fs::rename(Blob(sha256), place, error);
    return error ? FileError(place, error) : OkStatus();
  }
  fs::rename(draft, place, error);
  return error ? FileError(place, error) : OkStatus();
}

Result<uint64_t> CachedRepo::Remove(const std::vector<std::string>& paths) const {
  const fs::path snapshots = folder_ + "/snapshots";
  std::vector<fs::path> places;
  std::set<std::string> blobs;
  std::error_code error;
  for (const std::string& commit : Commits()) {
    for (const std::string& path : paths) {
      const fs::path place = FilePath(commit, path);
      const fs::file_status status = fs::symlink_status(place, error);
      if (!fs::exists(status)) continue;
      places.push_back(place);
      if (fs::is_symlink(status)) {
        blobs.insert(fs::read_symlink(place, error).filename().string());
      }
    }
  }
  std::vector<std::unique_ptr<FileLock>> locks;
  for (const std::string& blob : blobs) {
    EBB_ASSIGN_OR_RETURN(auto lock, FileLock::TryTake(LockPath(blob)));
    locks.push_back(std::move(lock));
  }
  uint64_t freed = 0;
  const auto remove = [&](const fs::path& path) {
    const uintmax_t bytes = fs::is_symlink(path, error) ? 0 : fs::file_size(path, error);
    if (error) return OkStatus();  // not there
    fs::remove(path, error);
    if (error) return FileError(path, error);
    freed += bytes;
    return OkStatus();
  };
  for (const fs::path& place : places) {
    EBB_RETURN_IF_ERROR(remove(place));
    RemoveEmptyFolders(place.parent_path(), snapshots);
  }
  const std::set<std::string> in_use = BlobsInUse(snapshots);
  for (const std::string& blob : blobs) {
    if (in_use.contains(blob)) continue;
    EBB_RETURN_IF_ERROR(remove(Blob(blob)));
    EBB_RETURN_IF_ERROR(remove(Blob(blob) + ".incomplete"));
    EBB_RETURN_IF_ERROR(remove(Blob(blob) + ".incomplete.etag"));
    fs::remove(LockPath(blob), error);
  }
  // If another program is fetching blobs of this repository, they stay, and the repository's folder
  // with them.
  const bool is_empty = fs::is_empty(snapshots, error) || error;
  const bool has_blobs = fs::exists(BlobFolder(), error) && !fs::is_empty(BlobFolder(), error);
  if (is_empty && !has_blobs) {
    fs::remove_all(folder_, error);
    fs::remove(fs::path(LockPath("")).parent_path(), error);
  }
  return freed;
}

std::vector<CachedRepo> CachedRepos() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(HubCacheFolder(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    name.erase(0, kFolderPrefix.size());
    const size_t dashes = name.find("--");
    if (dashes == std::string::npos) continue;
    names.push_back(name.replace(dashes, 2, "/"));
  }
  std::ranges::sort(names);
  std::vector<CachedRepo> repos;
  for (std::string& name : names) repos.emplace_back(std::move(name));
  return repos;
}

}  // namespace ebb::cli
