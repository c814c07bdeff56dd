// Invariants:
// 1. Only a process that has locked ID.lock, and finds its own epoch in that file, writes or
//    removes files of the session.
// 2. ID.manifest is only replaced, by a rename, after its data file is complete and synced.
#include "src/store/file_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "src/base/files/locked_file.h"
#include "src/base/threads/mutex.h"
#include "src/store/chunks.h"
#include "src/store/names.h"
#include "src/store/percent_encoding.h"

namespace ebb::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLock = ".lock";
constexpr std::string_view kManifest = ".manifest";
constexpr std::string_view kData = ".data";
constexpr std::string_view kPart = ".part";
constexpr std::string_view kTenant = "t-";

Result<std::string> ReadWhole(const std::string& path) {
  std::string bytes;
  EBB_RETURN_IF_ERROR(ReadChunks(path, [&](std::string_view chunk) {
                        bytes += chunk;
                        return OkStatus();
                      }).status());
  return bytes;
}

Status SyncFolder(const std::string& folder) {
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return FileError("open", folder, errno);
  // fsync() fails with EINVAL if the file system cannot sync folders.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return FileError("sync", folder, errno);
  return OkStatus();
}

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return OkStatus();
  fs::create_directories(folder, error);
  if (error) return FileError("make the folder", folder, error.value());
  if (chmod(folder.c_str(), 0700) != 0) return FileError("make the folder", folder, errno);
  const std::string parent = fs::path(folder).parent_path().string();
  return SyncFolder(parent.empty() ? "." : parent);
}

uint64_t EpochIn(int fd) {
  char text[24] = {};
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  uint64_t epoch = 0;
  if (size > 0) std::from_chars(text, text + size, epoch);
  return epoch;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

double AgeOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return 0;
  return std::difftime(std::time(nullptr), info.st_mtime);
}

// Leftover removes a file when it is destroyed, unless Stay() was called.
class Leftover {
 public:
  explicit Leftover(std::string path) : path_(std::move(path)) {}
  ~Leftover() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  void Stay() { path_.clear(); }

 private:
  std::string path_;
};

class FileStore final : public SessionStore {
 public:
  FileStore(std::string folder, const StoreLimits& limits)
      : folder_(std::move(folder)), limits_(limits) {}

  Result<std::optional<Lease>> Acquire(const SessionName& name) override {
    EBB_RETURN_IF_ERROR(CheckName(name));
    EBB_RETURN_IF_ERROR(MakeFolder(FolderOf(name.tenant)));
    const std::string path = PathOf(name, kLock);
    LockedFile locked = LockFile(path);
    if (locked.is_held) return std::optional<Lease>();
    if (locked.error != 0) return FileError(locked.failed, path, locked.error);
    const int fd = locked.file.get();
    const std::string epoch = std::to_string(EpochIn(fd) + 1);
    if (pwrite(fd, epoch.data(), epoch.size(), 0) < 0 || fsync(fd) != 0) {
      return FileError("write", path, errno);
    }
    const MutexLock lock(mutex_);
    held_.insert_or_assign(name, HeldLock{std::move(locked.file), epoch});
    return std::optional(Lease{name, epoch});
  }

  Result<Held> Renew(const Lease& lease) override {
    const MutexLock lock(mutex_);
    return IsHeld(lease) ? Held::kYes : Held::kNo;
  }

  Status Release(const Lease& lease) override {
    const MutexLock lock(mutex_);
    const auto found = held_.find(lease.name);
    if (found != held_.end() && found->second.epoch == lease.epoch) held_.erase(found);
    return OkStatus();
  }

  Result<std::optional<StoredSession>> Describe(const SessionName& name) override {
    EBB_RETURN_IF_ERROR(CheckName(name));
    Result<StoredSession> stored = Read(name);
    if (stored.status().code() == StatusCode::kNotFound) return std::optional<StoredSession>();
    if (!stored.ok()) return stored.status();
    if (stored->manifest.expires_ms <= NowMs()) return std::optional<StoredSession>();
    return std::optional(*std::move(stored));
  }

  Status Get(const Manifest& manifest, const std::string& path) override {
    const std::string data = DataPath({manifest.tenant, manifest.id}, manifest.generation);
    const FileDescriptor file(open(data.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) {
      if (errno == ENOENT) return Corrupt("the rows of the session are missing");
      return FileError("open", data, errno);
    }
    std::string buffer(kChunkBytes, '\0');
    return WriteChunks(
        {manifest.bytes, manifest.chunk_hashes}, path, [&](size_t) -> Result<std::string> {
          buffer.resize(kChunkBytes);
          size_t size = 0;
          while (size < buffer.size()) {
            const ssize_t count = read(file.get(), buffer.data() + size, buffer.size() - size);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return FileError("read", data, errno);
            if (count == 0) break;
            size += static_cast<size_t>(count);
          }
          buffer.resize(size);
          return buffer;
        });
  }

  Result<Held> Put(const Lease& lease, const std::string& path, std::string_view record,
                   Manifest* manifest) override {
    if (!Holds(lease)) return Held::kNo;
    const SessionName& name = lease.name;
    const std::string generation = NewGeneration(lease);
    const std::string data = DataPath(name, generation);
    Leftover leftover(data);
    EBB_ASSIGN_OR_RETURN(Chunked chunked, Copy(path, data));
    CompleteManifest(lease, generation, std::move(chunked), record, manifest);
    EBB_ASSIGN_OR_RETURN(const Held held, ReplaceManifest(lease, *manifest, record));
    if (held == Held::kNo) return Held::kNo;
    leftover.Stay();
    RemoveData(name, generation);
    EBB_RETURN_IF_ERROR(SyncFolder(FolderOf(name.tenant)));
    return Held::kYes;
  }

  Result<Held> Touch(const Lease& lease, int64_t used_ms, int64_t expires_ms) override {
    if (!Holds(lease)) return Held::kNo;
    EBB_ASSIGN_OR_RETURN(StoredSession stored, Read(lease.name));
    stored.manifest.used_ms = used_ms;
    stored.manifest.expires_ms = expires_ms;
    return ReplaceManifest(lease, stored.manifest, stored.record);
  }

  Result<Held> Delete(const Lease& lease) override {
    if (!Holds(lease)) return Held::kNo;
    const std::string named = PathOf(lease.name, kManifest);
    if (unlink(named.c_str()) != 0 && errno != ENOENT) return FileError("remove", named, errno);
    RemoveData(lease.name, "");
    EBB_RETURN_IF_ERROR(SyncFolder(FolderOf(lease.name.tenant)));
    return Held::kYes;
  }

  Result<SessionPage> List(const std::string& tenant, const std::string& after,
                           size_t most) override {
    EBB_RETURN_IF_ERROR(CheckTenant(tenant));
    SessionPage page;
    for (const std::string& file : NamesIn(FolderOf(tenant))) {
      if (!file.ends_with(kManifest)) continue;
      const std::string id = file.substr(0, file.size() - kManifest.size());
      if (id <= after || !IsSessionId(id)) continue;
      if (page.sessions.size() == most) {
        page.next = page.sessions.back().id;
        break;
      }
      auto stored = Describe({tenant, id});
      if (IsDamaged(stored.status())) continue;
      if (!stored.ok()) return stored.status();
      if (stored->has_value()) page.sessions.push_back(std::move((*stored)->manifest));
    }
    return page;
  }

  Result<std::vector<std::string>> ListIds(const std::string& tenant) override {
    EBB_RETURN_IF_ERROR(CheckTenant(tenant));
    std::vector<std::string> ids;
    for (const std::string& file : NamesIn(FolderOf(tenant))) {
      if (!file.ends_with(kManifest)) continue;
      std::string id = file.substr(0, file.size() - kManifest.size());
      if (IsSessionId(id)) ids.push_back(std::move(id));
    }
    return ids;
  }

  Status Sweep() override {
    for (const std::string& folder : NamesIn(folder_)) {
      if (!folder.starts_with(kTenant)) continue;
      const auto tenant = PercentDecoded(std::string_view(folder).substr(kTenant.size()));
      if (tenant.has_value()) EBB_RETURN_IF_ERROR(SweepTenant(*tenant));
    }
    return OkStatus();
  }

 private:
  struct HeldLock {
    FileDescriptor fd;
    std::string epoch;
  };

  [[nodiscard]] std::string FolderOf(const std::string& tenant) const {
    return fmt::format("{}/{}{}", folder_, kTenant, PercentEncoded(tenant));
  }
  [[nodiscard]] std::string PathOf(const SessionName& name, std::string_view suffix) const {
    return fmt::format("{}/{}{}", FolderOf(name.tenant), name.id, suffix);
  }
  [[nodiscard]] std::string DataPath(const SessionName& name, const std::string& generation) const {
    return fmt::format("{}/{}.{}{}", FolderOf(name.tenant), name.id, generation, kData);
  }

  [[nodiscard]] bool IsHeld(const Lease& lease) const EBB_REQUIRES(mutex_) {
    const auto found = held_.find(lease.name);
    if (found == held_.end() || found->second.epoch != lease.epoch) return false;
    const int fd = found->second.fd.get();
    return IsFileOf(fd, PathOf(lease.name, kLock)) && std::to_string(EpochIn(fd)) == lease.epoch;
  }
  [[nodiscard]] bool Holds(const Lease& lease) {
    const MutexLock lock(mutex_);
    return IsHeld(lease);
  }

  Result<StoredSession> Read(const SessionName& name) {
    const std::string path = PathOf(name, kManifest);
    EBB_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(path));
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    StoredSession stored;
    EBB_ASSIGN_OR_RETURN(stored.manifest, DecodeManifest(std::string_view(bytes).substr(0, end)));
    stored.record = bytes.substr(std::min(end + 1, bytes.size()));
    EBB_RETURN_IF_ERROR(CheckStored(stored, name));
    return stored;
  }

  Result<Held> ReplaceManifest(const Lease& lease, const Manifest& manifest,
                               std::string_view record) {
    const std::string named = PathOf(lease.name, kManifest);
    const std::string part = named + std::string(kPart);
    EBB_RETURN_IF_ERROR(WriteSynced(part, fmt::format("{}\n{}", EncodeManifest(manifest), record)));
    Leftover unnamed(part);
    if (!Holds(lease)) return Held::kNo;
    if (rename(part.c_str(), named.c_str()) != 0) return FileError("rename", part, errno);
    unnamed.Stay();
    return Held::kYes;
  }

  Result<Chunked> Copy(const std::string& from, const std::string& to) {
    const FileDescriptor fd(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd.is_open()) return FileError("write", to, errno);
    EBB_ASSIGN_OR_RETURN(Chunked chunked, ReadChunks(from, [&](std::string_view chunk) {
                           return WriteAll(fd.get(), chunk, to);
                         }));
    if (fsync(fd.get()) != 0) return FileError("sync", to, errno);
    return chunked;
  }

  Status WriteSynced(const std::string& path, std::string_view bytes) {
    const FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd.is_open()) return FileError("write", path, errno);
    EBB_RETURN_IF_ERROR(WriteAll(fd.get(), bytes, path));
    return fsync(fd.get()) == 0 ? OkStatus() : FileError("sync", path, errno);
  }

  // Removes the data files of a session except that of generation `but`. REQUIRES: the session's
  // lease is held.
  void RemoveData(const SessionName& name, const std::string& but) {
    const std::string folder = FolderOf(name.tenant);
    const std::string kept = fmt::format("{}.{}{}", name.id, but, kData);
    for (const std::string& file : NamesIn(folder)) {
      const bool is_data = file.starts_with(name.id + ".") && file.ends_with(kData);
      if (is_data && file != kept) unlink(fmt::format("{}/{}", folder, file).c_str());
    }
  }

  Status SweepTenant(const std::string& tenant) {
    const std::string folder = FolderOf(tenant);
    std::set<std::string> ids;
    for (const std::string& file : NamesIn(folder)) {
      const std::string id = file.substr(0, file.find('.'));
      if (IsSessionId(id)) ids.insert(id);
    }
    for (const std::string& id : ids) EBB_RETURN_IF_ERROR(SweepSession({tenant, id}));
    return OkStatus();
  }

  // Removes a session's files if the session has expired, else only old files that a killed writer
  // left. Skips a session that is being written.
  Status SweepSession(const SessionName& name) {
    const Result<StoredSession> stored = Read(name);
    const bool is_there = stored.ok() && stored->manifest.expires_ms > NowMs();
    // Keep damaged sessions, so that they can be examined.
    if (!stored.ok() && stored.status().code() != StatusCode::kNotFound) return OkStatus();
    std::vector<std::string> old;
    const std::string folder = FolderOf(name.tenant);
    for (const std::string& file : NamesIn(folder)) {
      if (!file.starts_with(name.id + ".") || file.ends_with(kManifest)) continue;
      const bool is_current =
          is_there && (file.ends_with(kLock) ||
                       file == fmt::format("{}.{}{}", name.id, stored->manifest.generation, kData));
      const std::string path = fmt::format("{}/{}", folder, file);
      if (!is_current && (stored.ok() && !is_there ? true : AgeOf(path) >= limits_.orphan)) {
        old.push_back(path);
      }
    }
    if (old.empty()) return OkStatus();
    EBB_ASSIGN_OR_RETURN(const auto lease, Acquire(name));
    if (!lease.has_value()) return OkStatus();
    // Read the session again, since another client may have written it before the lease was
    // acquired.
    const Result<StoredSession> now = Read(name);
    const bool has_changed = now.ok() != stored.ok() ||
                             (now.ok() && now->manifest.generation != stored->manifest.generation);
    Status removed;
    if (!has_changed && stored.ok() && !is_there) removed = Delete(*lease).status();
    if (!has_changed && removed.ok()) {
      for (const std::string& path : old) unlink(path.c_str());
    }
    const Status released = Release(*lease);
    return removed.ok() ? released : removed;
  }

  const std::string folder_;
  const StoreLimits limits_;
  Mutex mutex_;
  std::map<SessionName, HeldLock> held_ EBB_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<SessionStore>> CreateFileStore(const std::string& folder,
                                                      const StoreLimits& limits) {
  // Errors at startup contain the whole path, because only the operator reads them.
  const Status made = MakeFolder(folder);
  if (made.code() == StatusCode::kIo) return InvalidArgument(made.WithPrefix(folder).message());
  if (!made.ok()) return made.WithPrefix(folder);
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    return InvalidArgument(
        fmt::format("cannot write {}: {}", folder, std::generic_category().message(errno)));
  }
  return std::unique_ptr<SessionStore>(new FileStore(folder, limits));
}

}  // namespace ebb::store
