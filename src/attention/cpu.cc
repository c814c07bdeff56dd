// The kernels of fold-inl.h, merge-inl.h, compressed-inl.h and prefill-inl.h, compiled once per
// instruction set, and their choice. Left out: instruction sets that would run the same code as a
// listed neighbour.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/attention/cpu.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/attention/compressed-inl.h"
#include "src/attention/fold-inl.h"
#include "src/attention/merge-inl.h"
#include "src/attention/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// The kernels of one instruction set, the best first, of which there are at most kMaxKernels.
int MakeKernels(AttentionKernel* kernels) {
  int count = 0;
  AttentionKernel kernel = {
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
      .fold_compressed = FoldCompressed<Dots::kPortable>,
      .prefill = Prefill,
      .prefill_mass = PrefillMass,
  };
#if HWY_TARGET == HWY_AVX3
  if (__builtin_cpu_supports("avx512vnni")) {
    kernels[count] = kernel;
    kernels[count].name = "AVX3_VNNI";
    kernels[count].fold_compressed = FoldCompressed<Dots::kVnni>;
    ++count;
  }
#endif
  kernels[count++] = kernel;
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <string>
#include <vector>

namespace ebb {
namespace {

HWY_EXPORT(MakeKernels);
constexpr int kMaxKernels = 2;

// Best instruction set first, the reference last.
std::vector<AttentionKernel> MakeAll() {
  std::vector<AttentionKernel> all;
  const int64_t chosen = hwy::SupportedTargets();
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    AttentionKernel kernels[kMaxKernels];
    const int count = HWY_DYNAMIC_DISPATCH(MakeKernels)(kernels);
    all.insert(all.end(), kernels, kernels + count);
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
