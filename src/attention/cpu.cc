// The kernels of fold-inl.h, compressed-inl.h and prefill-inl.h, compiled once per instruction set, and their choice.
// Left out: instruction sets that would run the same code as a listed neighbour.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/cpu.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/attention/compressed-inl.h"
#include "src/attention/fold-inl.h"
#include "src/attention/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

AttentionKernel MakeKernel() {
  return AttentionKernel{
      .name = hwy::TargetName(HWY_TARGET),
      .store_row = StoreRow,
      .load_row = LoadRow,
      .fold = Fold,
      .chunk_weights = ChunkWeights,
      .merge = Merge,
      .add_mass = AddMass,
      .query_tile = QueryTile,
      .prefill_scratch_floats = PrefillScratchFloats,
      .rotate = Rotate,
      .compress_row = CompressRow,
      .decompress_row = DecompressRow,
      .fold_compressed = FoldCompressed,
      .prefill = Prefill,
      .prefill_mass = PrefillMass,
  };
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <string>
#include <vector>

namespace ebb {
namespace {

HWY_EXPORT(MakeKernel);

// Best instruction set first, the reference last.
std::vector<AttentionKernel> MakeAll() {
  std::vector<AttentionKernel> all;
  const int64_t chosen = hwy::SupportedTargets();
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    all.push_back(HWY_DYNAMIC_DISPATCH(MakeKernel)());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(chosen);
  all.push_back(ReferenceAttention());
  return all;
}

}  // namespace

std::span<const AttentionKernel> AllAttentionKernels() {
  static const std::vector<AttentionKernel> kAll = MakeAll();
  return kAll;
}

const AttentionKernel& CpuAttention() { return AllAttentionKernels().front(); }

Result<const AttentionKernel*> AttentionByName(std::string_view name) {
  std::string known;
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    if (kernel.name == name) return &kernel;
    known += (known.empty() ? "" : ", ") + std::string(kernel.name);
  }
  return InvalidArgument("unknown attention kernel \"" + std::string(name) +
                         "\"; this machine can run: " + known);
}

Status CheckAttentionShape(const AttentionShape& shape) {
  const int head_dim = shape.format.head_dim;
  if (head_dim <= 0 || head_dim % kHeadDimStep != 0 || head_dim > kMaxHeadDim) {
    return Unsupported("head size " + std::to_string(head_dim) + "; expected a multiple of " +
                       std::to_string(kHeadDimStep) + " up to " + std::to_string(kMaxHeadDim));
  }
  if (shape.num_kv_heads <= 0 || shape.num_q_heads <= 0 ||
      shape.num_q_heads % shape.num_kv_heads != 0) {
    return Unsupported(std::to_string(shape.num_q_heads) + " query heads over " +
                       std::to_string(shape.num_kv_heads) + " kv heads; expected a multiple");
  }
  return OkStatus();
}

}  // namespace ebb

#endif  // HWY_ONCE
