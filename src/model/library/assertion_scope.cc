#include "src/model/library/assertion_scope.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <system_error>

#include "src/base/ggml_aborts.h"

namespace ebb {

std::string WithoutSourceFolder(std::string message) {
  const size_t name_end = message.find(".c");  // of .c and .cpp
  if (name_end == std::string::npos) return message;
  const size_t begin = message.rfind(' ', name_end) + 1;  // 0 without a space
  const size_t slash = message.rfind('/', name_end);
  if (slash != std::string::npos && slash >= begin) message.erase(begin, slash + 1 - begin);
  return message;
}

Status RunChecked(const std::function<Status()>& work) {
  const GgmlAbortScope aborts;
  try {
    return work();
  } catch (const GgmlAbort& failure) {
    return Corrupt(fmt::format("libllama cannot run this file: assertion failed at {}",
                               WithoutSourceFolder(failure.what())));
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory is left for the model's graph");
  } catch (const std::system_error& error) {
    // This means that the system has no thread or memory left for libllama's loader; it says
    // nothing about the file.
    return OutOfMemory(
        fmt::format("the system has no room for loading the model: {}", error.what()));
  } catch (const std::exception& error) {
    return Corrupt(fmt::format("libllama cannot run this file: {}", error.what()));
  }
}

}  // namespace ebb
