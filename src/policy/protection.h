// Finds the rows that "Not All Thoughts Need HBM" (3.2) protects from eviction: all given tokens
// (the prompt and later user turns), the first `sinks` generated tokens, and the newest `window`
// tokens of any kind.
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

// Replaces `unprotected` by the unprotected positions, as few ascending ranges as possible;
// positions of evicted rows are included. kinds: of all tokens so far, by position.
void FindUnprotected(std::span<const TokenKind> kinds, int sinks, int window,
                     std::vector<PositionRange>* unprotected);

[[nodiscard]] size_t CountPositions(std::span<const PositionRange> ranges);

// Returns the number of given tokens.
[[nodiscard]] int64_t CountGiven(std::span<const TokenKind> kinds);

// Replaces `rows` by the index ranges of the group's rows whose positions lie in `ranges`.
void FindRows(std::span<const Position> positions, std::span<const PositionRange> ranges,
              std::vector<RowRange>* rows);

}  // namespace ebb

#endif  // EBB_POLICY_PROTECTION_H_
