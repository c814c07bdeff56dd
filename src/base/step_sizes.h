// Limits of step sizes, shared by the engine and the memory planner.
#ifndef EBB_BASE_STEP_SIZES_H_
#define EBB_BASE_STEP_SIZES_H_

#include "ebb/lossless.h"

namespace ebb {

// Steps of at most so many tokens, as of one sequence's decoding and verifying, take turns in the
// same compute buffers. Those of a larger step go back to the system after it.
inline constexpr int kTokensInKeptBuffers = kMostDrafted;

}  // namespace ebb

#endif  // EBB_BASE_STEP_SIZES_H_
