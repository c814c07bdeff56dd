// Declares the kernels that are compiled once per instruction set, in three sources so that each
// compiles in seconds. The functions set members of a kernel to the functions of Highway's chosen
// target.
#ifndef EBB_ATTENTION_CPU_KERNELS_H_
#define EBB_ATTENTION_CPU_KERNELS_H_

#include <cstdint>
#include <vector>

#include "src/attention/attention.h"

// Leaves out instruction sets that would run the same code as a neighbour in Highway's list.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

namespace ebb {

// Returns the instruction sets that were compiled and that this machine has, the best first.
[[nodiscard]] std::vector<int64_t> GeneratedTargets();

// Sets the name, and the kernels of decode steps over rows in full precision.
void SetFullKernels(AttentionKernel* kernel);
// Sets the kernels of prompts.
void SetPrefillKernels(AttentionKernel* kernel);
// Sets the kernels of compressed rows.
void SetCompressedKernels(AttentionKernel* kernel);
// Sets the name and the kernels that multiply bytes by VNNI instructions. Returns whether the
// chosen target has these instructions.
[[nodiscard]] bool SetVnniKernels(AttentionKernel* kernel);

}  // namespace ebb

#endif  // EBB_ATTENTION_CPU_KERNELS_H_
