#include "apps/common/options/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

class OpenFile {
 public:
  // Opens the file with O_NONBLOCK, since opening a named pipe would wait for its other end.
  explicit OpenFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

std::string_view KindOf(const struct stat& info) {
  if (S_ISDIR(info.st_mode)) return "a folder";
  if (S_ISFIFO(info.st_mode)) return "a named pipe";
  if (S_ISSOCK(info.st_mode)) return "a socket";
  return "a device";
}

Status CannotRead(const std::string& path, int error) {
  std::string message = fmt::format("cannot read {}: {}", path, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(std::move(message));
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // a socket
      return InvalidArgument(std::move(message));
    default:
      return IoError(std::move(message));
  }
}

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  const OpenFile file(path);
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return CannotRead(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(
        fmt::format("cannot read {}: it is not a regular file but {}", path, KindOf(info)));
  }
  // Files of /proc report no size, so the text grows while bytes come.
  std::string text;
  constexpr size_t kStep = size_t{1} << 16;
  for (size_t end = 0;;) {
    text.resize(std::max({end + kStep, std::min<size_t>(info.st_size, most_bytes) + 1}));
    const ssize_t count = read(file.get(), text.data() + end, text.size() - end);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, errno);
    end += static_cast<size_t>(count);
    if (end > most_bytes) {
      return InvalidArgument(fmt::format("cannot read {}: expected at most {}, found more", path,
                                         SizeText(most_bytes)));
    }
    if (count > 0) continue;
    text.resize(end);
    return text;
  }
}

}  // namespace ebb::cli
