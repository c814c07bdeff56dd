#include "src/step/device/page_lists.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ebb {

static_assert(sizeof(Slot) == sizeof(int32_t));

RowsView RowsOnDevice(const SequenceCache& cache, int layer, int head) {
  return cache.views().ReadsInPlace() ? cache.views().RowsIn(Tier::kT0, layer, head).view
                                      : cache.views().View(layer, head);
}

PageLists::PageLists(std::vector<int> kv_heads, int num_pages, int num_groups, int num_rows)
    : kv_heads_(std::move(kv_heads)),
      num_pages_(num_pages),
      num_rows_(num_rows),
      num_groups_(num_groups),
      first_stream_(1, 0),
      slots_(num_groups_ * num_rows_),
      sizes_(num_groups_) {
  for (const int heads : kv_heads_) first_stream_.push_back(first_stream_.back() + heads);
  addresses_.resize(first_stream_.back());
  pages_.resize(first_stream_.back() * num_pages_);
}

std::span<const int32_t> PageLists::PagesOfLayer(int layer) const {
  return std::span(pages_).subspan(first_stream_[layer] * num_pages_,
                                   kv_heads_[layer] * num_pages_);
}

bool PageLists::UpdatePages(const SequenceCache& cache, const BackendDevice& device, int layer) {
  bool is_changed = false;
  for (int head = 0; head < kv_heads_[layer]; ++head) {
    const size_t stream = first_stream_[layer] + head;
    const RowsView view = RowsOnDevice(cache, layer, head);
    // If rows lie in slot order, only the pages up to the last row are needed; else slots may name
    // any page.
    const size_t num_pages = num_groups_ == 0
                                 ? (view.slots.size() + kRowsPerPage - 1) / kRowsPerPage
                                 : cache.views().CountsOf(layer, head).pages;
    assert(num_pages <= num_pages_);
    std::optional<std::vector<const std::byte*>>& listed = addresses_[stream];
    const std::span<const std::byte* const> pages(view.pages, num_pages);
    if (listed.has_value() && std::ranges::equal(*listed, pages)) continue;
    listed.emplace(pages.begin(), pages.end());
    int32_t* const list = pages_.data() + stream * num_pages_;
    const int32_t spare = device.spare_row() / static_cast<int32_t>(kRowsPerPage);
    const TokenTable& table = cache.tables().Of(cache.layout().GroupOf(layer, head)).rows;
    for (size_t page = 0; page < num_pages; ++page) {
      list[page] = view.pages[page] == nullptr || table.HasPage(page, Tier::kT2)
                       ? spare
                       : device.RowNumber(view.pages[page]) / static_cast<int32_t>(kRowsPerPage);
    }
    std::fill(list + num_pages, list + num_pages_, spare);
    is_changed = true;
  }
  return is_changed;
}

void PageLists::UpdateSlots(const SequenceCache& cache, std::vector<Change>* changes) {
  assert(static_cast<size_t>(cache.layout().num_groups()) == num_groups_);
  std::vector<bool> is_done(num_groups_);
  for (size_t layer = 0; layer < kv_heads_.size(); ++layer) {
    for (int head = 0; head < kv_heads_[layer]; ++head) {
      const auto group = static_cast<size_t>(cache.layout().GroupOf(static_cast<int>(layer), head));
      if (is_done[group]) continue;
      is_done[group] = true;
      const std::span<const Slot> slots = RowsOnDevice(cache, static_cast<int>(layer), head).slots;
      assert(slots.size() <= num_rows_);
      int32_t* const list = slots_.data() + group * num_rows_;
      const auto* const now = reinterpret_cast<const int32_t*>(slots.data());
      const size_t alike = std::min(sizes_[group], slots.size());
      const size_t begin = std::mismatch(now, now + alike, list).first - now;
      sizes_[group] = slots.size();
      if (begin == slots.size()) continue;
      std::copy(now + begin, now + slots.size(), list + begin);
      const Change change = {.begin = group * num_rows_ + begin,
                             .end = group * num_rows_ + slots.size()};
      if (!changes->empty() && changes->back().end == change.begin) {
        changes->back().end = change.end;
      } else {
        changes->push_back(change);
      }
    }
  }
}

void PageLists::Forget() {
  for (auto& listed : addresses_) listed.reset();
  std::ranges::fill(sizes_, 0);
}

bool PageLists::InOrder(const SequenceCache& cache, int num_layers) {
  const Slot* table = nullptr;  // table of the stream before
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      const std::span<const Slot> slots = RowsOnDevice(cache, layer, head).slots;
      if (slots.data() == table) continue;
      table = slots.data();
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < slots.size(); ++i) wrong |= slots[i].value ^ i;
      if (wrong != 0) return false;
    }
  }
  return true;
}

}  // namespace ebb
