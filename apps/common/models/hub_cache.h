// Reads and changes the folder in which huggingface_hub, llama.cpp and others keep the files that
// they fetched, in the layout that https://huggingface.co/docs/hub/local-cache describes:
//
//   models--ORG--REPO/blobs/SHA256             the bytes
//   models--ORG--REPO/snapshots/COMMIT/PATH -> ../../blobs/SHA256
//   models--ORG--REPO/refs/main                the commit
//   .locks/models--ORG--REPO/SHA256.lock
#ifndef EBB_APPS_PULL_HUB_CACHE_H_
#define EBB_APPS_PULL_HUB_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// Returns $HF_HOME, or ${XDG_CACHE_HOME:-~/.cache}/huggingface. Empty if none of these variables,
// nor HOME, is set.
[[nodiscard]] std::string HubHome();
// Returns $HF_HUB_CACHE, or HubHome()/hub. Empty if HubHome() is empty too.
[[nodiscard]] std::string HubCacheFolder();

// CachedRepo reads and changes the part of the cache that belongs to one repository, which need not
// exist yet.
class CachedRepo {
 public:
  // Names the repository ORG/REPO; touches no file.
  explicit CachedRepo(std::string repo);

  [[nodiscard]] const std::string& repo() const { return repo_; }
  [[nodiscard]] std::string BlobFolder() const { return folder_ + "/blobs"; }
  [[nodiscard]] std::string Blob(const std::string& sha256) const;
  [[nodiscard]] std::string LockPath(const std::string& sha256) const;
  [[nodiscard]] std::string FilePath(const std::string& commit, const std::string& path) const;

  // Returns the commit in refs/main, or an empty text if that file is missing or holds no commit.
  [[nodiscard]] std::string MainCommit() const;
  [[nodiscard]] Status SetMainCommit(const std::string& commit) const;
  [[nodiscard]] std::vector<std::string> Commits() const;
  // Returns the sorted paths of the snapshot's GGUF files, without links whose blob is missing.
  [[nodiscard]] std::vector<std::string> Files(const std::string& commit) const;
  // Makes `path` in the snapshot a symbolic link to the blob; moves the blob there if the file
  // system has no symbolic links.
  [[nodiscard]] Status Link(const std::string& commit, const std::string& path,
                            const std::string& sha256) const;
  // Removes the files from every snapshot, then the blobs that no snapshot links to any more, and
  // the repository's folder after its last snapshot. Returns the number of bytes freed. Errors: kIo
  // if another process is fetching one of the files, or the system refuses.
  [[nodiscard]] Result<uint64_t> Remove(const std::vector<std::string>& paths) const;

 private:
  std::string repo_;
  std::string cache_;
  std::string folder_;
};

// Returns the repositories of models in the cache, sorted by name.
[[nodiscard]] std::vector<CachedRepo> CachedRepos();

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_CACHE_H_
