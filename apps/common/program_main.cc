#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include "apps/common/options/option_errors.h"
#include "apps/common/program.h"
#include "ebb/status.h"

namespace ebb::cli {
namespace {

// Opens /dev/null for each standard stream that is closed. Otherwise the next open(), such as that
// of the model file, would get number 1, and output would go there. /dev/null is opened for reading
// only, so that writing to a closed stdout still fails.
void OccupyStandardStreams() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (fcntl(file, F_GETFD) >= 0) continue;
    (void)open("/dev/null", O_RDONLY);
  }
}

// Makes the allocator map long arrays separately, so that freeing them returns their memory to the
// system. By default glibc raises its threshold once a long array was freed and puts later ones
// into its heap, where they leave holes.
void MapLongArrays() {
#ifdef M_MMAP_THRESHOLD
  (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
  (void)mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

}  // namespace

int ProgramMain(const Program& program, int argc, char** argv) {
  OccupyStandardStreams();
  MapLongArrays();
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const int code = static_cast<int>(RunProgram(program, arguments));
    // Output that was lost to a full disk or a closed pipe must not look like success.
    if (code == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
      return static_cast<int>(Fail(IoError("cannot write to stdout")));
    }
    return code;
  } catch (const std::bad_alloc&) {
    return static_cast<int>(Fail(IoError("the system has no memory left")));
  } catch (const std::exception& error) {
    return static_cast<int>(Fail(Internal(error.what())));
  }
}

}  // namespace ebb::cli
