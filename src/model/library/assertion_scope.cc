#include "src/model/library/assertion_scope.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string_view>

#include "src/base/ggml_aborts.h"

namespace ebb {
namespace {

// Returns the message without the folder of the source file.
std::string_view WithoutFolder(std::string_view message) {
  const size_t colon = message.find(':');
  const size_t slash = message.substr(0, colon).rfind('/');
  return slash == std::string_view::npos ? message : message.substr(slash + 1);
}

}  // namespace

Status RunChecked(const std::function<Status()>& work) {
  const GgmlAbortScope aborts;
  try {
    return work();
  } catch (const GgmlAbort& failure) {
    return Corrupt(fmt::format("libllama cannot run this file: assertion failed at {}",
                               WithoutFolder(failure.what())));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory is left for the model's graph");
  } catch (const std::exception& error) {
    return Corrupt(fmt::format("libllama cannot run this file: {}", error.what()));
  }
}

}  // namespace ebb
