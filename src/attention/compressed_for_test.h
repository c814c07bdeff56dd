// TestCompressed holds compressed rows for the tests and the benchmark of attention: random values,
// and keys around a random centre, in random slots of pages in random order. Slots without a row
// are all ones, so that their scales are NaN.
#ifndef EBB_ATTENTION_COMPRESSED_FOR_TEST_H_
#define EBB_ATTENTION_COMPRESSED_FOR_TEST_H_

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/compressed.h"
#include "src/attention/rows_for_test.h"

namespace ebb {

struct TestCompressedOptions {
  CompressedFormat format;
  std::vector<size_t> num_rows;  // [num_kv_heads]
  Layout layout = Layout::kScattered;
  uint32_t layout_seed = 1;
  uint32_t seed = 1;
};

class TestCompressed {
 public:
  explicit TestCompressed(const TestCompressedOptions& options) : format_(options.format) {
    heads_.resize(options.num_rows.size());
    for (size_t h = 0; h < heads_.size(); ++h) {
      Fill(options, h);
      views_.push_back(
          {.pages = heads_[h].pages.data(), .slots = heads_[h].slots, .key_centre = CentreOf(h)});
    }
  }
  TestCompressed(const TestCompressed&) = delete;
  TestCompressed& operator=(const TestCompressed&) = delete;

  [[nodiscard]] std::span<const CompressedRows> views() const { return views_; }
  // Returns the centre of a kv head's keys; null if the format has none.
  [[nodiscard]] const float* CentreOf(size_t kv_head) const {
    return format_.IsCentred() ? heads_[kv_head].centre.data() : nullptr;
  }
  [[nodiscard]] std::byte* Row(size_t kv_head, size_t row) {
    Head& head = heads_[kv_head];
    const Slot slot = head.slots[row];
    const std::byte* page = head.pages[slot.page()];
    return head.memory.get() + (page - head.memory.get()) + slot.row() * format_.RowStride();
  }

 private:
  struct Head {
    hwy::AlignedFreeUniquePtr<std::byte[]> memory;
    std::vector<const std::byte*> pages;
    std::vector<Slot> slots;
    std::vector<float> centre;
  };

  void Fill(const TestCompressedOptions& options, size_t h) {
    Head& head = heads_[h];
    const size_t num_rows = options.num_rows[h];
    const size_t num_slots = options.layout == Layout::kDense ? num_rows : num_rows * 4 / 3 + 1;
    const size_t num_pages = (num_slots + kRowsPerPage - 1) / kRowsPerPage;
    const size_t page_bytes = format_.PageBytes();
    head.memory = hwy::AllocateAligned<std::byte>(num_pages * page_bytes);
    std::memset(head.memory.get(), 0xff, num_pages * page_bytes);
    for (size_t page = 0; page < num_pages; ++page) {
      head.pages.push_back(head.memory.get() + page * page_bytes);
    }
    head.slots.resize(num_slots);
    std::iota(head.slots.begin(), head.slots.end(), Slot());
    if (options.layout == Layout::kScattered) {
      std::mt19937 random(options.layout_seed * 977 + static_cast<uint32_t>(h));
      std::shuffle(head.pages.begin(), head.pages.end(), random);
      std::shuffle(head.slots.begin(), head.slots.end(), random);
    }
    head.slots.resize(num_rows);
    const size_t dim = format_.head_dim;
    const uint32_t seed = options.seed * 8191 + static_cast<uint32_t>(h);
    auto numbers = RandomNormal(num_rows * 2 * dim, seed);
    head.centre = RandomNormal(dim, seed + 4099);
    for (size_t r = 0; r < num_rows; ++r) {
      float* key = numbers.data() + r * 2 * dim;
      for (size_t i = 0; i < dim && format_.IsCentred(); ++i) key[i] += head.centre[i];
      CompressRow(format_, {.centre = CentreOf(h)}, key, key + dim, Row(h, r));
    }
  }

  const CompressedFormat format_;
  std::vector<Head> heads_;
  std::vector<CompressedRows> views_;
};

}  // namespace ebb

#endif  // EBB_ATTENTION_COMPRESSED_FOR_TEST_H_
