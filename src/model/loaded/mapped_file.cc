#include "src/model/loaded/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "src/model/loaded/mapped_file_guard.h"

namespace ebb {
namespace {

// Returns an error that will come again at each start, since the path itself is bad.
Status BadPath(std::string message) {
  return {StatusCode::kIo, std::string(kPathField), std::move(message)};
}

Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(std::move(message));
    case EACCES:
    case ELOOP:
    case ENAMETOOLONG:
    case ENODEV:
    case ENXIO:
    case EPERM:
      return BadPath(std::move(message));
    default:
      return IoError(std::move(message));
  }
}

std::string_view KindOf(const struct stat& info) {
  if (S_ISDIR(info.st_mode)) return "a folder";
  if (S_ISFIFO(info.st_mode)) return "a named pipe";
  if (S_ISSOCK(info.st_mode)) return "a socket";
  return "a device";
}

// Returns the whole pages inside a range.
std::span<std::byte> InnerPages(std::span<const std::byte> range) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // Uses O_NONBLOCK so that a named pipe, which is refused below, does not block the call.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, "cannot open");
  struct stat info = {};
  Status status;
  void* address = MAP_FAILED;
  if (fstat(fd, &info) != 0) {
    status = SystemError(path, "cannot stat");
  } else if (!S_ISREG(info.st_mode)) {
    status = BadPath(fmt::format("{}: expected a regular file, found {}", path, KindOf(info)));
  } else if (info.st_size == 0) {
    status = Corrupt(fmt::format("{}: the file is empty", path));
  } else {
    address = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) status = SystemError(path, "cannot map");
    // Avoids huge pages: after weights are copied in another order, only a few rows of embeddings
    // are read here, but each would count as 2 MiB if the page cache holds the file in large
    // pieces.
    if (address != MAP_FAILED) madvise(address, info.st_size, MADV_NOHUGEPAGE);
  }
  if (!status.ok()) {
    close(fd);
    return status;
  }
  MappedFile file({static_cast<const std::byte*>(address), static_cast<size_t>(info.st_size)});
  file.name_ = std::filesystem::path(path).filename().string();
  file.fd_ = fd;
  file.modified_seconds_ = info.st_mtim.tv_sec;
  file.modified_nanoseconds_ = info.st_mtim.tv_nsec;
  file.guard_ = Guard(file.bytes_);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
  std::swap(modified_seconds_, other.modified_seconds_);
  std::swap(modified_nanoseconds_, other.modified_nanoseconds_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!is_file()) return;
  EndGuard(guard_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  close(fd_);
}

Status MappedFile::CheckUnchanged() const {
  if (!is_file()) return OkStatus();
  struct stat info = {};
  std::string_view how;
  if (guard_->is_lost.load()) {
    how = "was truncated, or cannot be read any more";
  } else if (fstat(fd_, &info) != 0 || static_cast<size_t>(info.st_size) != bytes_.size()) {
    how = "has another size";
  } else if (info.st_mtim.tv_sec != modified_seconds_ ||
             info.st_mtim.tv_nsec != modified_nanoseconds_) {
    how = "was written to";
  } else {
    return OkStatus();
  }
  return IoError(fmt::format(
      "the model file {} changed while it was in use: it {}; load the model again", name_, how));
}

void MappedFile::Prefetch() const {
  if (!is_file()) return;
  // Asks in small steps, because Linux reads at most the disk's read-ahead for one call.
  constexpr size_t kStep = size_t{1} << 20;
  for (size_t at = 0; at < bytes_.size(); at += kStep) {
    madvise(const_cast<std::byte*>(bytes_.data() + at), std::min(kStep, bytes_.size() - at),
            MADV_WILLNEED);
  }
}

void MappedFile::Populate(std::span<const std::byte> range) const {
  const std::span<std::byte> pages = InnerPages(range);
  if (pages.empty() || !is_file()) return;
#ifdef MADV_POPULATE_READ
  if (madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
#endif
  madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void MappedFile::Drop(std::span<const std::byte> range) const {
  const std::span<std::byte> pages = InnerPages(range);
  // Drops only file pages; the caller's memory would lose its contents.
  if (!pages.empty() && is_file()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace ebb
