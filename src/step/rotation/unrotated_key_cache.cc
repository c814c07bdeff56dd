#include "src/step/rotation/unrotated_key_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ebb {
namespace {

// Returns the bytes of a token's keys in all streams of a group.
size_t BytesOfRow(const SequenceCache& cache, int group) {
  return cache.layout().NumStreamsOf(group) * cache.layout().format().RowStride();
}

}  // namespace

void UnrotatedKeyCache::PutBack(const SequenceCache& cache, int group, const RopePositions& rope,
                                Position next, const TurningKeys& keys, std::span<Position> turns) {
  rows_.resize(cache.layout().num_groups());
  const auto positions = cache.positions(group);
  const size_t num_streams = cache.layout().StreamsOf(group).size();
  const size_t stride = cache.layout().format().RowStride();
  const size_t num_turning = turns.size() - std::ranges::count(turns, 0);
  std::vector<Row> before = std::exchange(rows_[group], {});
  auto known = before.begin();
  for (size_t i = 0; i < positions.size() && positions[i] < next; ++i) {
    while (known != before.end() && known->position < positions[i]) ++known;  // the row was removed
    const bool is_here = known != before.end() && known->position == positions[i];
    const bool fits = num_turning <= kMostRows && rows_[group].size() < kMostRows;
    if (!is_here && (turns[i] == 0 || !fits)) continue;
    const Position place = rope.Of(group, positions[i]);
    Row row = is_here ? std::move(*known) : Row{positions[i], place, {}};
    if (!is_here) row.keys.resize(BytesOfRow(cache, group));
    std::byte* key = row.keys.data();
    for (size_t stream = 0; stream < num_streams && turns[i] != 0; ++stream) {
      std::byte* const stored = keys.OfStream(stream)[i];
      is_here ? std::memcpy(stored, key, stride) : std::memcpy(key, stored, stride);
      key += stride;
    }
    if (turns[i] != 0) turns[i] += place - row.place;
    rows_[group].push_back(std::move(row));
  }
}

void UnrotatedKeyCache::TruncateTo(Position end) {
  for (std::vector<Row>& rows : rows_) {
    std::erase_if(rows, [&](const Row& row) { return row.position >= end; });
  }
}

size_t UnrotatedKeyCache::memory_bytes() const {
  size_t bytes = rows_.capacity() * sizeof(rows_[0]);
  for (const std::vector<Row>& rows : rows_) {
    bytes += rows.capacity() * sizeof(Row);
    for (const Row& row : rows) bytes += row.keys.capacity();
  }
  return bytes;
}

void UnrotatedKeyCache::Save(StateWriter* to) const {
  to->Number<uint64_t>(rows_.size());
  for (const std::vector<Row>& rows : rows_) {
    to->Number<uint64_t>(rows.size());
    for (const Row& row : rows) {
      to->Number<Position>(row.position);
      to->Number<Position>(row.place);
      to->Text({reinterpret_cast<const char*>(row.keys.data()), row.keys.size()});
    }
  }
}

void UnrotatedKeyCache::Load(const SequenceCache& cache, Position next, StateReader* from) {
  const size_t num_groups = from->Length(sizeof(uint64_t));
  if (num_groups != 0 && num_groups != static_cast<size_t>(cache.layout().num_groups())) {
    from->Fail("first keys of another number of groups");
  }
  rows_.resize(from->ok() ? num_groups : 0);
  for (std::vector<Row>& rows : rows_) {
    const size_t row_bytes = BytesOfRow(cache, static_cast<int>(&rows - rows_.data()));
    const size_t num_rows = from->Length(row_bytes);
    Position after = 0;
    for (size_t i = 0; i < num_rows && from->ok(); ++i) {
      const auto position = from->Number<Position>();
      const auto place = from->Number<Position>();
      const std::string keys = from->Text();
      if (position < after || position >= next || place < 0 || keys.size() != row_bytes) {
        from->Fail("first keys that are none of the sequence's");
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(keys.data());
      rows.push_back({position, place, {bytes, bytes + keys.size()}});
      after = position + 1;
    }
  }
}

}  // namespace ebb
