#include "src/io/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace ebb {
namespace {

constexpr const char* kFolder = "tiers.t1_path";  // option named in errors of opening

bool MeansNoSpace(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

StatusCode CodeOfOpening(int error) {
  if (error == ENOENT || error == ENOTDIR) return StatusCode::kNotFound;
  if (error == EINVAL) return StatusCode::kUnsupported;
  return MeansNoSpace(error) ? StatusCode::kStorageFull : StatusCode::kIo;
}

// Returns whether the error means that the file system (or the kernel) lacks O_TMPFILE.
bool MeansNoUnnamedFiles(int error) { return error == EOPNOTSUPP || error == EISDIR; }

// Opens a file without a name in `folder`. Returns its descriptor, or -1 with errno set.
int OpenUnnamed(const std::string& folder, int flags) {
  return open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
}

int OpenAndUnlink(const std::string& folder, int flags) {
  std::string path = folder + "/ebb-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC | flags);
  if (fd < 0) return -1;
  if (unlink(path.c_str()) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

// Makes a system call, and repeats it if a signal interrupted it. Returns 0 or an errno.
template <typename Call>
int ErrorOf(const Call& call) {
  while (call() < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Returns whether the page cache holds the file's first block; -1 with errno set if that is
// unknown.
int FirstBlockIsCached(int fd) {
  void* mapped = mmap(nullptr, kBlockBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return -1;
  unsigned char resident = 0;
  const int result = mincore(mapped, kBlockBytes, &resident);
  const int error = errno;
  munmap(mapped, kBlockBytes);
  errno = error;
  return result < 0 ? -1 : resident & 1;
}

}  // namespace

std::string DefaultFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

PrivateFile::~PrivateFile() {
  if (fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<PrivateFile>> PrivateFile::Create(const PrivateFileOptions& options) {
  std::unique_ptr<PrivateFile> file(new PrivateFile);
  file->folder_ = options.folder.empty() ? DefaultFolder() : options.folder;
  file->faults_ = options.faults;
  EBB_RETURN_IF_ERROR(file->Open(options.buffering));
  EBB_RETURN_IF_ERROR(file->Probe());
  if (!file->direct_ && options.buffering == Buffering::kDirectOnly) {
    return Unsupported(
        kFolder,
        fmt::format(
            "the file system of {} has no direct I/O, so pages read from it would stay in memory; "
            "choose another folder, or set TMPDIR",
            file->folder_));
  }
  return file;
}

Status PrivateFile::Open(Buffering buffering) {
  const auto open_with = [this](int flags) {
    errno = FaultError(faults_, {.call = DiskCall::kOpen});
    fd_ = errno == 0 ? OpenUnnamed(folder_, flags) : -1;
    if (fd_ >= 0 || !MeansNoUnnamedFiles(errno)) return;
    errno = FaultError(faults_, {.call = DiskCall::kOpen});
    if (errno == 0) fd_ = OpenAndUnlink(folder_, flags);
  };
  open_with(O_DIRECT);
  if (fd_ < 0 && errno == EINVAL && buffering == Buffering::kAllow) open_with(0);
  if (fd_ >= 0) return OkStatus();
  const int error = errno;
  std::string message =
      fmt::format("cannot make a file for pages in {}: {}; choose another folder, or set TMPDIR",
                  folder_, std::generic_category().message(error));
  if (error == EINVAL) message += " (direct I/O)";
  return {CodeOfOpening(error), kFolder, std::move(message)};
}

Status PrivateFile::Probe() {
  alignas(kBlockBytes) std::array<std::byte, kBlockBytes> block{};
  EBB_RETURN_IF_ERROR(Reserve(0, kBlockBytes));
  int error = FaultError(faults_, {.call = DiskCall::kProbe, .num_bytes = kBlockBytes});
  if (error == 0) error = ErrorOf([&] { return pwrite(fd_, block.data(), block.size(), 0); });
  if (error == 0) error = ErrorOf([&] { return pread(fd_, block.data(), block.size(), 0); });
  if (error != 0) return Error("try out", 0, kBlockBytes, error);
  const int cached = FirstBlockIsCached(fd_);
  if (cached < 0) return Error("look at the page cache of", 0, kBlockBytes, errno);
  direct_ = cached == 0;
  return Release(0, kBlockBytes);
}

Status PrivateFile::Reserve(uint64_t offset, size_t num_bytes) {
  int error =
      FaultError(faults_, {.call = DiskCall::kReserve, .offset = offset, .num_bytes = num_bytes});
  if (error == 0) {
    error = ErrorOf([&] {
      return fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(num_bytes));
    });
  }
  if (error == 0) return OkStatus();
  Status status = Error("reserve", offset, num_bytes, error);
  // Release what some file systems keep of a range for which the space ran out. Ignore an error
  // here, since the first error says more.
  (void)Release(offset, num_bytes);
  return status;
}

Status PrivateFile::Release(uint64_t offset, size_t num_bytes) {
  int error =
      FaultError(faults_, {.call = DiskCall::kRelease, .offset = offset, .num_bytes = num_bytes});
  if (error == 0) {
    error = ErrorOf([&] {
      return fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(num_bytes));
    });
  }
  return error == 0 ? OkStatus() : Error("release", offset, num_bytes, error);
}

size_t PrivateFile::DiskBytes() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 ? static_cast<size_t>(info.st_blocks) * 512 : 0;
}

Status PrivateFile::Error(const char* what, uint64_t offset, size_t num_bytes, int error) const {
  std::string message =
      fmt::format("cannot {} {} bytes at offset {} of the page file in {}: {}", what, num_bytes,
                  offset, folder_, std::generic_category().message(error));
  if (MeansNoSpace(error)) return StorageFull(std::move(message));
  return error == EOPNOTSUPP ? Unsupported(std::move(message)) : IoError(std::move(message));
}

}  // namespace ebb
