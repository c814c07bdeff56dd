#include "src/policy/row_scores.h"

#include <algorithm>
#include <cassert>

#include "ebb/types.h"
#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

// Returns the first i with kept[i] != i. Uses binary search, since kept[i] - i never falls.
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

template <typename T>
RowValues<T>::RowValues(size_t num_groups, size_t width) : width_(width), groups_(num_groups) {}

template <typename T>
std::span<T> RowValues<T>::Append(int group, size_t num_rows) {
  MappedArray<T>& rows = groups_[group];
  GrowTo(&rows, rows.size() + num_rows * width_);
  rows.resize(rows.size() + num_rows * width_);
  return std::span(rows).last(num_rows * width_);
}

template <typename T>
void RowValues<T>::Retain(int group, std::span<const uint32_t> kept) {
  MappedArray<T>& rows = groups_[group];
  assert(kept.empty() || kept.back() < num_rows(group));
  const size_t gap = FirstGap(kept);
  if (width_ > 1) {
    for (size_t i = gap; i < kept.size(); ++i) {
      std::copy_n(rows.begin() + kept[i] * width_, width_, rows.begin() + i * width_);
    }
  } else if (kept.size() + 1 == rows.size()) {
    std::copy(rows.begin() + gap + 1, rows.end(), rows.begin() + gap);
  } else {
    for (size_t i = gap; i < kept.size(); ++i) rows[i] = rows[kept[i]];
  }
  rows.resize(kept.size() * width_);
  ShrinkToContents(&rows);
}

template <typename T>
void RowValues<T>::SetAllToZero() {
  for (MappedArray<T>& rows : groups_) std::fill(rows.begin(), rows.end(), T{});
}

template <typename T>
std::span<T> RowValues<T>::operator[](int group) {
  return groups_[group];
}

template <typename T>
std::span<const T> RowValues<T>::operator[](int group) const {
  return groups_[group];
}

template <typename T>
void RowValues<T>::Prefetch(int group) const {
  FetchAhead<T>(groups_[group]);
}

template <typename T>
Status RowValues<T>::Save(StateWriter* to) const {
  to->Number<uint64_t>(groups_.size());
  for (const MappedArray<T>& rows : groups_) to->Numbers<T>(rows);
  return OkStatus();
}

template <typename T>
Status RowValues<T>::Load(StateReader* from) {
  if (from->Number<uint64_t>() != groups_.size()) from->Fail("scores of another number of groups");
  for (MappedArray<T>& rows : groups_) {
    const std::vector<T> loaded = from->Numbers<T>();
    rows.clear();
    GrowTo(&rows, loaded.size());
    rows.assign(loaded.begin(), loaded.end());
    if (rows.size() % width_ != 0) from->Fail("a row that is not whole");
  }
  return from->status();
}

template class RowValues<float>;
template class RowValues<int16_t>;
template class RowValues<uint16_t>;
template class RowValues<Position>;

}  // namespace ebb
