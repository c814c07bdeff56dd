// Declares the kernels that are compiled once per instruction set, in three sources so that each
// compiles in seconds. The functions set members of a kernel to the functions of Highway's chosen
// target.
#ifndef EBB_ATTENTION_CPU_KERNELS_H_
#define EBB_ATTENTION_CPU_KERNELS_H_

#include <cstdint>
#include <vector>

#include "src/attention/attention.h"

// Excludes instruction sets for which the code would be the same as for the next one in Highway's
// list.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

namespace ebb {

// Returns the instruction sets that were compiled and that this machine supports, the best first.
[[nodiscard]] std::vector<int64_t> GeneratedTargets();

// Sets the kernel's name, and its functions for decode steps over full-precision rows.
void SetFullKernels(AttentionKernel* kernel);
// Sets the kernel's functions for prefill.
void SetPrefillKernels(AttentionKernel* kernel);
// Sets the kernel's functions for compressed rows.
void SetCompressedKernels(AttentionKernel* kernel);
// Sets the kernel's name and its functions that multiply bytes by VNNI instructions. Returns false,
// with nothing set, if the chosen target lacks these instructions.
[[nodiscard]] bool SetVnniKernels(AttentionKernel* kernel);

}  // namespace ebb

#endif  // EBB_ATTENTION_CPU_KERNELS_H_
