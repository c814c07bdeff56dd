#include "src/store/chunks.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include "src/base/files/locked_file.h"

namespace ebb::store {
namespace {

// Reads until `to` is full. Returns fewer bytes only at the end of the file.
Result<size_t> ReadSome(int fd, std::span<char> to, const std::string& path) {
  size_t size = 0;
  while (size < to.size()) {
    const ssize_t count = read(fd, to.data() + size, to.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  return size;
}

}  // namespace

uint64_t HashOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Status FileError(const char* what, const std::string& path, int error) {
  std::string message = fmt::format("cannot {} {}: {}", what, path.substr(path.rfind('/') + 1),
                                    std::generic_category().message(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return StorageFull(std::move(message));
  }
  return error == ENOENT ? NotFound(std::move(message)) : IoError(std::move(message));
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return OkStatus();
}

Result<Chunked> ReadChunks(const std::string& path,
                           const std::function<Status(std::string_view)>& take) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return FileError("open", path, errno);
  Chunked chunked;
  std::string buffer(kChunkBytes, '\0');
  while (true) {
    EBB_ASSIGN_OR_RETURN(const size_t size, ReadSome(file.get(), buffer, path));
    if (size == 0) return chunked;
    const std::string_view chunk = std::string_view(buffer).substr(0, size);
    chunked.bytes += size;
    chunked.hashes.push_back(HashOf(chunk));
    EBB_RETURN_IF_ERROR(take(chunk));
  }
}

Status WriteChunks(const Chunked& expected, const std::string& path,
                   const std::function<Result<std::string>(size_t index)>& give) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const FileDescriptor file(open(path.c_str(), kFlags, 0600));
  if (!file.is_open()) return FileError("write", path, errno);
  uint64_t left = expected.bytes;
  for (size_t i = 0; i < expected.hashes.size(); ++i) {
    EBB_ASSIGN_OR_RETURN(const std::string chunk, give(i));
    if (chunk.size() > left || HashOf(chunk) != expected.hashes[i]) {
      return Corrupt(
          fmt::format("chunk {} of {} is damaged: expected hash {:016x}, found {:016x} of {} bytes",
                      i, expected.hashes.size(), expected.hashes[i], HashOf(chunk), chunk.size()));
    }
    left -= chunk.size();
    EBB_RETURN_IF_ERROR(WriteAll(file.get(), chunk, path));
  }
  if (left > 0) return Corrupt(fmt::format("{} bytes are missing behind the last chunk", left));
  return OkStatus();
}

}  // namespace ebb::store
