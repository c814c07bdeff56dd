// TestRows has random keys and values for the tests and the benchmark of attention, in a given
// layout. Equal seeds give equal rows, bit for bit, in every layout. Slots without a row are NaN,
// so that reading one is noticed.
#ifndef EBB_ATTENTION_ROWS_FOR_TEST_H_
#define EBB_ATTENTION_ROWS_FOR_TEST_H_

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/attention.h"

namespace ebb {

enum class Layout {
  kDense,      // row i is in slot i
  kScattered,  // random slots of pages in random order; 1/4 are free
};

struct TestRowsOptions {
  PageFormat format;
  std::vector<size_t> num_rows;  // [num_kv_heads]
  Layout layout = Layout::kScattered;
  uint32_t layout_seed = 1;
  uint32_t seed = 1;
};

// Returns normally distributed numbers. Does not use the standard library's distributions, which
// may differ between libraries.
inline std::vector<float> RandomNormal(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(size);
  for (float& value : values) {
    value = -6;
    for (int i = 0; i < 12; ++i) value += static_cast<float>(random() >> 8) * 0x1p-24f;
  }
  return values;
}

class TestRows {
 public:
  explicit TestRows(const TestRowsOptions& options) : format_(options.format) {
    heads_.resize(options.num_rows.size());
    for (size_t h = 0; h < heads_.size(); ++h) Fill(options, h);
    views_.resize(heads_.size());
    for (size_t h = 0; h < heads_.size(); ++h) {
      views_[h] = {.pages = heads_[h].pages.data(),
                   .slots = heads_[h].slots,
                   .positions = heads_[h].positions,
                   .last_visible = {}};
    }
  }
  TestRows(const TestRows&) = delete;
  TestRows& operator=(const TestRows&) = delete;

  [[nodiscard]] std::span<const RowsView> views() const { return views_; }
  [[nodiscard]] std::byte* Key(int kv_head, size_t row) {
    Head& head = heads_[kv_head];
    const Slot slot = head.slots[row];
    const std::byte* page = head.pages[slot.page()];
    const size_t offset = page - head.memory.get() + slot.row() * format_.RowStride();
    return head.memory.get() + offset;
  }
  [[nodiscard]] std::byte* Value(int kv_head, size_t row) {
    return Key(kv_head, row) + format_.ValueOffset();
  }
  // Sets the same positions in all kv heads.
  void SetPositions(const std::vector<Position>& positions) {
    for (size_t h = 0; h < heads_.size(); ++h) {
      heads_[h].positions = positions;
      heads_[h].positions.resize(heads_[h].slots.size());
      views_[h].positions = heads_[h].positions;
    }
  }
  void SetLastVisible(const std::vector<Position>& last_visible) {
    last_visible_ = last_visible;
    for (RowsView& view : views_) {
      view.last_visible = std::span(last_visible_).first(last_visible_.empty() ? 0 : view.size());
    }
  }

 private:
  struct Head {
    hwy::AlignedFreeUniquePtr<std::byte[]> memory;
    std::vector<const std::byte*> pages;
    std::vector<Slot> slots;
    std::vector<Position> positions;
  };

  void Fill(const TestRowsOptions& options, size_t h) {
    Head& head = heads_[h];
    const size_t num_rows = options.num_rows[h];
    const size_t num_slots = options.layout == Layout::kDense ? num_rows : num_rows * 4 / 3 + 1;
    const size_t num_pages = (num_slots + kRowsPerPage - 1) / kRowsPerPage;
    head.memory = hwy::AllocateAligned<std::byte>(num_pages * format_.PageBytes());
    std::memset(head.memory.get(), 0xff, num_pages * format_.PageBytes());
    for (size_t page = 0; page < num_pages; ++page) {
      head.pages.push_back(head.memory.get() + page * format_.PageBytes());
    }
    head.slots.resize(num_slots);
    std::iota(head.slots.begin(), head.slots.end(), Slot());
    if (options.layout == Layout::kScattered) {
      std::mt19937 random(options.layout_seed * 977 + static_cast<uint32_t>(h));
      std::shuffle(head.pages.begin(), head.pages.end(), random);
      std::shuffle(head.slots.begin(), head.slots.end(), random);
    }
    head.slots.resize(num_rows);
    head.positions.resize(num_rows);
    std::iota(head.positions.begin(), head.positions.end(), 0);

    const size_t dim = format_.head_dim;
    const auto values =
        RandomNormal(num_rows * 2 * dim, options.seed * 8191 + static_cast<uint32_t>(h));
    for (size_t r = 0; r < num_rows; ++r) {
      const float* row = values.data() + r * 2 * dim;
      const auto store = ReferenceAttention().store_row;
      store(format_.type, row, Key(static_cast<int>(h), r), format_.head_dim);
      if (!format_.has_values) continue;
      store(format_.type, row + dim, Value(static_cast<int>(h), r), format_.head_dim);
    }
  }

  const PageFormat format_;
  std::vector<Head> heads_;
  std::vector<RowsView> views_;
  std::vector<Position> last_visible_;
};

}  // namespace ebb

#endif  // EBB_ATTENTION_ROWS_FOR_TEST_H_
