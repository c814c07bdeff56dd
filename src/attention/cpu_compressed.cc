// Compiles the kernels of compressed-inl.h.
#include "src/attention/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/cpu_compressed.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                               // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/attention/compressed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

void SetCompressed(AttentionKernel* kernel) {
  kernel->rotate = Rotate;
  kernel->compress_row = CompressRow;
  kernel->decompress_row = DecompressRow;
  kernel->fold_compressed = FoldCompressed<Dots::kPortable>;
}

bool SetVnni([[maybe_unused]] AttentionKernel* kernel) {
#if HWY_TARGET == HWY_AVX3
  if (!__builtin_cpu_supports("avx512vnni")) return false;
  kernel->name = "AVX3_VNNI";
  kernel->fold_compressed = FoldCompressed<Dots::kVnni>;
  return true;
#else
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ebb {

HWY_EXPORT(SetCompressed);
HWY_EXPORT(SetVnni);

void SetCompressedKernels(AttentionKernel* kernel) { HWY_DYNAMIC_DISPATCH(SetCompressed)(kernel); }
bool SetVnniKernels(AttentionKernel* kernel) { return HWY_DYNAMIC_DISPATCH(SetVnni)(kernel); }

}  // namespace ebb

#endif  // HWY_ONCE
