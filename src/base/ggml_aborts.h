// Turns failed assertions of ggml and libllama, which would end the process, into exceptions.
#ifndef EBB_BASE_GGML_ABORTS_H_
#define EBB_BASE_GGML_ABORTS_H_

#include <stdexcept>

namespace ebb {

// GgmlAbort carries ggml's message: the file, the line and the assertion.
struct GgmlAbort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// GgmlAbortScope makes a failed assertion of ggml throw GgmlAbort, on its thread while it lives,
// through frames of ggml's C code. Scopes may nest. An assertion that fails outside of any scope
// still prints its message to stderr and ends the process. Memory that ggml owned at a failed
// assertion is leaked.
class GgmlAbortScope {
 public:
  GgmlAbortScope();
  ~GgmlAbortScope();
  GgmlAbortScope(const GgmlAbortScope&) = delete;
  GgmlAbortScope& operator=(const GgmlAbortScope&) = delete;
};

}  // namespace ebb

#endif  // EBB_BASE_GGML_ABORTS_H_
