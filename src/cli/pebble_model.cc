#include "src/cli/pebble_model.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ebb::cli {

extern const std::string_view kPebbleModel;  // written by CMake

namespace {

Result<int> WriteToMemory(std::string_view bytes) {
  const int file = memfd_create("pebble.gguf", MFD_CLOEXEC);
  while (file >= 0 && !bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (file >= 0 && bytes.empty()) return file;
  const std::string reason = std::strerror(errno);
  if (file >= 0) close(file);
  return IoError(fmt::format("cannot unpack the model pebble into memory: {}", reason));
}

}  // namespace

Result<std::string> PebbleModelPath() {
  // Stays open: the path lives as long as the file does.
  static const Result<int> file = WriteToMemory(kPebbleModel);
  if (!file.ok()) return file.status();
  return fmt::format("/proc/self/fd/{}", *file);
}

}  // namespace ebb::cli
