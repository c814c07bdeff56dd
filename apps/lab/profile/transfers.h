// Measures how long it takes to move tokens between tiers, in a session whose placement moves a
// given number of tokens down and up again.
#ifndef EBB_APPS_PROFILE_TRANSFERS_H_
#define EBB_APPS_PROFILE_TRANSFERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/status.h"

namespace ebb::cli {

// Transfer is the measured move of some tokens with their rows of all layers and kv heads.
struct Transfer {
  Tier from = Tier::kT0;
  Tier to = Tier::kT1;
  int tokens = 0;
  size_t bytes = 0;    // size of the rows at full precision
  double seconds = 0;  // median of the repetitions
};

// kTransferStay is the number of tokens that stay in each tier while others are moved.
inline constexpr int kTransferStay = 64;

// Prefills `tokens`, then moves 1, 4, 16, ... of them, up to all but kTransferStay, to each of
// `tiers` and back to T0, and measures the moves. Errors: those of the engine; kCancelled.
// REQUIRES: the engine has these tiers.
[[nodiscard]] Result<std::vector<Transfer>> MeasureTransfers(Engine& engine,
                                                             std::span<const Token> tokens,
                                                             std::span<const Tier> tiers,
                                                             const std::atomic<bool>* cancel);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_TRANSFERS_H_
