// Invariant: placed_ holds the RoPE position of every visible row that was in the cache when
// offset_ changed last; all newer rows have RoPE position (position - offset_).
#include "src/step/rotation/rope_positions.h"

#include <algorithm>
#include <cstdint>
#include <limits>

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

void RopePositions::Turns(const SequenceCache& cache, int group, Position end,
                          std::vector<Position>* turns) const {
  const auto positions = cache.positions(group);
  Position place = end - static_cast<Position>(positions.size());
  turns->clear();
  for (const Position position : positions) turns->push_back(place++ - Of(group, position));
}

void RopePositions::MarkRotated(const SequenceCache& cache, int group, Position end) {
  placed_.resize(cache.layout().num_groups());
  const auto positions = cache.positions(group);
  Position place = end - static_cast<Position>(positions.size());
  placed_[group].clear();
  for (const Position position : positions) placed_[group].push_back({position, place++});
}

// Forgets the RoPE positions of rows that the cache no longer has, and recomputes offset_ from the
// remaining rows: re-rotated rows lie closer together than their positions in the text, so the
// remaining rows may end after end - offset_.
void RopePositions::TruncateTo(const SequenceCache& cache, Position end) {
  if (placed_.empty()) return;
  Position next_place = 0;
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    std::vector<Placed> left;
    for (const Position position : cache.positions(group)) {
      left.push_back({position, Of(group, position)});
      next_place = std::max(next_place, left.back().place + 1);
    }
    placed_[group] = std::move(left);
  }
  offset_ = end - next_place;
}

void RopePositions::Save(StateWriter* to) const {
  to->Number<Position>(offset_);
  to->Number<uint64_t>(placed_.size());
  for (const std::vector<Placed>& rows : placed_) {
    std::vector<Position> positions, places;
    for (const Placed& row : rows) {
      positions.push_back(row.position);
      places.push_back(row.place);
    }
    to->Numbers<Position>(positions);
    to->Numbers<Position>(places);
  }
}

void RopePositions::Load(int num_groups, Position next, StateReader* from) {
  offset_ = from->Number<Position>();
  // offset_ is negative if, after a roll-back, the remaining rows had been rotated up to rows that
  // were removed, or to the end of a longer group.
  const int64_t next_place = int64_t{next} - offset_;
  if (next_place < 0 || next_place > std::numeric_limits<Position>::max()) {
    from->Fail("a turn past the end of the sequence");
    offset_ = 0;
  }
  const size_t num_placed = from->Length(2 * sizeof(uint64_t));
  if (num_placed != 0 && num_placed != static_cast<size_t>(num_groups)) {
    from->Fail("turned rows of another number of groups");
  }
  if (num_placed == 0 && offset_ != 0) from->Fail("a turn of no rows");
  placed_.resize(from->ok() ? num_placed : 0);
  for (std::vector<Placed>& rows : placed_) {
    const auto positions = from->Numbers<Position>();
    const auto places = from->Numbers<Position>();
    if (positions.size() != places.size()) from->Fail("turned rows without a place");
    for (size_t i = 0; i < positions.size() && from->ok(); ++i) {
      const bool ascends = i == 0 || (positions[i] > positions[i - 1] && places[i] > places[i - 1]);
      if (!ascends || positions[i] < 0 || places[i] < 0 || places[i] >= next - offset_) {
        from->Fail("turned rows out of order");
      }
      rows.push_back({positions[i], places[i]});
    }
  }
}

}  // namespace ebb
