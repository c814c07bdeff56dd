#include "src/policy/protection.h"

#include <algorithm>
#include <cstring>

namespace ebb {
namespace {

// Returns the index of the first token of the kind at `from` or later; kinds.size() if there is
// none. Uses memchr because a placement may call this for each of 90 groups at each step.
size_t FindKind(std::span<const TokenKind> kinds, size_t from, TokenKind kind) {
  if (from >= kinds.size()) return kinds.size();
  const void* found =
      std::memchr(kinds.data() + from, static_cast<unsigned char>(kind), kinds.size() - from);
  if (found == nullptr) return kinds.size();
  return static_cast<const TokenKind*>(found) - kinds.data();
}

}  // namespace

void FindUnprotected(std::span<const TokenKind> kinds, int sinks, int window,
                     std::vector<PositionRange>* unprotected) {
  unprotected->clear();
  if (kinds.size() <= static_cast<size_t>(window)) return;
  const size_t window_begin = kinds.size() - window;
  size_t sinks_left = sinks;
  size_t begin = FindKind(kinds, 0, TokenKind::kGenerated);
  while (begin < window_begin) {
    const size_t end = std::min(FindKind(kinds, begin, TokenKind::kGiven), window_begin);
    const size_t num_sinks = std::min(sinks_left, end - begin);
    sinks_left -= num_sinks;
    begin += num_sinks;
    if (begin < end) {
      unprotected->push_back({static_cast<Position>(begin), static_cast<Position>(end)});
    }
    begin = FindKind(kinds, end, TokenKind::kGenerated);
  }
}

size_t CountPositions(std::span<const PositionRange> ranges) {
  size_t num_positions = 0;
  for (const PositionRange& range : ranges) num_positions += range.end - range.begin;
  return num_positions;
}

int64_t CountGiven(std::span<const TokenKind> kinds) {
  return std::count(kinds.begin(), kinds.end(), TokenKind::kGiven);
}

void FindRows(std::span<const Position> positions, std::span<const PositionRange> ranges,
              std::vector<RowRange>* rows) {
  rows->clear();
  auto from = positions.begin();
  for (const PositionRange& range : ranges) {
    const auto begin = std::lower_bound(from, positions.end(), range.begin);
    const auto end = std::lower_bound(begin, positions.end(), range.end);
    if (begin != end) {
      rows->push_back({static_cast<size_t>(begin - positions.begin()),
                       static_cast<size_t>(end - positions.begin())});
    }
    from = end;
  }
}

}  // namespace ebb
