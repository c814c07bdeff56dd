// Several sequences share an engine without touching each other.
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr int kSequences = 8;
constexpr int kSteps = 80;

struct Plan {
  PolicySpec policy;
  std::vector<Token> prompt;
  std::vector<Token> generated;
};

std::vector<Plan> Plans() {
  const char* const policies[] = {"full", "streaming", "h2o", "attention", "random"};
  std::vector<Plan> plans;
  for (int i = 0; i < kSequences; ++i) {
    const std::vector<Token> tokens = SomeTokens(40 + 11 * i + kSteps, 100 + i);
    const auto split = tokens.end() - kSteps;
    plans.push_back({.policy = SmallPolicy(policies[i % 5], std::to_string(100 + 20 * i)),
                     .prompt = {tokens.begin(), split},
                     .generated = {split, tokens.end()}});
    if (plans.back().policy.name != "full")
      plans.back().policy.budget = {Budget::Unit::kPercent, 40};
    if (plans.back().policy.name == "h2o" || plans.back().policy.name == "streaming") {
      plans.back().policy.budget = {Budget::Unit::kRows, 48.0 + i};
    }
  }
  return plans;
}

TEST(Sequences, EightInterleavedAreEachWhatTheyAreAlone) {
  const std::vector<Plan> plans = Plans();
  auto engine = MakeEngine();
  std::vector<std::unique_ptr<Session>> together;
  for (const Plan& plan : plans) together.push_back(Open(*engine, plan.policy));
  for (int i = 0; i < kSequences; ++i) ExpectOk(together[i]->Prefill(plans[i].prompt));
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kSequences; ++i) ExpectOk(together[i]->Decode(plans[i].generated[step]));
  }
  for (int i = 0; i < kSequences; ++i) {
    auto own_engine = MakeEngine();
    auto alone = Open(*own_engine, plans[i].policy);
    ExpectOk(alone->Prefill(plans[i].prompt));
    for (const Token token : plans[i].generated) ExpectOk(alone->Decode(token));
    EXPECT_EQ(together[i]->logits_hash(), alone->logits_hash()) << i << " " << plans[i].policy.name;
    const auto expected = alone->visible_positions(0);
    const auto actual = together[i]->visible_positions(0);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), actual.begin(), actual.end())) << i;
    EXPECT_EQ(together[i]->accounting().rows_evicted, alone->accounting().rows_evicted) << i;
  }
}

TEST(Sequences, ABatchAgreesWithSingleSteps) {
  const std::vector<Plan> plans = Plans();
  auto engine = MakeEngine({.threads = 2, .kv_type = RowType::kF32});
  std::vector<std::unique_ptr<Session>> batched, single;
  std::vector<Session*> batch;
  for (const Plan& plan : plans) {
    batched.push_back(Open(*engine));
    single.push_back(Open(*engine));
    batch.push_back(batched.back().get());
    ExpectOk(batched.back()->Prefill(plan.prompt));
    ExpectOk(single.back()->Prefill(plan.prompt));
  }
  for (int step = 0; step < 20; ++step) {
    std::vector<Token> tokens;
    for (const Plan& plan : plans) tokens.push_back(plan.generated[step]);
    std::vector<std::vector<float>> expected;
    for (int i = 0; i < kSequences; ++i) {
      ExpectOk(single[i]->Decode(tokens[i]));
      expected.push_back(Logits(*single[i]));
    }
    ExpectOk(engine->DecodeBatch(batch, tokens));
    for (int i = 0; i < kSequences; ++i) {
      EXPECT_LT(LargestDifference(expected[i], Logits(*batched[i])), 1e-3) << i << " " << step;
    }
  }
}

TEST(Sequences, ABatchRefusesStrangersAndTwins) {
  auto engine = MakeEngine();
  auto other_engine = MakeEngine();
  auto session = Open(*engine);
  auto stranger = Open(*other_engine);
  ExpectOk(session->Prefill(SomeTokens(5)));
  ExpectOk(stranger->Prefill(SomeTokens(5)));
  const Token tokens[] = {5, 6};
  Session* const twins[] = {session.get(), session.get()};
  EXPECT_EQ(engine->DecodeBatch(twins, tokens).status.message(), "a batch holds one session twice");
  Session* const mixed[] = {session.get(), stranger.get()};
  EXPECT_EQ(engine->DecodeBatch(mixed, tokens).status.message(),
            "a batch holds a session of another engine");
  EXPECT_FALSE(engine->DecodeBatch(mixed, std::span(tokens).first(1)).ok());
  EXPECT_FALSE(engine->DecodeBatch({}, {}).ok());
  EXPECT_EQ(session->next_position(), 5);
}

TEST(Sequences, ClosedSessionsGiveTheirMemoryBack) {
  auto engine = MakeEngine();
  {
    auto session = Open(*engine);
    ExpectOk(session->Prefill(SomeTokens(300)));
    EXPECT_GT(engine->arena_accounting().used_bytes, 0u);
  }
  EXPECT_EQ(engine->arena_accounting().used_bytes, 0u);
}

}  // namespace
}  // namespace ebb
