#include "src/base/ggml_aborts.h"

#include <ggml.h>

#include <cstdio>
#include <mutex>

namespace ebb {
namespace {

thread_local int scopes = 0;

// Throws GgmlAbort if a GgmlAbortScope exists on this thread. If it returns, ggml ends the process.
// ggml has one callback per process, which all scopes share.
void OnAbort(const char* message) {
  if (scopes > 0) throw GgmlAbort(message);
  std::fprintf(stderr, "%s\n", message);
}

}  // namespace

GgmlAbortScope::GgmlAbortScope() {
  static std::once_flag once;
  std::call_once(once, [] { ggml_set_abort_callback(OnAbort); });
  ++scopes;
}

GgmlAbortScope::~GgmlAbortScope() { --scopes; }

}  // namespace ebb
