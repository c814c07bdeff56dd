// Frees objects that ggml allocated, for std::unique_ptr.
#ifndef EBB_BASE_GGML_DELETER_H_
#define EBB_BASE_GGML_DELETER_H_

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

namespace ebb {

struct GgmlDeleter {
  void operator()(ggml_context* p) const { ggml_free(p); }
  void operator()(ggml_backend_buffer* p) const { ggml_backend_buffer_free(p); }
  void operator()(ggml_gallocr* p) const { ggml_gallocr_free(p); }
  void operator()(ggml_backend* p) const { ggml_backend_free(p); }
  void operator()(ggml_backend_event* p) const { ggml_backend_event_free(p); }
  void operator()(ggml_threadpool* p) const { ggml_threadpool_free(p); }
};

}  // namespace ebb

#endif  // EBB_BASE_GGML_DELETER_H_
