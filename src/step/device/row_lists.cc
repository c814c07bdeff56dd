#include "src/step/device/row_lists.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "src/step/device/page_lists.h"

namespace ebb {

namespace {

// Returns the number of the row in the device's buffer, or that of a row of zeros if the row's page
// has no address, as pages of T1 that a selector leaves out.
int32_t NumberOf(const BackendDevice& device, const RowsView& view, Slot slot) {
  const std::byte* const page = view.pages[slot.page()];
  if (page == nullptr) return device.spare_row();
  return device.RowNumber(page) + static_cast<int32_t>(slot.row());
}

}  // namespace

RowLists::RowLists(std::vector<int> kv_heads, int num_rows)
    : kv_heads_(std::move(kv_heads)), num_rows_(num_rows), first_(1, 0) {
  for (const int heads : kv_heads_) first_.push_back(first_.back() + int64_t{heads} * num_rows);
  lists_.resize(static_cast<size_t>(first_.back()));
  streams_.resize(std::accumulate(kv_heads_.begin(), kv_heads_.end(), size_t{0}));
  size_t stream = 0;
  for (const int heads : kv_heads_) {
    first_stream_.push_back(stream);
    stream += heads;
  }
}

std::span<const int32_t> RowLists::OfLayer(int layer) const {
  return std::span(lists_).subspan(static_cast<size_t>(first_[layer]),
                                   static_cast<size_t>(first_[layer + 1] - first_[layer]));
}

void RowLists::Forget() {
  tables_.clear();
  for (Stream& stream : streams_) stream = {};
}

int RowLists::TableOf(std::span<const Slot> slots) {
  for (size_t i = num_next_; i-- > 0;) {
    if (next_[i].data == slots.data() && next_[i].slots.size() == slots.size()) {
      return static_cast<int>(i);
    }
    // Streams that share a table are adjacent, so that only the newest table needs comparing.
    if (num_next_ - i > 1) break;
  }
  if (num_next_ == next_.size()) next_.emplace_back();
  Table& table = next_[num_next_];
  table.data = slots.data();
  table.slots.assign(slots.begin(), slots.end());
  table.num_pages = 0;
  for (const Slot slot : slots)
    table.num_pages = std::max<size_t>(table.num_pages, slot.page() + 1);
  table.before = -1;
  return static_cast<int>(num_next_++);
}

size_t RowLists::NumAlike(int table, int before) {
  Table& now = next_[table];
  if (now.before != before) {
    const std::vector<Slot>& had = tables_[before].slots;
    const size_t most = std::min(had.size(), now.slots.size());
    now.before = before;
    now.num_alike = static_cast<size_t>(
        std::mismatch(now.slots.begin(), now.slots.begin() + most, had.begin()).first -
        now.slots.begin());
  }
  return now.num_alike;
}

RowLists::Change RowLists::Update(const SequenceCache& cache, const BackendDevice& device,
                                  int layer) {
  const int heads = kv_heads_[layer];
  Change change = {.begin = num_rows_, .end = 0};
  for (int head = 0; head < heads; ++head) {
    Stream& stream = streams_[first_stream_[layer] + head];
    const RowsView view = RowsOnDevice(cache, layer, head);
    const std::span<const Slot> slots = view.slots;
    assert(slots.size() <= static_cast<size_t>(num_rows_));
    const int table = TableOf(slots);
    const size_t num_pages = next_[table].num_pages;
    const bool is_known = stream.table >= 0;
    const bool pages_stay =
        is_known &&
        std::equal(stream.pages.begin(),
                   stream.pages.begin() + std::min(stream.pages.size(), num_pages), view.pages);
    const size_t had = is_known ? tables_[stream.table].slots.size() : num_rows_;
    const size_t begin = pages_stay ? NumAlike(table, stream.table) : 0;
    stream.table = table;
    if (!pages_stay || stream.pages.size() != num_pages) {
      stream.pages.assign(view.pages, view.pages + num_pages);
    }
    int32_t* const list = lists_.data() + first_[layer] + head;
    for (size_t row = begin; row < slots.size(); ++row) {
      list[row * heads] = NumberOf(device, view, slots[row]);
    }
    for (size_t row = slots.size(); row < had; ++row) list[row * heads] = device.spare_row();
    if (begin == slots.size() && had == slots.size()) continue;
    change.begin = std::min(change.begin, static_cast<int>(begin));
    change.end = std::max(change.end, static_cast<int>(std::max(slots.size(), had)));
  }
  return change;
}

RowLists::Change RowLists::Rename(const SequenceCache& cache, const BackendDevice& device,
                                  int layer) {
  const int heads = kv_heads_[layer];
  Change change = {.begin = 0, .end = 0};
  for (int head = 0; head < heads; ++head) {
    Stream& stream = streams_[first_stream_[layer] + head];
    const RowsView view = RowsOnDevice(cache, layer, head);
    stream.pages.assign(view.pages, view.pages + stream.pages.size());
    int32_t* const list = lists_.data() + first_[layer] + head;
    for (size_t row = 0; row < view.slots.size(); ++row) {
      list[row * heads] = NumberOf(device, view, view.slots[row]);
    }
    change.end = std::max(change.end, static_cast<int>(view.slots.size()));
  }
  return change;
}

}  // namespace ebb
