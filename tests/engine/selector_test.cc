// A step whose selector reads a part of the rows, on a model deep enough for one: Quest reads the
// first two layers in full.
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr int kSelectorPromptTokens = 300;
constexpr int kSelectorDecodeTokens =
    20;  // more than a page; threads that outnumber cores are slow

PolicySpec Quest(int rows) {
  PolicySpec quest = {.name = "quest"};
  quest.budget = {Budget::Unit::kRows, static_cast<double>(rows)};
  return quest;
}

struct SelectorOutcome {
  uint64_t logits_hash = 0;
  int64_t rows_unread = 0;
  bool operator==(const SelectorOutcome&) const = default;
};

SelectorOutcome DecodeSelecting(int threads, const PolicySpec& policy) {
  auto engine = MakeEngineOf(DeepModel(), {.threads = threads});
  auto session = Open(*engine, policy);
  const std::vector<Token> text = SomeTokens(kSelectorPromptTokens + kSelectorDecodeTokens);
  ExpectOk(session->Prefill(std::span(text).first(kSelectorPromptTokens)));
  SelectorOutcome outcome;
  for (int i = kSelectorPromptTokens; i < kSelectorPromptTokens + kSelectorDecodeTokens; ++i) {
    ExpectOk(session->Decode(text[i]));
    outcome.rows_unread += session->last_step().rows_unread;
  }
  outcome.logits_hash = session->logits_hash();
  return outcome;
}

TEST(Selector, AnyNumberOfThreadsChoosesTheSameRows) {
  const SelectorOutcome one = DecodeSelecting(1, Quest(64));
  EXPECT_GT(one.rows_unread, 0);
  EXPECT_EQ(one, DecodeSelecting(2, Quest(64)));
  EXPECT_EQ(one, DecodeSelecting(3, Quest(64)));
  EXPECT_EQ(one, DecodeSelecting(5, Quest(64)));  // more than there are blocks of pages
}

TEST(Selector, WhereAllRowsFitTheLogitsAreThoseOfTheFullCache) {
  const SelectorOutcome all = DecodeSelecting(2, Quest(4096));
  EXPECT_EQ(all.rows_unread, 0);
  EXPECT_EQ(all.logits_hash, DecodeSelecting(2, {.name = "full"}).logits_hash);
  EXPECT_NE(all.logits_hash, DecodeSelecting(2, Quest(64)).logits_hash);
}

// More of them than are folded at once.
TEST(Selector, ABatchAgreesWithSingleSteps) {
  constexpr int kMany = 19;
  auto engine = MakeEngineOf(DeepModel(), {.threads = 2, .kv_type = RowType::kF32});
  std::vector<std::unique_ptr<Session>> batched, single;
  std::vector<Session*> batch;
  for (int i = 0; i < kMany; ++i) {
    const std::vector<Token> prompt = SomeTokens(60 + 7 * i, i);
    for (auto* sessions : {&batched, &single}) {
      sessions->push_back(i % 3 == 0 ? Open(*engine) : Open(*engine, Quest(32)));
      ExpectOk(sessions->back()->Prefill(prompt));
    }
    batch.push_back(batched.back().get());
  }
  int64_t rows_unread = 0;
  for (int step = 0; step < 8; ++step) {
    const std::vector<Token> tokens = SomeTokens(kMany, 500 + step);
    ExpectOk(engine->DecodeBatch(batch, tokens));
    for (int i = 0; i < kMany; ++i) {
      ExpectOk(single[i]->Decode(tokens[i]));
      EXPECT_LT(LargestDifference(Logits(*single[i]), Logits(*batched[i])), 1e-3) << i << step;
      EXPECT_EQ(single[i]->last_step().rows_unread, batched[i]->last_step().rows_unread) << i;
      rows_unread += batched[i]->last_step().rows_unread;
    }
  }
  EXPECT_GT(rows_unread, 0);
}

}  // namespace
}  // namespace ebb
