#include "src/step/device/page_lists.h"

#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "src/step/device/row_lists_for_test.h"

namespace ebb {
namespace {

TEST(PageLists, NameThePagesOfRowsInOrder) {
  const ModelShape shape = ListedShape();
  ListedCaches made = MakeListedCaches(shape, Granularity::kHead);
  ASSERT_TRUE(made.device->HasPageNumbers());
  constexpr int kPages = kListedRows / kRowsPerPage;
  PageLists lists(std::vector<int>(shape.num_layers, shape.num_kv_heads), kPages, 0, kListedRows);
  int num_changes = 0;
  for (Position next = 0; next < 300; ++next) {
    ASSERT_TRUE(made.cache->Append(next, 1).ok());
    ASSERT_TRUE(PageLists::InOrder(*made.cache, shape.num_layers));
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      num_changes += lists.UpdatePages(*made.cache, *made.device, layer) ? 1 : 0;
      const std::span<const int32_t> list = lists.PagesOfLayer(layer);
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        const RowsView view = made.cache->views().View(layer, head);
        for (size_t page = 0; page < kPages; ++page) {
          const bool is_there = page * kRowsPerPage < view.slots.size();
          const int32_t first_row =
              is_there ? made.device->RowNumber(view.pages[page]) : made.device->spare_row();
          EXPECT_EQ(list[head * kPages + page], first_row / int{kRowsPerPage});
        }
      }
    }
  }
  EXPECT_EQ(num_changes, shape.num_layers * 5);  // once for each new page
  made.cache->Remove(1, std::vector<uint32_t>{7});
  EXPECT_FALSE(PageLists::InOrder(*made.cache, shape.num_layers));
}

// After memory was freed, an address may denote another place of the device's buffer; the device
// counts frees, so that lists are made again.
TEST(PageLists, AddressesOfADeviceMayGetOtherPlaces) {
  auto device = *BackendDevice::Create(
      {.kind = DeviceKind::kBackend, .name = "ggml-cpu", .memory_bytes = 64 << 20}, 128);
  constexpr size_t kExtent = kDeviceMemoryStep;
  std::byte* const first = *device->Allocate(MemoryKind::kDevice, kExtent);
  ASSERT_TRUE(device->Allocate(MemoryKind::kDevice, kExtent).ok());
  std::byte* const block = *device->Allocate(MemoryKind::kDevice, 2 * kExtent);
  const int32_t had = device->RowNumber(block);
  const uint64_t frees = device->num_frees();
  ASSERT_TRUE(device->Free(MemoryKind::kDevice, first, kExtent).ok());
  ASSERT_TRUE(device->Free(MemoryKind::kDevice, block, 2 * kExtent).ok());
  EXPECT_EQ(*device->Allocate(MemoryKind::kDevice, 3 * kExtent), block);
  EXPECT_NE(device->RowNumber(block), had);
  EXPECT_GT(device->num_frees(), frees);
}

class PageListsWithSlots : public testing::TestWithParam<Granularity> {};

// A device that copies only the reported changes has complete lists after every step.
TEST_P(PageListsWithSlots, FollowWhateverHappensToTheRows) {
  const ModelShape shape = ListedShape();
  ListedCaches made = MakeListedCaches(shape, GetParam());
  constexpr int kPages = 64;
  PageLists lists(std::vector<int>(shape.num_layers, shape.num_kv_heads), kPages,
                  made.cache->layout().num_groups(), kListedRows);
  std::vector<int32_t> slots(lists.Slots().size(), -7), pages(lists.Pages().size(), -7);
  RowChanges changes(5);
  uint64_t generation = made.device->generation();
  size_t copied = 0, whole = 0;
  for (int step = 0; step < 400; ++step) {
    changes.MakeOne(step, &made);
    if (generation != made.device->generation()) lists.Forget();
    generation = made.device->generation();
    std::vector<PageLists::Change> changed;
    lists.UpdateSlots(*made.cache, &changed);
    for (const PageLists::Change& change : changed) {
      ASSERT_LT(change.begin, change.end);
      std::copy(lists.Slots().begin() + change.begin, lists.Slots().begin() + change.end,
                slots.begin() + change.begin);
      copied += change.end - change.begin;
    }
    whole += slots.size();
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      if (!lists.UpdatePages(*made.cache, *made.device, layer)) continue;
      const std::span<const int32_t> of_layer = lists.PagesOfLayer(layer);
      std::ranges::copy(of_layer, pages.begin() + (of_layer.data() - lists.Pages().data()));
    }
    for (int layer = 0, stream = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.num_kv_heads; ++head, ++stream) {
        const RowsView view = made.cache->views().View(layer, head);
        const int32_t* of_group =
            slots.data() + size_t{kListedRows} * made.cache->layout().GroupOf(layer, head);
        for (size_t row = 0; row < view.slots.size(); ++row) {
          const int32_t slot = of_group[row];
          const int32_t number =
              pages[stream * kPages + slot / kRowsPerPage] * kRowsPerPage + slot % kRowsPerPage;
          const Slot at = view.slots[row];
          ASSERT_EQ(number, made.device->RowNumber(view.pages[at.page()] +
                                                   at.row() * made.device->row_bytes()));
        }
      }
    }
  }
  EXPECT_LT(copied, whole / 4);
}

INSTANTIATE_TEST_SUITE_P(Granularities, PageListsWithSlots,
                         testing::Values(Granularity::kToken, Granularity::kLayer,
                                         Granularity::kHead));

}  // namespace
}  // namespace ebb
