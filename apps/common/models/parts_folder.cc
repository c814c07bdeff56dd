// Invariants of the folder on the disk:
// 1. `joined` holds the first parts of the model, one after the other. If a process was killed, the
//    file may end with an incomplete part. Its size says how many parts are complete.
// 2. A process that changes anything holds a lock on the file `lock`.
#include "apps/common/models/parts_folder.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace ebb::cli {

namespace fs = std::filesystem;

namespace {

FileDescriptor OpenFile(const std::string& path, int flags) {
  return FileDescriptor(open(path.c_str(), flags | O_CLOEXEC, 0666));
}

std::string FolderFor(const std::string& path) { return path + ".parts"; }

// Returns an error for the file, from errno.
Status FileError(const std::string& path) {
  return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
}

struct CompleteParts {
  int num_parts = 0;
  uint64_t bytes = 0;
};

// Returns how many parts of the model the file holds completely, and their bytes; 0 if there is no
// file.
CompleteParts PartsIn(const std::string& joined, const KnownModel& model) {
  std::error_code error;
  const uintmax_t size = fs::file_size(joined, error);
  CompleteParts complete;
  if (error) return complete;
  for (const ModelPart& part : model.parts) {
    if (complete.bytes + part.bytes > size) break;
    complete.bytes += part.bytes;
    ++complete.num_parts;
  }
  return complete;
}

// Writes all bytes. Returns false, with errno set, if that fails.
bool WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

PartsFolder::PartsFolder(const KnownModel& model, const std::string& path)
    : model_(model), folder_(FolderFor(path)) {}

Result<std::unique_ptr<PartsFolder>> PartsFolder::Open(const KnownModel& model,
                                                       const std::string& path) {
  std::unique_ptr<PartsFolder> folder(new PartsFolder(model, path));
  std::error_code error;
  fs::create_directory(folder->folder_, error);
  if (error) return IoError(fmt::format("cannot make {}: {}", folder->folder_, error.message()));
  EBB_RETURN_IF_ERROR(folder->Lock());
  EBB_RETURN_IF_ERROR(folder->CutOffIncompletePart());
  return folder;
}

PartsFolder::~PartsFolder() {
  if (!lock_.is_open()) return;
  std::error_code ignored;
  fs::remove_all(num_parts_ == 0 ? folder_ : incoming(), ignored);
}

Status PartsFolder::Lock() {
  const std::string path = folder_ + "/lock";
  LockedFile locked = LockFile(path, O_CREAT, 0666);
  if (locked.is_held) {
    return IoError(
        fmt::format("{}: another process is fetching {}; wait for its end", folder_, model_.name));
  }
  // On a file system without locks a second process goes unnoticed.
  errno = locked.error;
  if (!locked.file.is_open()) return FileError(path);
  lock_ = std::move(locked.file);
  return OkStatus();
}

Status PartsFolder::CutOffIncompletePart() {
  const CompleteParts complete = PartsIn(joined(), model_);
  num_parts_ = complete.num_parts;
  std::error_code error;
  if (fs::exists(joined(), error)) fs::resize_file(joined(), complete.bytes, error);
  if (error) return IoError(fmt::format("{}: {}", joined(), error.message()));
  return OkStatus();
}

Status PartsFolder::EmptyIncoming() {
  std::error_code error;
  fs::remove_all(incoming(), error);
  fs::create_directory(incoming(), error);
  if (error) return IoError(fmt::format("cannot make {}: {}", incoming(), error.message()));
  return OkStatus();
}

Status PartsFolder::Append(const std::string& part) {
  const FileDescriptor source = OpenFile(part, O_RDONLY);
  if (!source.is_open()) return FileError(part);
  const FileDescriptor target = OpenFile(joined(), O_WRONLY | O_CREAT | O_APPEND);
  if (!target.is_open()) return FileError(joined());
  std::vector<char> buffer(size_t{1} << 20);
  while (true) {
    const ssize_t count = read(source.get(), buffer.data(), buffer.size());
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    Status status;
    if (count < 0) {
      status = FileError(part);
    } else if (!WriteAll(target.get(), {buffer.data(), static_cast<size_t>(count)})) {
      status = FileError(joined());
    }
    if (!status.ok()) {
      (void)CutOffIncompletePart();
      return status;
    }
  }
  ++num_parts_;
  return OkStatus();
}

Status PartsFolder::MoveJoinedTo(const std::string& path) {
  const FileDescriptor file = OpenFile(joined(), O_RDONLY);
  if (!file.is_open() || fsync(file.get()) != 0) return FileError(joined());
  std::error_code error;
  fs::rename(joined(), path, error);
  if (error) return IoError(fmt::format("cannot write {}: {}", path, error.message()));
  Drop();
  return OkStatus();
}

int NumPartsKept(const KnownModel& model, const std::string& path) {
  return PartsIn(FolderFor(path) + "/joined", model).num_parts;
}

}  // namespace ebb::cli
