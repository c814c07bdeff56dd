// Units of a device's memory, shared with the memory planner.
#ifndef EBB_BASE_DEVICE_SIZES_H_
#define EBB_BASE_DEVICE_SIZES_H_

#include <cstddef>

#include "src/base/page_units.h"

namespace ebb {

// The buffer of rows grows by at least so much, and does not shrink below it.
inline constexpr size_t kLeastDeviceExtents = 8;
inline constexpr size_t kLeastDeviceBytes = kLeastDeviceExtents * kExtentBytes;

// Graphs that steps keep: a decode's, a prompt's, and those of batches that change.
inline constexpr size_t kKeptDeviceGraphs = 6;
// ggml's kernels of CUDA read masks by tiles of up to so many tokens, beyond the last one too.
inline constexpr int kMaskPaddingTokens = 64;

}  // namespace ebb

#endif  // EBB_BASE_DEVICE_SIZES_H_
