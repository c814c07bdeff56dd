// Caches with all their tiers against a naive model: what a row is, wherever it lies and whatever
// moved it there.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

// Sequences of all granularities on the same small stores.
class TiersPropertyTest {
 public:
  TiersPropertyTest(const TiersOptions& options, uint32_t seed) : tiers_(options), random_(seed) {
    for (size_t i = 0; i < sequences_.size(); ++i) Recreate(i);
  }

  void Run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
      const size_t which = Below(sequences_.size());
      Operate(which);
      if (i % 20 == 0) sequences_[which]->ExpectLists();
      if (i % 50 == 0) sequences_[which]->ExpectBytes();
      if (i % 500 == 0) ExpectSums();
      ASSERT_FALSE(testing::Test::HasFailure()) << "at operation " << i;
    }
    ExpectSums();
    EXPECT_GT(num_refused_appends_, 0);
    EXPECT_GT(num_refused_moves_, 0);
    EXPECT_GT(num_moves_, num_operations / 20);
    EXPECT_EQ(bytes_sorted_ > 0, tiers_.backend == nullptr);
    for (auto& sequence : sequences_) sequence.reset();
    tiers_.ExpectEmpty();
  }

 private:
  size_t Below(size_t end) { return random_() % end; }

  void Recreate(size_t i) {
    constexpr std::array kGranularities = {Granularity::kToken, Granularity::kLayer,
                                           Granularity::kHead, Granularity::kHead};
    sequences_[i] = std::make_unique<TieredSequence>(tiers_, kGranularities[i], random_());
  }

  void Operate(size_t which) {
    TieredSequence* s = sequences_[which].get();
    const size_t dice = Below(1000);
    const int group = static_cast<int>(Below(s->groups().size()));
    if (dice < 450) {
      Append(s);
    } else if (dice < 600) {
      s->Remove(group, Pick(s->groups()[group].size(), 1 + Below(100)));
    } else if (dice < 620) {  // one row of each: tables part ways
      for (size_t g = 0; g < s->groups().size(); ++g) {
        const size_t num_rows = s->groups()[g].size();
        if (num_rows > 0) s->Remove(static_cast<int>(g), {static_cast<uint32_t>(Below(num_rows))});
      }
    } else if (dice < 650) {
      s->TruncateTo(std::max<Position>(0, s->next() - static_cast<Position>(Below(200))));
    } else if (dice < 850) {
      Move(s, Below(8) == 0 ? AllGroups(*s) : std::vector<int>{group});
    } else if (dice < 900) {
      const size_t budget = Below(2) == 0 ? SIZE_MAX : Below(kTiersFormat.PageBytes());
      EXPECT_LE(s->cache().Compact(budget), budget);
    } else if (dice < 950) {
      for (Arena* arena : {tiers_.t0.get(), tiers_.t1.get(), tiers_.t2.get()}) {
        if (arena != nullptr) arena->Compact(Below(2) == 0 ? SIZE_MAX : Below(kExtentBytes));
      }
    } else if (dice < 965) {
      s->ExpectBytes();
    } else if (dice < 980) {
      bytes_sorted_ += s->cache().Sort(SIZE_MAX);
    } else if (dice < 995) {
      const Status status = s->Reload();
      EXPECT_TRUE(status.ok()) << status.ToString();
      s->ExpectLists();
      s->ExpectBytes();
    } else {
      Recreate(which);
    }
  }

  // About one of `rarity` ascending indices below `end`.
  std::vector<uint32_t> Pick(size_t end, size_t rarity) {
    std::vector<uint32_t> picked;
    for (uint32_t i = 0; i < end; ++i) {
      if (Below(rarity) == 0) picked.push_back(i);
    }
    return picked;
  }

  void Append(TieredSequence* s) {
    if (Below(20) == 0) s->Skip(static_cast<Position>(Below(5)));
    const Status status = s->Append(static_cast<int>(Below(4) == 0 ? Below(300) : 1));
    if (status.ok()) return;
    ++num_refused_appends_;
    ASSERT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
    s->ExpectLists();
    for (size_t g = 0; g < s->groups().size(); ++g) {
      s->Remove(static_cast<int>(g), Pick(s->groups()[g].size(), 2));
    }
  }

  static std::vector<int> AllGroups(const TieredSequence& s) {
    std::vector<int> groups(s.groups().size());
    std::iota(groups.begin(), groups.end(), 0);
    return groups;
  }

  std::vector<RowMove> PickMoves(size_t num_rows) {
    // Mostly mixed; at times a flood in one direction.
    const size_t first = Below(3);
    const size_t num_tiers = Below(3) == 0 ? 1 : 3;
    std::vector<RowMove> moves;
    const size_t rarity = Below(5) == 0 ? 1 : 1 + Below(30);
    for (const uint32_t row : Pick(num_rows, rarity)) {
      moves.push_back({row, static_cast<Tier>((first + Below(num_tiers)) % 3)});
    }
    return moves;
  }

  void Move(TieredSequence* s, const std::vector<int>& groups) {
    std::map<int, std::vector<RowMove>> moves;
    for (const int group : groups) moves[group] = PickMoves(s->groups()[group].size());
    const Status status = s->Move(moves);
    if (status.ok()) {
      ++num_moves_;
      return;
    }
    ++num_refused_moves_;
    ASSERT_TRUE(IsLimit(status.code())) << status.ToString();
    s->ExpectLists();
  }

  void ExpectSums() {
    std::array<size_t, kNumTiers> bytes = {};
    for (const auto& sequence : sequences_) {
      sequence->ExpectLists();
      sequence->ExpectBytes();
      const CacheAccounting accounting = sequence->cache().accounting();
      for (size_t tier = 0; tier < kNumTiers; ++tier)
        bytes[tier] += accounting.tiers[tier].page_bytes;
    }
    EXPECT_EQ(tiers_.t0->stats().used_bytes, bytes[0]);
    EXPECT_EQ(tiers_.t2->stats().used_bytes, bytes[2]);
    if (tiers_.t1 != nullptr) {
      EXPECT_EQ(tiers_.t1->stats().used_bytes, bytes[1]);
    } else {
      EXPECT_EQ(tiers_.t1_file->stats().num_pages * kTiersFormat.PageBytes(), bytes[1]);
    }
    for (const Arena* arena : {tiers_.t0.get(), tiers_.t1.get(), tiers_.t2.get()}) {
      if (arena != nullptr) ExpectOk(arena->Validate());
    }
  }

  TiersForTest tiers_;
  std::array<std::unique_ptr<TieredSequence>, 4> sequences_;
  std::mt19937_64 random_;
  int num_refused_appends_ = 0;
  int num_refused_moves_ = 0;
  int num_moves_ = 0;
  size_t bytes_sorted_ = 0;
};

// Makes tiers of about 500 pages in T0, 200 in T1 or, in memory, 500, and 800 in T2.
TiersOptions SmallTiers(T1Place t1, CompressedType t2) {
  return {.t1 = t1,
          .t2 = t2,
          .t0_cap_bytes = kExtentBytes,
          .t1_cap_bytes = t1 == T1Place::kFile ? size_t{1} << 20 : kExtentBytes,
          .t2_cap_bytes = kExtentBytes};
}

TEST(Tiers, CompactingKeepsTheRowsOfEveryTierReadable) {
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    const TiersForTest tiers({});
    TieredSequence sequence(tiers, Granularity::kToken, 1);
    ExpectOk(sequence.Append(400));
    ExpectOk(sequence.Move(0, Every(7, 400, Tier::kT2)));
    ExpectOk(sequence.Move(0, Every(2, 400, tier)));
    std::vector<uint32_t> removed;
    for (uint32_t row = 0; row < 400; ++row) {
      if (row % 8 > 1) removed.push_back(row);
    }
    sequence.Remove(0, removed);
    EXPECT_GT(sequence.cache().Compact(SIZE_MAX), 0u);
    sequence.ExpectLists();
    sequence.ExpectBytes();
  }
}

TEST(TiersPropertyTest, TenThousandOperationsWithAFileAgreeWithANaiveModel) {
  TiersPropertyTest(SmallTiers(T1Place::kFile, CompressedType::kInt8), 1).Run(10'000);
}

TEST(TiersPropertyTest, WritesThatComeLateOrInPartsChangeNothing) {
  TiersOptions options = SmallTiers(T1Place::kFile, CompressedType::kInt8);
  options.faults = [random = std::mt19937(7)](const DiskRequest& request) mutable -> DiskFault {
    if (request.call != DiskCall::kWrite || random() % 4 != 0) return {};
    return {.max_bytes = random() % 2 == 0 ? size_t{4096} : SIZE_MAX,
            .delay = std::chrono::microseconds(random() % 2000)};
  };
  TiersPropertyTest(options, 5).Run(2'000);
}

TEST(TiersPropertyTest, FourBitsAgreeToo) {
  TiersPropertyTest(SmallTiers(T1Place::kFile, CompressedType::kInt4), 2).Run(2'000);
}

TEST(TiersPropertyTest, TenThousandOperationsInMemoryAgreeWithANaiveModel) {
  TiersPropertyTest(SmallTiers(T1Place::kHost, CompressedType::kInt8), 3).Run(10'000);
}

TEST(TiersPropertyTest, OperationsBesideADeviceAgreeWithANaiveModel) {
  TiersOptions options = SmallTiers(T1Place::kHost, CompressedType::kInt8);
  options.device = *ParseDevice("ggml-sim");
  TiersPropertyTest(options, 4).Run(3'000);
}

TEST(TiersPropertyTest, OperationsWithT2OnADeviceAgreeWithANaiveModel) {
  TiersOptions options = SmallTiers(T1Place::kHost, CompressedType::kInt8);
  options.device = *ParseDevice("ggml-sim");
  options.t2_on_device = true;
  TiersPropertyTest(options, 4).Run(3'000);
}

}  // namespace
}  // namespace ebb
