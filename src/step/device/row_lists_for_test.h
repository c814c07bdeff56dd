// Makes caches on a device and changes their rows at random between steps, for tests of the lists
// of rows.
#ifndef EBB_STEP_DEVICE_ROW_LISTS_FOR_TEST_H_
#define EBB_STEP_DEVICE_ROW_LISTS_FOR_TEST_H_

#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "src/device/backend_device.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

inline constexpr int kListedRows = 768;

struct ListedCaches {
  std::unique_ptr<BackendDevice> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<SequenceCache> cache, other;
};

inline ListedCaches MakeListedCaches(const ModelShape& shape, Granularity granularity) {
  const PageFormat format = {.type = RowType::kF16, .head_dim = shape.head_dim};
  ListedCaches made;
  made.device = *BackendDevice::Create(
      {.kind = DeviceKind::kBackend, .name = "ggml-cpu", .memory_bytes = 256 << 20},
      format.RowStride());
  made.arena = *Arena::Create(
      {.page_bytes = format.PageBytes(), .cap_bytes = 256 << 20, .device = made.device.get()});
  const CacheStores stores = {.t0 = made.arena.get(), .device = made.device.get()};
  made.cache = std::make_unique<SequenceCache>(shape, format, granularity, stores);
  made.other = std::make_unique<SequenceCache>(shape, format, granularity, stores);
  return made;
}

inline ModelShape ListedShape() {
  ModelShape shape;
  shape.num_layers = 3;
  shape.num_q_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_dim = 32;
  return shape;
}

class RowChanges {
 public:
  explicit RowChanges(unsigned seed) : random_(seed) {}
  // Changes the caches at random. Returns how many rows each stream got, if rows were only
  // appended.
  int MakeOne(int step, ListedCaches* made) {
    const auto what = random_() % 12;
    const int num = what < 6 ? 1 + static_cast<int>(random_() % 3) : 0;
    if (what < 6 && made->cache->tables().max_rows() + num <= kListedRows) {
      EXPECT_TRUE(made->cache->Append(next_, num).ok());
      next_ += num;
      return num;
    }
    if (what < 9) {
      const auto group = static_cast<int>(random_() % made->cache->layout().num_groups());
      std::vector<uint32_t> removed;
      for (uint32_t row = 0; row < made->cache->positions(group).size(); ++row) {
        if (random_() % 9 == 0) removed.push_back(row);
      }
      made->cache->Remove(group, removed);
    } else if (what == 9) {
      made->cache->Compact(1 << 20);
      made->arena->Compact(1 << 20);
      made->cache->FindAddresses();
    } else if (what == 10 && next_ > 4) {
      next_ -= static_cast<Position>(random_() % 4);
      made->cache->TruncateTo(next_);
    } else {
      EXPECT_TRUE(made->other->Append(100 * step, 40).ok());
    }
    return 0;
  }

 private:
  std::mt19937 random_;
  Position next_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_ROW_LISTS_FOR_TEST_H_
