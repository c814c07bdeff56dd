// The centre that the keys of a stream are stored relative to in T2.
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/kv/sequence_state.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kDim = kTiersShape.head_dim;

std::vector<float> CentreOf(const SequenceCache& cache, int layer = 1, int kv_head = 0) {
  const float* const centre = cache.views().Compressed(layer, kv_head).key_centre;
  return centre == nullptr ? std::vector<float>() : std::vector<float>(centre, centre + kDim);
}

std::vector<float> MeanKey(SequenceCache* cache, uint32_t num_rows) {
  std::vector<double> sum(kDim);
  std::vector<float> key(kDim);
  for (uint32_t row = 0; row < num_rows; ++row) {
    ReferenceAttention().load_row(kTiersFormat.type, cache->views().Row(1, 0, row).key, key.data(),
                                  kDim);
    for (int i = 0; i < kDim; ++i) sum[i] += key[i];
  }
  std::vector<float> mean;
  for (const double x : sum) mean.push_back(static_cast<float>(x / num_rows));
  return mean;
}

std::unique_ptr<SequenceCache> EmptyCache(const TiersForTest& tiers) {
  return std::make_unique<SequenceCache>(kTiersShape, kTiersFormat, Granularity::kToken,
                                         tiers.stores);
}

TEST(KeyCentre, IsTheMeanOfTheFirst64KeysAndStays) {
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4}) {
    const TiersForTest tiers({.t2 = type});
    TieredSequence sequence(tiers, Granularity::kToken, 1);
    ExpectOk(sequence.Append(90));
    EXPECT_TRUE(CentreOf(sequence.cache()).empty());
    const std::vector<float> want = MeanKey(&sequence.cache(), 64);
    ExpectOk(sequence.Move(0, Every(3, 90, Tier::kT2)));
    EXPECT_EQ(CentreOf(sequence.cache()), want);
    EXPECT_NE(CentreOf(sequence.cache(), 1, 1), want) << "every kv head has its own";
    ExpectOk(sequence.Append(60));
    ExpectOk(sequence.Move(0, Every(2, 150, Tier::kT2)));
    ExpectOk(sequence.Move(0, Every(1, 150, Tier::kT0)));
    ExpectOk(sequence.Move(0, Every(5, 150, Tier::kT2)));
    EXPECT_EQ(CentreOf(sequence.cache()), want) << "also when all rows had left T2";
    sequence.ExpectBytes();
  }
}

TEST(KeyCentre, DoesNotDependOnTheTierThatRowsComeFrom) {
  const TiersForTest tiers({});
  TieredSequence from_t0(tiers, Granularity::kToken, 1), from_t1(tiers, Granularity::kToken, 1);
  for (TieredSequence* sequence : {&from_t0, &from_t1}) ExpectOk(sequence->Append(90));
  ExpectOk(from_t1.Move(0, Every(2, 90, Tier::kT1)));
  for (TieredSequence* sequence : {&from_t0, &from_t1}) {
    ExpectOk(sequence->Move(0, Every(3, 90, Tier::kT2)));
  }
  EXPECT_EQ(CentreOf(from_t0.cache()), CentreOf(from_t1.cache()));
}

TEST(KeyCentre, TheControlHasNone) {
  const TiersForTest tiers({.t2 = CompressedType::kInt8Naive});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  ExpectOk(sequence.Append(90));
  ExpectOk(sequence.Move(0, Every(3, 90, Tier::kT2)));
  EXPECT_TRUE(CentreOf(sequence.cache()).empty());
  sequence.ExpectBytes();
}

TEST(KeyCentre, AForkHasThatOfTheRowsItShares) {
  const TiersForTest tiers({});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  ExpectOk(sequence.Append(200));
  std::vector<RowMove> moves;
  for (uint32_t row = 70; row < 190; row += 2) moves.push_back({row, Tier::kT2});
  ExpectOk(sequence.Move(0, moves));
  const auto all = EmptyCache(tiers), some = EmptyCache(tiers), none = EmptyCache(tiers);
  ExpectOk(all->ForkFrom(&sequence.cache()));
  ExpectOk(some->ForkFrom(&sequence.cache(), 128));
  // The sequence chooses a new centre from later rows, like one that never went further.
  ExpectOk(none->ForkFrom(&sequence.cache(), 64));
  EXPECT_EQ(CentreOf(*all), CentreOf(sequence.cache()));
  EXPECT_EQ(CentreOf(*some), CentreOf(sequence.cache()));
  EXPECT_TRUE(CentreOf(*none).empty());
  EXPECT_FALSE(CentreOf(*all).empty());
}

TEST(KeyCentre, ARollBackForgetsItWithTheLastRowOfT2) {
  const TiersForTest tiers({});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  ExpectOk(sequence.Append(90));
  std::vector<RowMove> moves;
  for (uint32_t row = 40; row < 80; ++row) moves.push_back({row, Tier::kT2});
  ExpectOk(sequence.Move(0, moves));
  sequence.TruncateTo(50);
  EXPECT_FALSE(CentreOf(sequence.cache()).empty());
  sequence.TruncateTo(40);
  EXPECT_TRUE(CentreOf(sequence.cache()).empty());
  const std::vector<float> want = MeanKey(&sequence.cache(), 40);
  ExpectOk(sequence.Move(0, Every(3, 40, Tier::kT2)));
  EXPECT_EQ(CentreOf(sequence.cache()), want);
  sequence.ExpectBytes();
}

TEST(KeyCentre, ComesBackFromASavedCacheEvenWhenNoRowIsInT2) {
  const TiersForTest tiers({});
  TieredSequence sequence(tiers, Granularity::kLayer, 1);
  ExpectOk(sequence.Append(90));
  ExpectOk(sequence.Move(1, Every(3, 90, Tier::kT2)));
  ExpectOk(sequence.Move(1, Every(1, 90, Tier::kT0)));
  const std::vector<float> want = CentreOf(sequence.cache());
  ExpectOk(sequence.Reload());
  EXPECT_EQ(CentreOf(sequence.cache()), want);
  EXPECT_TRUE(CentreOf(sequence.cache(), 0).empty()) << "a layer without rows in T2 has no centre";
}

// The tables of a cache with rows in T2, whose centres end them.
std::string SavedTables(CompressedType type) {
  const TiersForTest tiers({.t2 = type});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  ExpectOk(sequence.Append(90));
  ExpectOk(sequence.Move(0, Every(3, 90, Tier::kT2)));
  StateWriter tables;
  EXPECT_TRUE(SequenceState::SaveTables(sequence.cache(), &tables).ok());
  return tables.text();
}

Status LoadTables(const std::string& saved) {
  const TiersForTest tiers({.t2 = CompressedType::kInt8});
  const auto cache = EmptyCache(tiers);
  StateReader from(std::as_bytes(std::span(saved)), "the tables");
  const auto check = [](const StatePages&) { return OkStatus(); };
  return SequenceState::LoadTables(90, check, &from, cache.get());
}

TEST(KeyCentre, ASavedCacheWithoutItOrWithABadOneIsRefused) {
  const std::string good = SavedTables(CompressedType::kInt8);
  ExpectOk(LoadTables(good));
  std::string bad = good;
  const float inf = std::numeric_limits<float>::infinity();
  std::memcpy(bad.data() + bad.size() - sizeof(inf), &inf, sizeof(inf));
  EXPECT_THAT(LoadTables(bad).message(), HasSubstr("a centre of keys that is not finite"));
  const Status without = LoadTables(SavedTables(CompressedType::kInt8Naive));
  EXPECT_EQ(without.code(), StatusCode::kCorrupt);
  EXPECT_THAT(without.message(), HasSubstr("a centre of keys for each kv head"));
}

}  // namespace
}  // namespace ebb
