#include "src/model/library/assertion_scope.h"

#include <fmt/format.h>
#include <ggml.h>

#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ebb {
namespace {

thread_local int depth = 0;

struct AssertionFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ggml ends the process when this function returns. The frames of ggml's C code that the exception
// passes have unwind tables on the platforms that ebb supports.
void OnAbort(const char* message) {
  if (depth == 0) {
    std::fprintf(stderr, "%s\n", message);
    return;
  }
  throw AssertionFailure(message);
}

// Returns the message without the folder of the source file.
std::string_view WithoutFolder(std::string_view message) {
  const size_t colon = message.find(':');
  const size_t slash = message.substr(0, colon).rfind('/');
  return slash == std::string_view::npos ? message : message.substr(slash + 1);
}

}  // namespace

Status RunChecked(const std::function<Status()>& work) {
  static std::once_flag once;
  std::call_once(once, [] { ggml_set_abort_callback(OnAbort); });
  struct Depth {
    Depth() { ++depth; }
    ~Depth() { --depth; }
  } const scope;
  try {
    return work();
  } catch (const AssertionFailure& failure) {
    return Corrupt(fmt::format("libllama cannot run this file: assertion failed at {}",
                               WithoutFolder(failure.what())));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory is left for the model's graph");
  } catch (const std::exception& error) {
    return Corrupt(fmt::format("libllama cannot run this file: {}", error.what()));
  }
}

}  // namespace ebb
