// Compiles the kernels of prefill-inl.h.
#include "src/attention/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/cpu_prefill.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                            // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/attention/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

void SetPrefill(AttentionKernel* kernel) {
  kernel->query_tile = QueryTile;
  kernel->prefill_scratch_floats = PrefillScratchFloats;
  kernel->prefill = Prefill;
  kernel->prefill_mass = PrefillMass;
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ebb {

HWY_EXPORT(SetPrefill);

void SetPrefillKernels(AttentionKernel* kernel) { HWY_DYNAMIC_DISPATCH(SetPrefill)(kernel); }

}  // namespace ebb

#endif  // HWY_ONCE
