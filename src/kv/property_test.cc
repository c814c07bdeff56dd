// Several caches on one small arena against a naive model: a map from position to what the row
// must hold, for every group. Caches fork each other, and so hold pages together.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "src/kv/retain_for_test.h"
#include "src/kv/sequence_cache.h"

namespace ebb {
namespace {

constexpr int kModelLayers = 2;
constexpr int kModelKvHeads = 2;
constexpr int kModelStreams = kModelLayers * kModelKvHeads;
constexpr PageFormat kModelFormat{.type = RowType::kF32, .head_dim = 128};
constexpr size_t kNumExtents = 6;

struct NaiveRow {
  uint64_t seed = 0;  // of the bytes; every stream has its own from it
  Position last_visible = kVisibleForEver;
};
using NaiveGroup = std::map<Position, NaiveRow>;

struct Case {
  std::unique_ptr<SequenceCache> cache;
  std::vector<NaiveGroup> groups;  // [num_groups]
  Position next = 0;
  int64_t rows_evicted = 0;

  [[nodiscard]] int StreamsPerGroup() const { return kModelStreams / cache->layout().num_groups(); }
};

class PropertyTest {
 public:
  explicit PropertyTest(uint32_t seed) : random_(seed) {
    auto arena = Arena::Create(
        {.page_bytes = kModelFormat.PageBytes(), .cap_bytes = kNumExtents * kExtentBytes + 12345});
    EXPECT_TRUE(arena.ok());
    arena_ = *std::move(arena);
    auto t1 = Arena::Create(
        {.page_bytes = kModelFormat.PageBytes(), .cap_bytes = kNumExtents / 2 * kExtentBytes});
    EXPECT_TRUE(t1.ok());
    t1_ = *std::move(t1);
    for (size_t i = 0; i < cases_.size(); ++i) Recreate(i);
  }

  void Run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
      Case* c = &cases_[Below(cases_.size())];
      Operate(c);
      if (i % 10 == 0) CheckLists(*c);
      if (i % 500 == 0) CheckEverything();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "at operation " << i;
    }
    CheckEverything();
    EXPECT_GT(num_refused_, 0) << "the cap was never reached";
    EXPECT_GT(arena_->stats().bytes_compacted, 0u);
    EXPECT_GT(bytes_sorted_, 0u);
    EXPECT_GT(num_freed_in_parts_, 0u);
    EXPECT_GT(num_forks_, 2u);
    EXPECT_GT(num_pages_shared_, 0u);
    for (Case& c : cases_) c.cache.reset();
    EXPECT_EQ(arena_->stats().used_bytes, 0u);
    EXPECT_EQ(arena_->stats().reserved_bytes, 0u);
    EXPECT_EQ(t1_->stats().used_bytes, 0u);
    EXPECT_GT(t1_->stats().peak_reserved_bytes, 0u);
  }

 private:
  size_t Below(size_t end) { return random_() % end; }

  [[nodiscard]] std::unique_ptr<SequenceCache> MakeCache(Granularity granularity) const {
    const ModelShape shape{.num_layers = kModelLayers,
                           .num_q_heads = kModelKvHeads,
                           .num_kv_heads = kModelKvHeads,
                           .head_dim = kModelFormat.head_dim};
    return std::make_unique<SequenceCache>(shape, kModelFormat, granularity,
                                           CacheStores{.t0 = arena_.get(), .t1 = t1_.get()});
  }

  void Recreate(size_t i) {
    constexpr std::array kGranularities = {Granularity::kToken, Granularity::kLayer,
                                           Granularity::kHead, Granularity::kHead};
    cases_[i] = Case{};
    cases_[i].cache = MakeCache(kGranularities[i]);
    cases_[i].groups.resize(cases_[i].cache->layout().num_groups());
  }

  void Operate(Case* c) {
    const size_t dice = Below(1000);
    const int group = static_cast<int>(Below(c->groups.size()));
    if (dice < 500) {
      Append(c);
    } else if (dice < 700) {
      const auto removed = Pick(c->groups[group].size(), 1 + Below(200));
      Remove(c, group, removed);
    } else if (dice < 760) {  // one row each: tables part ways and go on side by side
      for (size_t g = 0; g < c->groups.size(); ++g) {
        if (c->groups[g].empty()) continue;
        Remove(c, static_cast<int>(g), {static_cast<uint32_t>(Below(c->groups[g].size()))});
      }
    } else if (dice < 780) {
      Retain(c, group, Pick(c->groups[group].size(), 1 + Below(4)));
    } else if (dice < 790) {
      Truncate(c);
    } else if (dice < 850) {
      const size_t budget = Below(2) == 0 ? SIZE_MAX : Below(kModelFormat.PageBytes());
      EXPECT_LE(c->cache->Compact(budget), budget);
    } else if (dice < 860) {
      bytes_sorted_ += c->cache->Sort(SIZE_MAX);
    } else if (dice < 900) {
      const size_t budget = Below(2) == 0 ? SIZE_MAX : Below(kExtentBytes);
      EXPECT_LE(arena_->Compact(budget), budget);
      EXPECT_LE(t1_->Compact(budget), budget);
    } else if (dice < 950) {
      SetLastVisible(c, group);
    } else if (dice < 970) {
      MoveBetweenTiers(c, group);
    } else if (dice < 994) {
      RewriteOneRow(c, group);
    } else if (dice < 998) {
      Fork(c);
    } else {
      Recreate(static_cast<size_t>(c - cases_.data()));
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

  void Append(Case* c) {
    const int num_tokens = static_cast<int>(Below(4) == 0 ? Below(100) : 1);
    if (Below(20) == 0) c->next += static_cast<Position>(Below(5));
    const ArenaStats before = arena_->stats();
    const Status status = c->cache->Append(c->next, num_tokens);
    if (!status.ok()) {
      ++num_refused_;
      ASSERT_EQ(status.code(), StatusCode::kT0Full);
      // Refused only when it could not fit.
      const size_t at_most = kModelStreams * ((num_tokens + kRowsPerPage - 1) / kRowsPerPage);
      ASSERT_GT(before.used_bytes + at_most * kModelFormat.PageBytes(), kNumExtents * kExtentBytes);
      ASSERT_EQ(arena_->stats().num_pages, before.num_pages);
      CheckLists(*c);
      for (size_t g = 0; g < c->groups.size(); ++g) {
        Retain(c, static_cast<int>(g), Pick(c->groups[g].size(), 2));
      }
      return;
    }
    for (size_t g = 0; g < c->groups.size(); ++g) {
      for (int i = 0; i < num_tokens; ++i) {
        c->groups[g][c->next + i].seed = random_();
        WriteRow(c, static_cast<int>(g), c->groups[g].size() - 1);
      }
    }
    c->next += num_tokens;
  }

  // At once, or in two parts where the group can.
  void Remove(Case* c, int group, const std::vector<uint32_t>& removed) {
    const auto remove_in_parts = [&] {
      SequenceCache::Removal::Lists lists;
      SequenceCache::Removal removal(c->cache.get(), &lists);
      const bool is_removed = removal.Remove(group, removed);
      num_freed_in_parts_ += lists.pages.size();
      return is_removed;
    };
    if (Below(2) != 0 || !remove_in_parts()) c->cache->Remove(group, removed);
    EraseFromModel(c, group, removed);
  }

  void Retain(Case* c, int group, const std::vector<uint32_t>& kept) {
    RetainRows(group, kept, c->cache.get());
    std::vector<uint32_t> removed;
    size_t next = 0;
    for (uint32_t i = 0; i < c->groups[group].size(); ++i) {
      if (next < kept.size() && kept[next] == i) {
        ++next;
      } else {
        removed.push_back(i);
      }
    }
    EraseFromModel(c, group, removed);
  }

  static void EraseFromModel(Case* c, int group, const std::vector<uint32_t>& removed) {
    uint32_t index = 0;
    size_t next = 0;
    std::erase_if(c->groups[group], [&](const auto&) {
      const bool gone = next < removed.size() && removed[next] == index;
      ++index;
      if (gone) ++next;
      return gone;
    });
    ASSERT_EQ(next, removed.size());
    c->rows_evicted += static_cast<int64_t>(removed.size()) * c->StreamsPerGroup();
  }

  void Truncate(Case* c) {
    const Position end = std::max<Position>(0, c->next - static_cast<Position>(Below(300)));
    c->cache->TruncateTo(end);
    for (NaiveGroup& group : c->groups) group.erase(group.lower_bound(end), group.end());
    if (Below(2) == 0) c->next = end;
  }

  void SetLastVisible(Case* c, int group) {
    if (c->groups[group].empty()) return;
    const auto index = static_cast<uint32_t>(Below(c->groups[group].size()));
    const Position last = Below(3) == 0 ? kVisibleForEver : c->next + 5;
    c->cache->SetLastVisible(group, index, last);
    std::next(c->groups[group].begin(), index)->second.last_visible = last;
  }

  void MoveBetweenTiers(Case* c, int group) {
    std::vector<RowMove> moves;
    for (const uint32_t row : Pick(c->groups[group].size(), 1 + Below(20))) {
      moves.push_back({row, Below(2) == 0 ? Tier::kT0 : Tier::kT1});
    }
    const Status status = c->cache->Move(group, moves);
    if (status.ok()) {
      const auto tiers = c->cache->tiers(group);
      for (const RowMove& move : moves) ASSERT_EQ(tiers[move.index], move.to);
    } else {
      ASSERT_TRUE(IsLimit(status.code())) << status.ToString();
      ++num_refused_;
    }
  }

  // Another case becomes one that stands where this one does.
  void Fork(Case* c) {
    Case fork = {.cache = MakeCache(c->cache->layout().granularity()),
                 .groups = c->groups,
                 .next = c->next,
                 .rows_evicted = c->rows_evicted};
    if (const Status status = fork.cache->ForkFrom(c->cache.get()); !status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
      ++num_refused_;
      CheckBytes(*c);
      return;
    }
    ++num_forks_;
    CheckBytes(fork);
    Case* const other = &cases_[Below(cases_.size())];
    if (other != c) *other = std::move(fork);
  }

  void RewriteOneRow(Case* c, int group) {
    if (c->groups[group].empty()) return;
    const size_t index = Below(c->groups[group].size());
    if (c->cache->tiers(group)[index] != Tier::kT0) return;
    if (const Status status = c->cache->OwnPages(); !status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
      return;
    }
    EXPECT_EQ(c->cache->accounting().tiers[0].shared_page_bytes, 0u);
    std::next(c->groups[group].begin(), static_cast<ptrdiff_t>(index))->second.seed = random_();
    WriteRow(c, group, index);
  }

  // [2 * head_dim] elements: key, then value.
  static std::vector<uint64_t> Expected(uint64_t seed, int stream) {
    std::vector<uint64_t> words(2 * kModelFormat.RowStride() / sizeof(uint64_t));
    uint64_t word = seed + static_cast<uint64_t>(stream) * 0x9e3779b97f4a7c15;
    for (uint64_t& w : words) w = (word = word * 6364136223846793005 + 1442695040888963407);
    return words;
  }

  static void WriteRow(Case* c, int group, size_t index) {
    c->cache->FindAddresses();
    const auto& group_rows = c->groups[group];
    const bool is_last = index + 1 == group_rows.size();
    const auto row = is_last ? std::prev(group_rows.end())
                             : std::next(group_rows.begin(), static_cast<ptrdiff_t>(index));
    for (int i = 0; i < c->StreamsPerGroup(); ++i) {
      const int stream = group * c->StreamsPerGroup() + i;
      const std::vector<uint64_t> expected = Expected(row->second.seed, stream);
      // The model learns the first rows of one Append() when they are written.
      const auto list = c->cache->positions(group);
      const auto at = std::lower_bound(list.begin(), list.end(), row->first) - list.begin();
      const auto address = c->cache->views().Row(stream / kModelKvHeads, stream % kModelKvHeads,
                                                 static_cast<uint32_t>(at));
      const auto* bytes = reinterpret_cast<const std::byte*>(expected.data());
      std::memcpy(address.key, bytes, kModelFormat.RowStride());
      std::memcpy(address.value, bytes + kModelFormat.RowStride(), kModelFormat.RowStride());
    }
  }

  static void CheckLists(const Case& c) {
    c.cache->FindAddresses();
    for (int stream = 0; stream < kModelStreams; ++stream) {
      const NaiveGroup& group = c.groups[stream / c.StreamsPerGroup()];
      const RowsView view = c.cache->views().View(stream / kModelKvHeads, stream % kModelKvHeads);
      ASSERT_EQ(view.size(), group.size());
      ASSERT_TRUE(view.last_visible.empty() || view.last_visible.size() == group.size());
      size_t i = 0;
      for (const auto& [position, row] : group) {
        ASSERT_EQ(view.positions[i], position);
        ASSERT_EQ(view.last_visible.empty() ? kVisibleForEver : view.last_visible[i],
                  row.last_visible);
        ++i;
      }
    }
  }

  static void CheckBytes(const Case& c) {
    for (int stream = 0; stream < kModelStreams; ++stream) {
      const RowsView view = c.cache->views().View(stream / kModelKvHeads, stream % kModelKvHeads);
      size_t i = 0;
      for (const auto& [position, row] : c.groups[stream / c.StreamsPerGroup()]) {
        const std::vector<uint64_t> expected = Expected(row.seed, stream);
        const std::byte* key =
            view.pages[view.slots[i].page()] + view.slots[i].row() * kModelFormat.RowStride();
        const auto* bytes = reinterpret_cast<const std::byte*>(expected.data());
        ASSERT_EQ(std::memcmp(key, bytes, kModelFormat.RowStride()), 0) << "key at " << position;
        ASSERT_EQ(std::memcmp(key + kModelFormat.ValueOffset(), bytes + kModelFormat.RowStride(),
                              kModelFormat.RowStride()),
                  0)
            << "value at " << position;
        ++i;
      }
    }
  }

  static void CollectPages(const Case& c, std::set<const std::byte*>* pages) {
    for (int stream = 0; stream < kModelStreams; ++stream) {
      const RowsView view = c.cache->views().View(stream / kModelKvHeads, stream % kModelKvHeads);
      for (const Slot slot : view.slots) pages->insert(view.pages[slot.page()]);
    }
  }

  void CheckEverything() {
    std::set<const std::byte*> pages;
    size_t page_bytes = 0, shared_bytes = 0;
    for (const Case& c : cases_) {
      CheckLists(c);
      CheckBytes(c);
      const Status status = c.cache->Validate();
      ASSERT_TRUE(status.ok()) << status.ToString();
      const CacheAccounting accounting = c.cache->accounting();
      int64_t num_rows = 0;
      size_t max_rows = 0;
      for (const NaiveGroup& group : c.groups) {
        num_rows += static_cast<int64_t>(group.size()) * c.StreamsPerGroup();
        max_rows = std::max(max_rows, group.size());
      }
      ASSERT_EQ(accounting.tiers[0].rows + accounting.tiers[1].rows, num_rows);
      ASSERT_EQ(accounting.rows_evicted, c.rows_evicted);
      ASSERT_EQ(c.cache->tables().max_rows(), max_rows);
      for (const Tier tier : {Tier::kT0, Tier::kT1}) {
        page_bytes += accounting.tiers[static_cast<int>(tier)].page_bytes;
        shared_bytes += accounting.tiers[static_cast<int>(tier)].shared_page_bytes;
      }
      CollectPages(c, &pages);
    }
    const size_t distinct_bytes = pages.size() * kModelFormat.PageBytes();
    ASSERT_EQ(arena_->stats().used_bytes + t1_->stats().used_bytes, distinct_bytes);
    ASSERT_LE(page_bytes - shared_bytes, distinct_bytes);
    ASSERT_EQ(page_bytes > distinct_bytes, shared_bytes > 0);
    num_pages_shared_ += (page_bytes - distinct_bytes) / kModelFormat.PageBytes();
    ASSERT_TRUE(t1_->Validate().ok());
    const Status status = arena_->Validate();
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_LE(arena_->stats().reserved_bytes, arena_->cap_bytes());
    ASSERT_LE(arena_->stats().peak_reserved_bytes, arena_->cap_bytes());
  }

  std::mt19937_64 random_;
  std::unique_ptr<Arena> arena_, t1_;
  std::array<Case, 4> cases_;
  int num_refused_ = 0;
  size_t bytes_sorted_ = 0;
  size_t num_freed_in_parts_ = 0;
  size_t num_forks_ = 0;
  size_t num_pages_shared_ = 0;  // of all checks, those that are held once more
};

TEST(SequenceCachePropertyTest, AHundredThousandRandomOperationsAgreeWithANaiveModel) {
  PropertyTest(1).Run(100'000);
}

TEST(SequenceCachePropertyTest, OtherSeedsAgreeToo) {
  for (uint32_t seed = 2; seed < 7; ++seed) PropertyTest(seed).Run(5'000);
}

}  // namespace
}  // namespace ebb
