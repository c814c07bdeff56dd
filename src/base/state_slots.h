// Describes the memory in which steps with guesses keep the recurrent state after each token.
#ifndef EBB_BASE_STATE_SLOTS_H_
#define EBB_BASE_STATE_SLOTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ebb {

// StatePart is one layer's part of a recurrent state.
struct StatePart {
  size_t offset = 0;  // in the state
  size_t bytes = 0;
};

// Returns how many states of `state_bytes` (> 0) a sequence keeps in a step with guesses, from 1 to
// `most`: as many as take an eighth of the weights, or 64 MiB if that is more.
[[nodiscard]] inline int MostStateSlots(size_t state_bytes, uint64_t weight_bytes, int most) {
  constexpr uint64_t kLeastBytes = uint64_t{64} << 20;
  const uint64_t budget = std::max(weight_bytes / 8, kLeastBytes);
  return static_cast<int>(
      std::clamp<uint64_t>(budget / state_bytes, 1, static_cast<uint64_t>(most)));
}

}  // namespace ebb

#endif  // EBB_BASE_STATE_SLOTS_H_
