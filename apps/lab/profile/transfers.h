// How long moving tokens between tiers takes, by their number: a session of its own whose placement
// moves just that many down, and up again.
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

// Tokens of one move; all (layer, kv head) of them.
struct Transfer {
  Tier from = Tier::kT0;
  Tier to = Tier::kT1;
  int tokens = 0;
  size_t bytes = 0;    // at full precision
  double seconds = 0;  // the median of a few
};

// Tokens that stay in each tier, besides those that are moved.
inline constexpr int kTransferStay = 64;

// Moves 1, 4, 16, ... up to all of the tokens but kTransferStay, which are read first, to each of
// `tiers` and back. The engine must have those tiers. Errors: of the engine; kCancelled.
[[nodiscard]] Result<std::vector<Transfer>> MeasureTransfers(Engine& engine,
                                                             std::span<const Token> tokens,
                                                             std::span<const Tier> tiers,
                                                             const std::atomic<bool>* cancel);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_TRANSFERS_H_
