// Turns failed assertions in ggml and libllama, which would end the process, into exceptions.
#ifndef EBB_BASE_GGML_ABORTS_H_
#define EBB_BASE_GGML_ABORTS_H_

#include <stdexcept>

namespace ebb {

// GgmlAbort has ggml's message: file, line and assertion.
struct GgmlAbort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// GgmlAbortScope makes a failed assertion of ggml on its thread throw GgmlAbort as long as the
// scope exists. The exception passes through frames of ggml's C code, and memory that ggml owned is
// leaked. Scopes may nest. An assertion that fails outside of any scope still prints its message to
// stderr and ends the process.
class GgmlAbortScope {
 public:
  GgmlAbortScope();
  ~GgmlAbortScope();
  GgmlAbortScope(const GgmlAbortScope&) = delete;
  GgmlAbortScope& operator=(const GgmlAbortScope&) = delete;
};

}  // namespace ebb

#endif  // EBB_BASE_GGML_ABORTS_H_
