#include "src/model/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ebb {
namespace {

Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? NotFound(std::move(message))
                                             : IoError(std::move(message));
}

// The whole pages inside a range.
std::span<std::byte> InnerPages(std::span<const std::byte> range) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "cannot open");
  struct stat info = {};
  Status status;
  void* address = MAP_FAILED;
  if (fstat(fd, &info) != 0) {
    status = SystemError(path, "cannot stat");
  } else if (!S_ISREG(info.st_mode)) {
    status = IoError(fmt::format("{}: expected a regular file", path));
  } else if (info.st_size == 0) {
    status = Corrupt(fmt::format("{}: the file is empty", path));
  } else {
    address = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) status = SystemError(path, "cannot map");
    // Once weights are copied in another order, a few rows of embeddings are all that is read here.
    // Where the file lies in large pieces in the page cache, each would count as 2 MiB.
    if (address != MAP_FAILED) madvise(address, info.st_size, MADV_NOHUGEPAGE);
  }
  close(fd);
  if (!status.ok()) return status;
  return MappedFile({static_cast<const std::byte*>(address), static_cast<size_t>(info.st_size)});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::Prefetch() const {
  madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_WILLNEED);
}

void MappedFile::Populate(std::span<const std::byte> range) const {
  const std::span<std::byte> pages = InnerPages(range);
  if (pages.empty()) return;
#ifdef MADV_POPULATE_READ
  if (madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
#endif
  madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void MappedFile::Drop(std::span<const std::byte> range) const {
  const std::span<std::byte> pages = InnerPages(range);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace ebb
