#include "src/server/engine/prefix_cache.h"
#include "ebb/generate.h"

#include <gtest/gtest.h>

#include "ebb/lab/pebble.h"
#include "tests/support/pebble_model.h"

namespace ebb::server {
namespace {

class PrefixCacheTest : public PebbleModelTest {
 protected:
  void SetUp() override { engine_ = *Engine::Create(model_, {.threads = 1}); }

  // Returns tokens that differ from those of another seed from the first one on.
  static std::vector<Token> Prompt(int seed, int num_tokens) {
    std::vector<Token> prompt;
    for (int i = 0; i < num_tokens; ++i) prompt.push_back(3 + seed + i % 20);
    return prompt;
  }
  std::unique_ptr<Session> Read(const std::vector<Token>& prompt, int num_decoded = 0,
                                const SessionOptions& options = {}) {
    auto session = *engine_->OpenSession(options);
    EXPECT_TRUE(session->Prefill(prompt).ok());
    for (int i = 0; i < num_decoded; ++i) EXPECT_TRUE(session->Decode(5).ok());
    return session;
  }
  [[nodiscard]] size_t UsedBytes() const { return engine_->arena_accounting(Tier::kT0).used_bytes; }

  std::unique_ptr<Engine> engine_;
};

using Evicted = PrefixCache::Evicted;

constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST_F(PrefixCacheTest, ItFindsTheLongestBeginningOfTheSameKey) {
  PrefixCache cache(kPlenty);
  const auto short_prompt = Prompt(0, 40), other = Prompt(1, 100);
  std::vector<Token> long_prompt = short_prompt;
  long_prompt.insert(long_prompt.end(), 100, 7);
  cache.Keep("a", 40, Read(short_prompt));
  cache.Keep("a", 100, Read(other));
  cache.Keep("b", 140, Read(long_prompt));
  EXPECT_EQ(cache.Find("a", long_prompt).num_tokens, 40u);
  EXPECT_EQ(cache.Find("b", long_prompt).num_tokens, 138u);
  EXPECT_EQ(cache.Find("b", short_prompt).num_tokens, 38u);
  EXPECT_EQ(cache.Find("c", long_prompt).num_tokens, 0u);
  EXPECT_EQ(cache.Find("a", Prompt(2, 40)).session, nullptr);
}

TEST_F(PrefixCacheTest, OnlyThePromptIsKept) {
  PrefixCache cache(kPlenty);
  const auto prompt = Prompt(0, 64);
  cache.Keep("a", prompt.size(), Read(prompt, 100));
  const auto alone = Read(prompt);
  EXPECT_EQ(UsedBytes(), 2 * alone->accounting().tiers[0].page_bytes);
}

TEST_F(PrefixCacheTest, WhatNobodyCouldTakeIsNotKept) {
  PrefixCache cache(kPlenty);
  SessionOptions h2o;
  h2o.policy = {.name = "h2o", .budget = *ParseBudget("64")};
  cache.Keep("a", 40, Read(Prompt(0, 40), 0, h2o));
  cache.Keep("a", 6, Read(Prompt(0, 6)));
  EXPECT_EQ(cache.size(), 0u);
  PrefixCache off(0);
  off.Keep("a", 40, Read(Prompt(0, 40)));
  EXPECT_EQ(off.size(), 0u);
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(PrefixCacheTest, OfPromptsThatContinueOneAnotherTheLongestIsKept) {
  PrefixCache cache(kPlenty);
  cache.Keep("a", 40, Read(Prompt(0, 40)));
  cache.Keep("a", 60, Read(Prompt(0, 60)));
  cache.Keep("a", 50, Read(Prompt(0, 50)));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache.Find("a", Prompt(0, 90)).num_tokens, 60u);
  cache.Keep("b", 50, Read(Prompt(0, 50)));
  EXPECT_EQ(cache.size(), 2u);
}

TEST_F(PrefixCacheTest, WhatWasUsedLongestAgoGoes) {
  PrefixCache cache(kPlenty);
  for (int seed = 0; seed < 3; ++seed) cache.Keep("a", 40, Read(Prompt(seed, 40)));
  (void)cache.Find("a", Prompt(0, 40));
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.Find("a", Prompt(1, 40)).num_tokens, 0u);
  EXPECT_EQ(cache.Find("a", Prompt(0, 40)).num_tokens, 38u);
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.Find("a", Prompt(2, 40)).num_tokens, 0u);
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.EvictOne(), Evicted::kNothing);
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(PrefixCacheTest, ItKeepsToItsBytesAndCountsSharedPagesOnce) {
  const auto stem = Prompt(0, 256);
  const uint64_t of_one = [&] {
    PrefixCache cache(kPlenty);
    cache.Keep("a", 256, Read(stem));
    return cache.bytes();
  }();
  PrefixCache cache(3 * of_one);
  for (int i = 0; i < 12; ++i) {
    std::vector<Token> prompt = stem;
    prompt.insert(prompt.end(), 64, 100 + i);
    auto session = *engine_->OpenSession({});
    if (const PrefixSource source = cache.Find("a", prompt); source.num_tokens > 0) {
      ASSERT_TRUE(BeginPromptFrom(source.session, prompt, session.get()).ok());
    } else {
      ASSERT_TRUE(session->BeginPrompt(prompt).ok());
    }
    SessionStep part[] = {{.session = session.get()}};
    while (session->prompt_left() > 0) ASSERT_TRUE(engine_->Step(part).ok());
    cache.Keep("a", prompt.size(), std::move(session));
    EXPECT_LE(cache.bytes(), 3 * of_one);
  }
  // Without shared pages, even two of these prefixes would exceed the limit.
  EXPECT_GE(cache.size(), 4u);
  EXPECT_LE(UsedBytes(), 3 * of_one);
}

TEST_F(PrefixCacheTest, WhereThereIsAT1PrefixesSinkBeforeTheyGo) {
  SessionOptions options;
  options.policy.tiers = TierShares();
  engine_ = *Engine::Create(model_, {.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}});
  PrefixCache cache(kPlenty);
  cache.Keep("a", 40, Read(Prompt(0, 40), 0, options));
  cache.Keep("a", 40, Read(Prompt(1, 40), 0, options));
  EXPECT_EQ(cache.EvictOne(), Evicted::kDemotedToT1);
  EXPECT_EQ(cache.EvictOne(), Evicted::kDemotedToT1);
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_GT(engine_->arena_accounting(Tier::kT1).used_bytes, 0u);
  EXPECT_EQ(cache.Find("a", Prompt(0, 50)).num_tokens, 40u);
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.Find("a", Prompt(1, 50)).num_tokens, 0u);
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.EvictOne(), Evicted::kNothing);
  EXPECT_EQ(engine_->arena_accounting(Tier::kT1).used_bytes, 0u);
}

TEST_F(PrefixCacheTest, WhatOthersHoldTooGivesWayLast) {
  PrefixCache cache(kPlenty);
  const auto prompt = Prompt(0, 150);
  cache.Keep("a", 128, Read(Prompt(0, 128)));
  cache.Keep("a", 40, Read(Prompt(1, 40)));
  const PrefixSource source = cache.Find("a", prompt);
  auto session = *engine_->OpenSession({});
  ASSERT_TRUE(BeginPromptFrom(source.session, prompt, session.get()).ok());
  (void)cache.Find("a", Prompt(1, 40));
  EXPECT_EQ(cache.EvictOne(), Evicted::kDropped);
  EXPECT_EQ(cache.Find("a", Prompt(1, 40)).num_tokens, 0u);
  EXPECT_EQ(cache.Find("a", prompt).num_tokens, 128u);
}

TEST_F(PrefixCacheTest, TheOneKeptLongestIsTheNextToBeStored) {
  PrefixCache cache(kPlenty);
  EXPECT_FALSE(cache.NextUnstored().has_value());
  cache.Keep("a", 40, Read(Prompt(0, 40)), 3);
  cache.Keep("b", 40, Read(Prompt(1, 40)), 2);
  cache.Keep("c", 40, Read(Prompt(2, 40)));  // without a time: the store has it
  auto next = cache.NextUnstored();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->key, "b");
  EXPECT_EQ(next->since, 2);
  cache.SetStored(next->session);
  next = cache.NextUnstored();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->key, "a");
  // A longer prompt that begins with the cached one replaces it.
  cache.Keep("a", 60, Read(Prompt(0, 60)), 5);
  EXPECT_EQ(cache.NextUnstored()->since, 5);
  cache.SetStored(cache.NextUnstored()->session);
  EXPECT_FALSE(cache.NextUnstored().has_value());
}

TEST(PrefixKey, NoSaltSaysWhatAnotherOneAndAPolicyDo) {
  SessionOptions full, attention, budget;
  attention.policy.name = budget.policy.name = "attention";
  budget.policy.budget = *ParseBudget("25%");
  SessionOptions tiers = attention, shares = attention;
  tiers.policy.tiers = TierShares{.t0_share = 0.5};
  shares.policy.tiers = TierShares{.t0_share = 0.25};
  const std::vector<std::string> keys = {PrefixKey("", full),         PrefixKey("a", full),
                                         PrefixKey("", attention),    PrefixKey("", budget),
                                         PrefixKey("", tiers),        PrefixKey("", shares),
                                         PrefixKey("1:a|full", full), PrefixKey("a|full", full)};
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
  }
}

}  // namespace
}  // namespace ebb::server
