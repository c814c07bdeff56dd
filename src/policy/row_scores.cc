#include "src/policy/row_scores.h"

#include <algorithm>
#include <cassert>

#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

// Memory goes back when a group shrinks to a fraction of what it was; below this it may stay.
constexpr size_t kSmallCapacity = 1024;
constexpr size_t kShrinkRatio = 4;

// The first i with kept[i] != i. kept[i] - i never falls, so it can be found by halving.
size_t FirstGap(std::span<const uint32_t> kept) {
  size_t low = 0;
  size_t high = kept.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (kept[middle] == middle) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

RowScores::RowScores(int num_groups) : groups_(num_groups) {}

std::span<float> RowScores::Append(int group, size_t num_rows) {
  std::vector<float>& rows = groups_[group];
  rows.resize(rows.size() + num_rows, 0.0f);
  return std::span(rows).last(num_rows);
}

void RowScores::Retain(int group, std::span<const uint32_t> kept) {
  std::vector<float>& rows = groups_[group];
  assert(kept.size() <= rows.size() && (kept.empty() || kept.back() < rows.size()));
  const size_t gap = FirstGap(kept);
  if (kept.size() + 1 == rows.size()) {
    std::copy(rows.begin() + gap + 1, rows.end(), rows.begin() + gap);
  } else {
    for (size_t i = gap; i < kept.size(); ++i) rows[i] = rows[kept[i]];
  }
  rows.resize(kept.size());
  if (rows.capacity() > kSmallCapacity && rows.capacity() / kShrinkRatio > rows.size()) {
    rows.shrink_to_fit();
  }
}

void RowScores::SetAllToZero() {
  for (std::vector<float>& rows : groups_) std::fill(rows.begin(), rows.end(), 0.0f);
}

std::span<float> RowScores::operator[](int group) { return groups_[group]; }

void RowScores::Expect(int group) const { FetchAhead<float>(groups_[group]); }

Status RowScores::Save(StateWriter* to) const {
  to->Number<uint64_t>(groups_.size());
  for (const std::vector<float>& rows : groups_) to->Numbers<float>(rows);
  return OkStatus();
}

Status RowScores::Load(StateReader* from) {
  if (from->Number<uint64_t>() != groups_.size()) from->Fail("scores of another number of groups");
  for (std::vector<float>& rows : groups_) rows = from->Numbers<float>();
  return from->status();
}

}  // namespace ebb
