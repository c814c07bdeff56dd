// Checks that each implementation of TierRows returns the written rows, by slot and by page.
#include "src/rows/tier_rows.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/rows/row_stores.h"
#include "src/rows/t1_stage.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

constexpr int kLayers = 2;
constexpr size_t kPagesOfStream = 3;

std::vector<Slot> SlotsOf(const std::vector<uint32_t>& numbers) {
  std::vector<Slot> slots;
  for (const uint32_t number : numbers) slots.emplace_back(number);
  return slots;
}

TiersOptions OptionsOf(const std::string& where) {
  if (where == "file") return {.t1 = T1Place::kFile};
  constexpr size_t kCapBytes = size_t{8} << 20;
  if (where == "memory") return {.t1 = T1Place::kHost, .t1_cap_bytes = kCapBytes};
  return {.device = *ParseDevice("ggml-sim"), .t1 = T1Place::kHost, .t1_cap_bytes = kCapBytes};
}

// TierRowsTest has a stream of each layer with three pages of T1, and the expected contents of
// their rows.
class TierRowsTest : public ::testing::TestWithParam<std::string> {
 protected:
  TierRowsTest() : tiers_(OptionsOf(GetParam())) {
    stores_ = OpenRowStores(tiers_.stores, kTiersFormat);
    rows_ = stores_.t1.get();
    const std::vector<size_t> wanted(kLayers, kPagesOfStream);
    PageReservation reserved(rows_);
    ExpectOk(reserved.Reserve(wanted));
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t page = 0; page < kPagesOfStream; ++page) {
        streams_[layer].emplace_back(Tier::kT1, reserved.Take(layer));
      }
    }
    ExpectOk(rows_->ReserveEdits({.pages_of_stream = kPagesOfStream, .pages = 2 * kPagesOfStream}));
    reserved.End();
  }
  ~TierRowsTest() override {
    if (rows_->stage() != nullptr) rows_->stage()->Forget();
    {
      PageReleases releases(rows_);
      for (const auto& stream : streams_) {
        for (const PageRef page : stream) releases.Release(page);
      }
    }
    stores_ = {};
    tiers_.ExpectEmpty();
  }

  static constexpr size_t kStride = 2 * 16;

  // Returns contents for a key, which depend on `number`; the value has the contents of another
  // number.
  static std::vector<std::byte> Contents(uint32_t number) {
    std::mt19937 random(number);
    std::vector<std::byte> bytes(kStride);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }

  // Writes contents number numbers[i] to row slots[i] of the stream of layer 0, and contents number
  // numbers[i] + 1000 to that of layer 1.
  void Write(const std::vector<uint32_t>& slots, const std::vector<uint32_t>& numbers,
             const std::vector<uint32_t>& fresh) {
    const TierRows::Rows rows = {
        .slots = SlotsOf(slots), .fresh = fresh, .access = TierPages::Access::kWrite};
    const std::vector<TierRows::Edit> edits = {{.rows = &rows, .pages = streams_[0]},
                                               {.rows = &rows, .pages = streams_[1]}};
    ExpectOk(rows_->EditRows(edits, [&](size_t i, std::span<const RowAddress> addresses) {
      ASSERT_EQ(addresses.size(), slots.size());
      for (size_t k = 0; k < slots.size(); ++k) {
        const auto number = static_cast<uint32_t>(numbers[k] + 1000 * i);
        std::memcpy(addresses[k].key, Contents(number).data(), kStride);
        std::memcpy(addresses[k].value, Contents(number + 500).data(), kStride);
      }
    }));
  }

  void Expect(const std::vector<uint32_t>& slots, const std::vector<uint32_t>& numbers) {
    const TierRows::Rows rows = {
        .slots = SlotsOf(slots), .fresh = {}, .access = TierPages::Access::kRead};
    const std::vector<TierRows::Edit> edits = {{.rows = &rows, .pages = streams_[0]},
                                               {.rows = &rows, .pages = streams_[1]}};
    size_t num_seen = 0;
    ExpectOk(rows_->EditRows(edits, [&](size_t i, std::span<const RowAddress> addresses) {
      EXPECT_EQ(i, num_seen++);
      for (size_t k = 0; k < slots.size(); ++k) {
        const auto number = static_cast<uint32_t>(numbers[k] + 1000 * i);
        EXPECT_EQ(std::memcmp(addresses[k].key, Contents(number).data(), kStride), 0) << slots[k];
        EXPECT_EQ(std::memcmp(addresses[k].value, Contents(number + 500).data(), kStride), 0);
      }
    }));
    EXPECT_EQ(num_seen, 2u);
  }

  TiersForTest tiers_;
  RowStores stores_;
  TierRows* rows_ = nullptr;
  std::vector<PageRef> streams_[kLayers];
};

TEST_P(TierRowsTest, RowsHoldWhatWasWrittenInAnyOrder) {
  Write({5, 64, 190, 1, 128}, {1, 2, 3, 4, 5}, {0, 1, 2});
  Expect({1, 190, 5, 128, 64}, {4, 3, 1, 5, 2});
  // The other rows of a page are kept, unless the page is fresh.
  Write({6, 191}, {6, 7}, {});
  Expect({1, 5, 6, 64, 128, 190, 191}, {4, 1, 6, 2, 5, 3, 7});
}

TEST_P(TierRowsTest, RowsMoveWithinAStream) {
  std::vector<uint32_t> slots, numbers;
  for (uint32_t slot = 0; slot < 192; slot += 3) {
    slots.push_back(slot);
    numbers.push_back(slot);
  }
  Write(slots, numbers, {0, 1, 2});
  const std::vector<SlotMove> first = {{.from = Slot(0), .to = Slot(1)},
                                       {.from = Slot(189), .to = Slot(2)}};
  const std::vector<SlotMove> second = {{.from = Slot(63), .to = Slot(190)}};
  const std::vector<std::span<const SlotMove>> moves = {first, second};
  const std::vector<std::span<const PageRef>> pages = {streams_[0], streams_[1]};
  ExpectOk(rows_->MoveRows(moves, pages));
  ExpectOk(rows_->WaitForWrites());
  Expect({3, 66, 186}, {3, 66, 186});
  const TierRows::Rows moved = {.slots = SlotsOf({1, 2, 190}), .fresh = {}, .access = {}};
  const std::vector<TierRows::Edit> edits = {{.rows = &moved, .pages = streams_[0]},
                                             {.rows = &moved, .pages = streams_[1]}};
  ExpectOk(rows_->EditRows(edits, [&](size_t i, std::span<const RowAddress> at) {
    if (i == 0) {
      EXPECT_EQ(std::memcmp(at[0].key, Contents(0).data(), kStride), 0);
      EXPECT_EQ(std::memcmp(at[1].value, Contents(189 + 500).data(), kStride), 0);
    } else {
      EXPECT_EQ(std::memcmp(at[2].key, Contents(63 + 1000).data(), kStride), 0);
    }
  }));
}

TEST_P(TierRowsTest, PagesAreCopiedAndVisited) {
  Write({0, 70, 140}, {1, 2, 3}, {0, 1, 2});
  ExpectOk(rows_->WaitForWrites());
  const std::vector<size_t> wanted = {3, 0};
  PageReservation reserved(rows_);
  ExpectOk(reserved.Reserve(wanted));
  std::vector<TierPages::PageCopy> copies;
  std::vector<PageRef> copied;
  for (const PageRef page : streams_[0]) {
    copied.emplace_back(Tier::kT1, reserved.Take(0));
    copies.push_back({.from = page.id(), .to = copied.back().id()});
  }
  reserved.End();
  ExpectOk(rows_->Copy(copies));
  std::vector<PageId> ids;
  for (const PageRef page : copied) ids.push_back(page.id());
  const auto visit_all = [&](TierPages::Access access, const auto& visit) {
    size_t num_visited = 0;
    ExpectOk(rows_->Visit(ids, access, [&](size_t i, std::byte* memory) {
      EXPECT_EQ(i, num_visited++);
      visit(i, memory);
      return OkStatus();
    }));
    EXPECT_EQ(num_visited, ids.size());
  };
  visit_all(TierPages::Access::kRead, [&](size_t i, const std::byte* memory) {
    const uint32_t slot = std::vector<uint32_t>{0, 70, 140}[i] % kRowsPerPage;
    const auto number = static_cast<uint32_t>(i + 1);
    EXPECT_EQ(std::memcmp(memory + slot * kStride, Contents(number).data(), kStride), 0);
  });
  visit_all(TierPages::Access::kWrite, [&](size_t i, std::byte* memory) {
    std::memset(memory, static_cast<int>(i) + 1, kTiersFormat.PageBytes());
  });
  visit_all(TierPages::Access::kRead, [&](size_t i, const std::byte* memory) {
    EXPECT_EQ(memory[100], static_cast<std::byte>(i + 1));
  });
  Expect({0, 70, 140}, {1, 2, 3});
  EXPECT_EQ(
      rows_
          ->Visit(ids, TierPages::Access::kRead, [](size_t, std::byte*) { return Corrupt("seen"); })
          .message(),
      "seen");
  PageReleases releases(rows_);
  for (const PageRef page : copied) releases.Release(page);
}

TEST_P(TierRowsTest, AReservationEndsItselfAlone) {
  const std::vector<size_t> two_pages = {1, 1};
  PageReservation first(rows_), second(rows_);
  ExpectOk(first.Reserve(two_pages));
  ExpectOk(second.Reserve(two_pages));
  std::vector<PageRef> taken;
  taken.emplace_back(Tier::kT1, second.Take(0));
  second.End();
  for (const int layer : {0, 1}) taken.emplace_back(Tier::kT1, first.Take(layer));
  EXPECT_NE(taken[0].id(), taken[1].id());
  EXPECT_NE(taken[0].id(), taken[2].id());
  {
    PageReleases releases(rows_);
    for (const PageRef page : taken) releases.Release(page);
  }
  if (tiers_.t1 == nullptr) return;  // a file has no cap
  const size_t num_left =
      tiers_.t1->cap_bytes() / kTiersFormat.PageBytes() - kLayers * kPagesOfStream;
  PageReservation most(rows_), few(rows_), more(rows_);
  ExpectOk(most.Reserve(std::vector{num_left - 2}));
  ExpectOk(few.Reserve(std::vector{size_t{1}}));
  few.End();
  EXPECT_EQ(more.Reserve(std::vector{size_t{3}}).code(), StatusCode::kT1Full);
  ExpectOk(more.Reserve(std::vector{size_t{2}}));
}

TEST_P(TierRowsTest, ASharedPageGoesWithItsLastHolder) {
  Write({0}, {9}, {0, 1, 2});
  const PageRef page = streams_[0][0];
  rows_->Share(page.id());
  EXPECT_EQ(rows_->num_holders(page.id()), 2u);
  PageReleases(rows_, 1).Release(page.OfAnother());
  EXPECT_EQ(rows_->num_holders(page.id()), 1u);
  Expect({0}, {9});
}

TEST_P(TierRowsTest, AddressesAreThereExactlyWhereRowsMayBeReadInPlace) {
  const bool has_address = rows_->Address(streams_[0][0].id()) != nullptr;
  EXPECT_EQ(has_address, rows_->MayStay());
  EXPECT_EQ(rows_->stage() == nullptr, GetParam() == "memory");
}

INSTANTIATE_TEST_SUITE_P(Where, TierRowsTest, ::testing::Values("memory", "file", "device"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ebb
