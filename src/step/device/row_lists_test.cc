#include "src/step/device/row_lists.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/step/device/row_lists_for_test.h"

namespace ebb {
namespace {

// Returns the lists of all layers, computed from scratch.
std::vector<std::vector<int32_t>> Expected(const ListedCaches& made, const ModelShape& shape) {
  std::vector<std::vector<int32_t>> layers;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    std::vector<int32_t>& list =
        layers.emplace_back(size_t{kListedRows} * shape.num_kv_heads, made.device->spare_row());
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      const RowsView view = made.cache->views().View(layer, head);
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

// Every change is reported: a copy that takes only the reported changes stays correct.
TEST_P(ListsOfRows, FollowWhateverHappensToTheRows) {
  const ModelShape shape = ListedShape();
  ListedCaches made = MakeListedCaches(shape, GetParam());
  RowLists lists(std::vector<int>(shape.num_layers, shape.num_kv_heads), kListedRows);
  std::vector<std::vector<int32_t>> on_device(
      shape.num_layers, std::vector<int32_t>(size_t{kListedRows} * shape.num_kv_heads, -7));
  RowChanges changes(5);
  int appends_alone = 0;
  uint64_t generation = made.device->generation();
  for (int step = 0; step < 400; ++step) {
    const int num = changes.MakeOne(step, &made);
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
    if (num > 0 && changed == num * shape.num_layers * shape.num_kv_heads) ++appends_alone;
    ASSERT_EQ(on_device, Expected(made, shape)) << step;
  }
  // Counts appends alone in streams of equal length.
  const int least = GetParam() == Granularity::kHead ? 0 : 20;
  EXPECT_GT(appends_alone, least);
}

INSTANTIATE_TEST_SUITE_P(Granularities, ListsOfRows,
                         testing::Values(Granularity::kToken, Granularity::kLayer,
                                         Granularity::kHead));

}  // namespace
}  // namespace ebb
