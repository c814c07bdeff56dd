// The protected set of "Not All Thoughts Need HBM" (3.2): all given tokens (prompt and later user
// turns), the first `sinks` generated tokens, the newest `window` tokens of any kind.
#ifndef EBB_POLICY_PROTECTION_H_
#define EBB_POLICY_PROTECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/types.h"
#include "src/policy/selection.h"

namespace ebb {

struct PositionRange {
  Position begin = 0;
  Position end = 0;
  bool operator==(const PositionRange&) const = default;
};

// The unprotected positions, ascending and as few ranges as possible, whether their rows are alive
// or not. kinds: by position, of all tokens so far.
void FindUnprotected(std::span<const TokenKind> kinds, int sinks, int window,
                     std::vector<PositionRange>* unprotected);

[[nodiscard]] size_t CountPositions(std::span<const PositionRange> ranges);

// The given tokens among them.
[[nodiscard]] int64_t CountGiven(std::span<const TokenKind> kinds);

// The rows of a group that lie in the ranges.
void FindRows(std::span<const Position> positions, std::span<const PositionRange> ranges,
              std::vector<RowRange>* rows);

}  // namespace ebb

#endif  // EBB_POLICY_PROTECTION_H_
