#include "apps/ebb/pull/built_in_models.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ebb::cli {

// Written by CMake.
extern const std::string_view kPebbleModel;
extern const std::string_view kPebbleDmsModel;
extern const std::string_view kPebbleDms8Model;

namespace {

std::string_view Bytes(std::string_view name) {
  if (name == kPebbleName) return kPebbleModel;
  if (name == "pebble-dms") return kPebbleDmsModel;
  if (name == "pebble-dms-8") return kPebbleDms8Model;
  return {};
}

Result<int> WriteToMemory(std::string_view name, std::string_view bytes) {
  const int file = memfd_create(fmt::format("{}.gguf", name).c_str(), MFD_CLOEXEC);
  while (file >= 0 && !bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (file >= 0 && bytes.empty()) return file;
  const std::string reason = std::strerror(errno);
  if (file >= 0) close(file);
  return IoError(fmt::format("cannot unpack the model {} into memory: {}", name, reason));
}

}  // namespace

bool IsBuiltInModel(std::string_view name) {
  return std::ranges::find(kBuiltInModels, name) != kBuiltInModels.end();
}

Result<std::string> BuiltInModelPath(std::string_view name) {
  const std::string_view bytes = Bytes(name);
  if (bytes.empty()) return NotFound(fmt::format("no model inside the program is \"{}\"", name));
  static std::mutex mutex;
  // Files stay open: a path lives as long as its file does.
  static std::map<std::string, int, std::less<>> files;
  const std::lock_guard lock(mutex);
  const auto found = files.find(name);
  if (found != files.end()) return fmt::format("/proc/self/fd/{}", found->second);
  EBB_ASSIGN_OR_RETURN(const int file, WriteToMemory(name, bytes));
  files.emplace(name, file);
  return fmt::format("/proc/self/fd/{}", file);
}

}  // namespace ebb::cli
