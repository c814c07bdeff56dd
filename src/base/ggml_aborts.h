// Turns failed assertions of ggml and libllama, which end the process, into exceptions.
#ifndef EBB_BASE_GGML_ABORTS_H_
#define EBB_BASE_GGML_ABORTS_H_

#include <stdexcept>

namespace ebb {

// The message is ggml's: the file, the line and the assertion.
struct GgmlAbort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// In its scope and on its thread an assertion of ggml that fails throws GgmlAbort, through frames
// of ggml's C code. Scopes may nest. Assertions that fail outside of any scope still end the
// process, after their message on stderr. Memory that ggml held at a failed assertion is leaked.
class GgmlAbortScope {
 public:
  GgmlAbortScope();
  ~GgmlAbortScope();
  GgmlAbortScope(const GgmlAbortScope&) = delete;
  GgmlAbortScope& operator=(const GgmlAbortScope&) = delete;
};

}  // namespace ebb

#endif  // EBB_BASE_GGML_ABORTS_H_
