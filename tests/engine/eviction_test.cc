// Evicting changes the visible set and nothing else: whatever a policy removed and however memory
// was used again, the step equals the plain reference over the surviving rows.
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

class Eviction : public testing::TestWithParam<const char*> {};

TEST_P(Eviction, AttendsToTheSurvivorsLikeTheReference) {
  const PolicySpec policy =
      SmallPolicy(GetParam(), std::string(GetParam()) == "attention" ? "30%" : "60");
  auto engine = MakeEngine({.threads = 2, .kv_type = RowType::kF32});
  auto slow_engine = MakeEngine(
      {.threads = 1, .kv_type = RowType::kF32, .attention = EngineOptions::Attention::kReference});
  auto session = Open(*engine, policy);
  auto reference = Open(*slow_engine, policy);
  const std::vector<Token> tokens = SomeTokens(130);
  ExpectOk(session->Prefill(std::span(tokens).first(30)));
  ExpectOk(reference->Prefill(std::span(tokens).first(30)));
  int64_t evicted = session->accounting().rows_evicted;
  for (size_t i = 30; i < tokens.size(); ++i) {
    ExpectOk(session->Decode(tokens[i]));
    ExpectOk(reference->Decode(tokens[i]));
    evicted += session->last_step().rows_evicted;
    ASSERT_LT(LargestDifference(Logits(*reference), Logits(*session)), 1e-3) << i;
    for (int group = 0; group < SmallModel()->shape().NumGroups(session->policy().granularity);
         ++group) {
      const auto expected = reference->visible_positions(group);
      const auto actual = session->visible_positions(group);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), actual.begin(), actual.end()));
    }
  }
  EXPECT_GT(evicted, 0);
  EXPECT_EQ(session->accounting().rows_evicted, evicted);
  EXPECT_LT(session->accounting().tiers[0].rows, 130 * 4);
}

INSTANTIATE_TEST_SUITE_P(Policies, Eviction, testing::Values("streaming", "h2o", "attention"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Eviction, ChangesTheLogits) {
  auto engine = MakeEngine();
  auto full = Open(*engine);
  auto evicting = Open(*engine, SmallPolicy("streaming", "20"));
  for (Session* session : {full.get(), evicting.get()}) {
    ExpectOk(session->Prefill(SomeTokens(60)));
    // Prefill is dense: the first decode step still sees everything.
    for (int i = 0; i < 3; ++i) ExpectOk(session->Decode(5));
  }
  EXPECT_GT(LargestDifference(Logits(*full), Logits(*evicting)), 1e-2);
}

TEST(Eviction, KeepsMemoryFlatUnderABudgetInRows) {
  auto engine = MakeEngine();
  auto session = Open(*engine, SmallPolicy("h2o", "64"));
  ExpectOk(session->Prefill(SomeTokens(64)));
  size_t largest = 0;
  for (int i = 0; i < 600; ++i) {
    ExpectOk(session->Decode(5 + i % 100));
    if (i > 100) largest = std::max(largest, session->accounting().tiers[0].page_bytes);
  }
  const CacheAccounting accounting = session->accounting();
  EXPECT_EQ(accounting.tiers[0].rows, 64 * 4);
  EXPECT_EQ(accounting.rows_evicted, 600 * 4);
  // At most two pages of 64 rows per stream: the rows, and holes until the next compaction.
  EXPECT_LE(largest, size_t{4} * 2 * 64 * 64 * 2 * 2);
}

// The second text loses rows by whole pages, of tables that each group has for itself.
TEST(Eviction, FreesThePagesThatThreadsEmptied) {
  uint64_t hash = 0;
  for (const int threads : {1, 2, 3}) {
    auto engine = MakeEngine({.threads = threads});
    auto session = Open(*engine, SmallPolicy("h2o", "64"));
    ExpectOk(session->Prefill(SomeTokens(150)));
    ExpectOk(session->Decode(5));
    ExpectOk(session->Prefill(SomeTokens(300, 2)));
    ExpectOk(session->Decode(6));
    EXPECT_EQ(session->accounting().num_tables, 4);
    EXPECT_EQ(session->accounting().tiers[0].rows, 64 * 4);
    EXPECT_EQ(session->accounting().rows_evicted, (452 - 64) * 4);
    EXPECT_LE(session->accounting().tiers[0].page_bytes, size_t{4} * 2 * 64 * 64 * 2 * 2);
    EXPECT_EQ(engine->arena_accounting().used_bytes, session->accounting().tiers[0].page_bytes);
    if (threads == 1) hash = session->logits_hash();
    EXPECT_EQ(session->logits_hash(), hash) << threads;
  }
}

TEST(Eviction, AccountingAddsUp) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(130)));
  const CacheAccounting cache = session->accounting();
  EXPECT_EQ(cache.tiers[0].rows, 130 * 4);
  EXPECT_EQ(cache.tiers[0].row_bytes, size_t{130} * 4 * 64 * 2 * 2);
  EXPECT_EQ(cache.tiers[0].page_bytes, size_t{3} * 4 * 64 * 64 * 2 * 2);
  EXPECT_EQ(engine->arena_accounting().used_bytes, cache.tiers[0].page_bytes);
  EXPECT_GT(cache.table_bytes, 130u * 8);
  EXPECT_EQ(cache.num_tables, 1);
}

TEST(Eviction, PolicyBytesFollowTheRows) {
  auto engine = MakeEngine();
  auto full = Open(*engine), evicting = Open(*engine, SmallPolicy("h2o", "64"));
  for (Session* session : {full.get(), evicting.get()}) {
    ExpectOk(session->Prefill(SomeTokens(64)));
    for (int i = 0; i < 36; ++i) ExpectOk(session->Decode(5));
  }
  EXPECT_LT(*full->CountPolicyBytes(), 64u);
  // A float for each of the 64 rows of 4 groups, and lengths.
  const size_t bytes = *evicting->CountPolicyBytes();
  EXPECT_GE(bytes, size_t{64} * 4 * 4);
  EXPECT_LE(bytes, size_t{64} * 4 * 4 + 128);
}

}  // namespace
}  // namespace ebb
