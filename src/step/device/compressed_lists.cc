#include "src/step/device/compressed_lists.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace ebb {

static_assert(sizeof(Slot) == sizeof(int32_t));

CompressedLists::CompressedLists(std::vector<int> kv_heads, int head_dim, int num_pages,
                                 int num_groups, int num_rows)
    : kv_heads_(std::move(kv_heads)),
      head_dim_(head_dim),
      num_pages_(num_pages),
      num_rows_(num_rows),
      slots_(size_t(num_groups) * num_rows) {
  const size_t streams = std::accumulate(kv_heads_.begin(), kv_heads_.end(), size_t{0});
  pages_.resize(streams * num_pages_);
  centres_.resize(streams * head_dim_);
}

namespace {

// Copies the elements of `from` that differ to `to`. Returns whether any did.
template <typename T>
bool Put(std::span<const T> from, T* to) {
  const auto [begin, at] = std::ranges::mismatch(from, std::span<T>(to, from.size()));
  std::copy(begin, from.end(), at);
  return begin != from.end();
}

// Copies the elements of `from` that differ to `to`, and fills the rest of `to` with `padding`.
// Returns whether any element changed.
template <typename T>
bool PutPadded(std::span<const T> from, T padding, std::span<T> to) {
  const bool differs = Put(from, to.data());
  const auto rest = to.subspan(from.size());
  const auto at = std::ranges::find_if(rest, [&](T element) { return element != padding; });
  const bool differs_behind = at != rest.end();
  std::fill(at, rest.end(), padding);
  return differs || differs_behind;
}

}  // namespace

CompressedLists::Changes CompressedLists::Update(const SequenceCache& cache,
                                                 const BackendDevice& device) {
  Changes changes;
  std::vector<int32_t> pages;
  int group_before = -1;
  size_t stream = 0;
  for (size_t layer = 0; layer < kv_heads_.size(); ++layer) {
    for (int head = 0; head < kv_heads_[layer]; ++head, ++stream) {
      const int of_layer = static_cast<int>(layer);
      const CompressedRows rows = cache.views().Compressed(of_layer, head);
      pages.clear();
      const int group = cache.layout().GroupOf(of_layer, head);
      const TokenTable& table = cache.tables().Of(group).rows;
      for (size_t page = 0; page < cache.views().NumPages(of_layer, head); ++page) {
        pages.push_back(table.HasPage(page, Tier::kT2) ? device.RowNumber(rows.pages[page])
                                                       : device.spare_row());
      }
      assert(pages.size() < num_pages_ && rows.slots.size() <= num_rows_);
      changes.pages |= PutPadded<int32_t>(
          pages, device.spare_row(), std::span(pages_).subspan(stream * num_pages_, num_pages_));
      const size_t centre_size = rows.key_centre == nullptr ? 0 : head_dim_;
      changes.centres |=
          PutPadded<float>(std::span(rows.key_centre, centre_size), 0.0f,
                           std::span(centres_).subspan(stream * head_dim_, head_dim_));
      // Consecutive streams may belong to one group and share its slots, which are listed once.
      if (std::exchange(group_before, group) == group) continue;
      const auto* const slots = reinterpret_cast<const int32_t*>(rows.slots.data());
      changes.slots |= PutPadded<int32_t>(std::span(slots, rows.slots.size()),
                                          static_cast<int32_t>((num_pages_ - 1) * kRowsPerPage),
                                          std::span(slots_).subspan(group * num_rows_, num_rows_));
    }
  }
  if (!std::exchange(is_known_, true)) changes = {.pages = true, .slots = true, .centres = true};
  return changes;
}

}  // namespace ebb
