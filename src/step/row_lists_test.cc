#include "src/step/row_lists.h"

#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebb {
namespace {

constexpr int kNumRows = 768;

struct Caches {
  std::unique_ptr<BackendDevice> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<SequenceCache> cache, other;
};

Caches Make(const ModelShape& shape, Granularity granularity) {
  const PageFormat format = {.type = RowType::kF16, .head_dim = shape.head_dim};
  Caches made;
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

ModelShape Shape() {
  ModelShape shape;
  shape.num_layers = 3;
  shape.num_q_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_dim = 32;
  return shape;
}

// The lists, made from nothing.
std::vector<std::vector<int32_t>> Expected(const Caches& made, const ModelShape& shape) {
  std::vector<std::vector<int32_t>> layers;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    std::vector<int32_t>& list =
        layers.emplace_back(size_t{kNumRows} * shape.num_kv_heads, made.device->spare_row());
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      const RowsView view = made.cache->View(layer, head);
      for (size_t row = 0; row < view.slots.size(); ++row) {
        const Slot slot = view.slots[row];
        list[row * shape.num_kv_heads + head] =
            made.device->RowNumber(view.pages[slot.page()] + slot.row() * made.device->row_bytes());
      }
    }
  }
  return layers;
}

class ListsOfRows : public testing::TestWithParam<Granularity> {};

// What changed is said, and nothing else has changed: a copy that takes only that stays right.
TEST_P(ListsOfRows, FollowWhateverHappensToTheRows) {
  const ModelShape shape = Shape();
  Caches made = Make(shape, GetParam());
  RowLists lists(std::vector<int>(shape.num_layers, shape.num_kv_heads), kNumRows,
                 RowLists::Unit::kRows);
  std::vector<std::vector<int32_t>> on_device(
      shape.num_layers, std::vector<int32_t>(size_t{kNumRows} * shape.num_kv_heads, -7));
  std::mt19937 random(5);
  Position next = 0;
  int appends_alone = 0;
  uint64_t generation = made.device->generation();
  for (int step = 0; step < 400; ++step) {
    const auto what = random() % 12;
    const bool only_appends = what < 6;
    const int num = only_appends ? 1 + static_cast<int>(random() % 3) : 0;
    if (only_appends && made.cache->max_rows() + num <= kNumRows) {
      ASSERT_TRUE(made.cache->Append(next, num).ok());
      next += num;
    } else if (what < 9) {
      const auto group = static_cast<int>(random() % made.cache->num_groups());
      std::vector<uint32_t> removed;
      for (uint32_t row = 0; row < made.cache->positions(group).size(); ++row) {
        if (random() % 9 == 0) removed.push_back(row);
      }
      made.cache->Remove(group, removed);
    } else if (what == 9) {
      made.cache->Compact(1 << 20);
      made.arena->Compact(1 << 20);
    } else if (what == 10 && next > 4) {
      next -= static_cast<Position>(random() % 4);
      made.cache->TruncateTo(next);
    } else {
      ASSERT_TRUE(made.other->Append(100 * step, 40).ok());
    }
    if (generation != made.device->generation()) lists.Forget();
    generation = made.device->generation();
    lists.Begin();
    int changed = 0;
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const RowLists::Change change = lists.Update(*made.cache, *made.device, layer);
      const std::span<const int32_t> list = lists.OfLayer(layer);
      for (int i = change.begin * shape.num_kv_heads; i < change.end * shape.num_kv_heads; ++i) {
        on_device[layer][i] = list[i];
        ++changed;
      }
    }
    lists.End();
    if (only_appends && changed == num * shape.num_layers * shape.num_kv_heads) ++appends_alone;
    ASSERT_EQ(on_device, Expected(made, shape)) << step;
  }
  // Of heads with as many rows.
  const int least = GetParam() == Granularity::kHead ? 0 : 20;
  EXPECT_GT(appends_alone, least);
}

INSTANTIATE_TEST_SUITE_P(Granularities, ListsOfRows,
                         testing::Values(Granularity::kToken, Granularity::kLayer,
                                         Granularity::kHead));

TEST(ListsOfPages, NameThePagesOfRowsInOrder) {
  const ModelShape shape = Shape();
  Caches made = Make(shape, Granularity::kHead);
  ASSERT_TRUE(made.device->HasPageNumbers());
  RowLists lists(std::vector<int>(shape.num_layers, shape.num_kv_heads), kNumRows,
                 RowLists::Unit::kPages);
  int num_changes = 0;
  for (Position next = 0; next < 300; ++next) {
    ASSERT_TRUE(made.cache->Append(next, 1).ok());
    ASSERT_TRUE(RowLists::InOrder(*made.cache, shape.num_layers));
    lists.Begin();
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const bool is_changed = lists.Update(*made.cache, *made.device, layer).end > 0;
      num_changes += is_changed ? 1 : 0;
      const std::span<const int32_t> list = lists.OfLayer(layer);
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const RowsView view = made.cache->View(layer, head);
        for (size_t page = 0; page < kNumRows / kRowsPerPage; ++page) {
          const bool is_there = page * kRowsPerPage < view.slots.size();
          EXPECT_EQ(list[head * kNumRows / kRowsPerPage + page],
                    is_there ? made.device->RowNumber(view.pages[page]) / int{kRowsPerPage} : 0);
        }
      }
    }
    lists.End();
  }
  EXPECT_EQ(num_changes, shape.num_layers * 5);  // once a page
  made.cache->Remove(1, std::vector<uint32_t>{7});
  EXPECT_FALSE(RowLists::InOrder(*made.cache, shape.num_layers));
}

}  // namespace
}  // namespace ebb
