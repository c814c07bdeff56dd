// Invariant: placed_ holds every visible row that was in the cache when offset_ changed last; all
// others are younger, and lie at position - offset_.
#include "src/engine/rope_positions.h"

#include <algorithm>

namespace ebb {

Position RopePositions::Of(int group, Position position) const {
  if (!placed_.empty()) {
    const std::vector<Placed>& rows = placed_[group];
    const auto at =
        std::lower_bound(rows.begin(), rows.end(), position,
                         [](const Placed& row, Position wanted) { return row.position < wanted; });
    if (at != rows.end() && at->position == position) return at->place;
  }
  return position - offset_;
}

void RopePositions::Turns(const SequenceCache& cache, int group,
                          std::vector<Position>* turns) const {
  const auto positions = cache.positions(group);
  turns->resize(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto place = static_cast<Position>(cache.max_rows() - positions.size() + i);
    (*turns)[i] = place - Of(group, positions[i]);
  }
}

void RopePositions::Turned(const SequenceCache& cache, int group) {
  placed_.resize(cache.num_groups());
  const auto positions = cache.positions(group);
  placed_[group].clear();
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto place = static_cast<Position>(cache.max_rows() - positions.size() + i);
    placed_[group].push_back({positions[i], place});
  }
}

void RopePositions::Continue(const SequenceCache& cache, Position next) {
  offset_ = next - static_cast<Position>(cache.max_rows());
}

// Turned rows lie closer than their positions: what is left may end later than end - offset_.
void RopePositions::TruncateTo(const SequenceCache& cache, Position end) {
  if (placed_.empty()) return;
  Position next_place = 0;
  for (int group = 0; group < cache.num_groups(); ++group) {
    std::vector<Placed> left;
    for (const Position position : cache.positions(group)) {
      left.push_back({position, Of(group, position)});
      next_place = std::max(next_place, left.back().place + 1);
    }
    placed_[group] = std::move(left);
  }
  offset_ = end - next_place;
}

}  // namespace ebb
