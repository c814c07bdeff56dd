// Lists the attention kernels that this machine can run. Other sources (cpu_full.cc,
// cpu_prefill.cc, cpu_compressed.cc) compile them once per instruction set.
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "src/attention/attention.h"
#include "src/attention/cpu_kernels.h"

namespace ebb {
namespace {

// Returns the kernels of all instruction sets, the best first, and the reference last.
std::vector<AttentionKernel> MakeAll() {
  std::vector<AttentionKernel> all;
  const int64_t chosen = hwy::SupportedTargets();
  for (const int64_t target : GeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    AttentionKernel kernel;
    SetFullKernels(&kernel);
    SetPrefillKernels(&kernel);
    SetCompressedKernels(&kernel);
    AttentionKernel vnni = kernel;
    if (SetVnniKernels(&vnni)) all.push_back(vnni);
    all.push_back(kernel);
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
