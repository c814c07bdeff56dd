// The folder in which huggingface_hub, llama.cpp and others keep what they fetched, in the layout
// that https://huggingface.co/docs/hub/local-cache describes:
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

// $HF_HOME, else ${XDG_CACHE_HOME:-~/.cache}/huggingface. Empty: no variable says where.
[[nodiscard]] std::string HubHome();
// $HF_HUB_CACHE, else HubHome()/hub. Empty as HubHome().
[[nodiscard]] std::string HubCacheFolder();

// One repository in the cache, whether it is there or not.
class CachedRepo {
 public:
  // repo: ORG/REPO.
  explicit CachedRepo(std::string repo);

  [[nodiscard]] const std::string& repo() const { return repo_; }
  [[nodiscard]] std::string BlobFolder() const { return folder_ + "/blobs"; }
  [[nodiscard]] std::string Blob(const std::string& sha256) const;
  [[nodiscard]] std::string LockPath(const std::string& sha256) const;
  [[nodiscard]] std::string FilePath(const std::string& commit, const std::string& path) const;

  // Empty: refs/main is not there, or is no commit.
  [[nodiscard]] std::string MainCommit() const;
  [[nodiscard]] Status SetMainCommit(const std::string& commit) const;
  [[nodiscard]] std::vector<std::string> Commits() const;
  // The GGUF files of a snapshot whose bytes are there, sorted.
  [[nodiscard]] std::vector<std::string> Files(const std::string& commit) const;
  // Shows a blob in a snapshot; moves it there where the file system has no symbolic links.
  [[nodiscard]] Status Link(const std::string& commit, const std::string& path,
                            const std::string& sha256) const;
  // Removes the files from every snapshot, then blobs that no snapshot shows, and the repository
  // with the last one. Returns the bytes that are free then. Errors: kIo, where another process
  // fetches one of them, or the system refuses.
  [[nodiscard]] Result<uint64_t> Remove(const std::vector<std::string>& paths) const;

 private:
  std::string repo_;
  std::string cache_;
  std::string folder_;
};

// Repositories of models in the cache, sorted.
[[nodiscard]] std::vector<CachedRepo> CachedRepos();

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HUB_CACHE_H_
