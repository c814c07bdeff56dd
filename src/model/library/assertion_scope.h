// Turns failed assertions of ggml and libllama into errors.
#ifndef EBB_MODEL_LIBRARY_ASSERTION_SCOPE_H_
#define EBB_MODEL_LIBRARY_ASSERTION_SCOPE_H_

#include <functional>
#include <string>

#include "ebb/status.h"

namespace ebb {

// Runs `work` and returns its status. Errors: Corrupt, with the text, if an assertion of ggml or
// libllama fails on this thread or a std::exception escapes; OutOfMemory for std::bad_alloc. An
// assertion that fails on another thread still ends the process. Memory that libllama held at a
// failed assertion is leaked.
[[nodiscard]] Status RunChecked(const std::function<Status()>& work);

// Returns a message of libllama without the folder of the source file that it names.
[[nodiscard]] std::string WithoutSourceFolder(std::string message);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_ASSERTION_SCOPE_H_
