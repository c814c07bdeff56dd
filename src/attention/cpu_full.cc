// Compiles the kernels of fold-inl.h and merge-inl.h.
#include "src/attention/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/cpu_full.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                         // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/attention/fold-inl.h"
#include "src/attention/merge-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

void SetFull(AttentionKernel* kernel) {
  kernel->name = hwy::TargetName(HWY_TARGET);
  kernel->store_row = StoreRow;
  kernel->load_row = LoadRow;
  kernel->fold = Fold;
  kernel->chunk_weights = ChunkWeights;
  kernel->merge = Merge;
  kernel->add_mass = AddMass;
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ebb {

HWY_EXPORT(SetFull);

void SetFullKernels(AttentionKernel* kernel) { HWY_DYNAMIC_DISPATCH(SetFull)(kernel); }

std::vector<int64_t> GeneratedTargets() { return hwy::SupportedAndGeneratedTargets(); }

}  // namespace ebb

#endif  // HWY_ONCE
