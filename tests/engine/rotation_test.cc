// Past the trained context with keys re-rotated.
#include <gmock/gmock.h>

#include <algorithm>

#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

// Attention sees differences of positions only. A window without sinks keeps consecutive rows, so
// rotating them anew must not change what a long context would have given.
TEST(Rotation, AWindowGivesTheSameInAShortContextAsInALongOne) {
  for (const char* policy : {"streaming", "h2o"}) {
    auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
    SessionOptions options;
    options.policy = {.name = policy, .budget = {Budget::Unit::kRows, 40}, .sinks = 0};
    if (options.policy.name == "h2o") {
      // Everything recent: the same window, at head granularity.
      options.policy.sinks.reset();
      options.policy.params = {{"heavy", "0"}, {"recent", "40"}};
      options.policy.budget = {};
    }
    auto long_context = Open(*engine, options);
    options.context = 64;
    options.past_context = PastContext::kReRotate;
    auto short_context = Open(*engine, options);
    const std::vector<Token> tokens = SomeTokens(300);
    ExpectOk(long_context->Prefill(std::span(tokens).first(30)));
    ExpectOk(short_context->Prefill(std::span(tokens).first(30)));
    for (size_t i = 30; i < tokens.size(); ++i) {
      ExpectOk(long_context->Decode(tokens[i]));
      const std::vector<float> expected = Logits(*long_context);
      ExpectOk(short_context->Decode(tokens[i]));
      ASSERT_LT(LargestDifference(expected, Logits(*short_context)), 1e-3) << policy << " " << i;
    }
  }
}

TEST(Rotation, RollingBackAcrossATurnKeepsPlacesInOrder) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  SessionOptions options;
  options.policy = {.name = "streaming", .budget = {Budget::Unit::kRows, 40}, .sinks = 0};
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto session = Open(*engine, options);
  const std::vector<Token> tokens = SomeTokens(120);
  ExpectOk(session->Prefill(std::span(tokens).first(30)));
  for (size_t i = 30; i < 80; ++i) ExpectOk(session->Decode(tokens[i]));
  ExpectOk(session->TruncateTo(70));
  // The same rows without any turn: positions 40 .. 69 are what a window of 40 left at 80.
  options.context = 0;
  options.past_context = PastContext::kRefuse;
  auto straight = Open(*engine, options);
  ExpectOk(straight->Prefill(std::span(tokens).first(30)));
  for (size_t i = 30; i < 80; ++i) ExpectOk(straight->Decode(tokens[i]));
  ExpectOk(straight->TruncateTo(70));
  for (size_t i = 70; i < 120; ++i) {
    ExpectOk(straight->Decode(tokens[i]));
    const std::vector<float> expected = Logits(*straight);
    ExpectOk(session->Decode(tokens[i]));
    ASSERT_LT(LargestDifference(expected, Logits(*session)), 1e-3) << i;
  }
}

// The newest rows may have gone: places follow what was read, not what is left.
TEST(Rotation, ARollBackThatForgetsNothingMovesNoPlace) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  SessionOptions options;
  options.policy = {.name = "tova", .budget = {Budget::Unit::kRows, 40}};
  options.policy.granularity = Granularity::kToken;
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto session = Open(*engine, options), other = Open(*engine, options);
  const std::vector<Token> tokens = SomeTokens(200);
  ExpectOk(session->Prefill(std::span(tokens).first(30)));
  ExpectOk(other->Prefill(std::span(tokens).first(30)));
  int num_without_newest = 0;
  for (size_t i = 30; i < tokens.size(); ++i) {
    ExpectOk(session->Decode(tokens[i]));
    ExpectOk(other->Decode(tokens[i]));
    ASSERT_EQ(Logits(*session), Logits(*other)) << i;
    const auto rows = Internals::SequenceOf(*session).cache().positions(0);
    num_without_newest += rows.back() + 1 < session->next_position() ? 1 : 0;
    ExpectOk(session->TruncateTo(session->next_position()));
  }
  EXPECT_GT(num_without_newest, 0);
}

TEST(Rotation, APromptLongerThanTheContextIsReadInPieces) {
  auto engine = MakeEngine({.threads = 1});
  SessionOptions options;
  options.policy = {.name = "streaming", .budget = {Budget::Unit::kRows, 40}};
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(200)));
  EXPECT_EQ(session->next_position(), 200);
  ExpectOk(session->Decode(5));
}

TEST(Rotation, ABatchThatFailsTurnsNoKeys) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  SessionOptions options;
  options.policy = {.name = "streaming", .budget = {Budget::Unit::kRows, 40}, .sinks = 0};
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto turning = Open(*engine, options);
  auto straight = Open(*engine, options);
  SessionOptions short_options;
  short_options.context = 10;
  auto full = Open(*engine, short_options);
  ExpectOk(full->Prefill(SomeTokens(10)));
  for (Session* session : {turning.get(), straight.get()}) {
    ExpectOk(session->Prefill(SomeTokens(30)));
    for (int i = 0; i < 34; ++i) ExpectOk(session->Decode(5 + i));
  }
  Session* const both[] = {turning.get(), full.get()};
  const Token tokens[] = {5, 5};
  EXPECT_EQ(engine->DecodeBatch(both, tokens).status.code(), StatusCode::kContextFull);
  ExpectOk(turning->Decode(9));
  ExpectOk(straight->Decode(9));
  EXPECT_EQ(Logits(*turning), Logits(*straight));
}

// With 24 steps from one decision to the next, a context of 64 is full just when rows go: keys that
// are turned when it is full end up where keys do that are turned after each eviction.
TEST(Rotation, KeysTurnedAfterEachEvictionHaveThePlacesOfTheCache) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  SessionOptions options;
  options.policy = {.name = "streaming_rerotated",
                    .budget = {Budget::Unit::kRows, 40},
                    .sinks = 4,
                    .interval = 24};
  auto rerotated = Open(*engine, options);
  options.policy.name = "streaming";
  auto in_place = Open(*engine, options);
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto when_full = Open(*engine, options);
  const std::vector<Token> tokens = SomeTokens(300);
  float largest = 0;
  for (auto* session : {rerotated.get(), in_place.get(), when_full.get()}) {
    ExpectOk(session->Prefill(std::span(tokens).first(40)));
  }
  for (size_t i = 40; i < tokens.size(); ++i) {
    for (auto* session : {rerotated.get(), in_place.get(), when_full.get()}) {
      ExpectOk(session->Decode(tokens[i]));
    }
    ASSERT_LT(LargestDifference(Logits(*rerotated), Logits(*when_full)), 1e-3) << i;
    largest = std::max<float>(largest, LargestDifference(Logits(*rerotated), Logits(*in_place)));
  }
  EXPECT_GT(largest, 0.1);
  // The first keys of the sinks are accounted for.
  const ModelShape& shape = engine->model().shape();
  const size_t keys = size_t(4) * shape.num_layers * shape.num_kv_heads * shape.head_dim;
  EXPECT_GE(rerotated->accounting().table_bytes,
            in_place->accounting().table_bytes + keys * sizeof(float));
}

TEST(Rotation, KeysTurnedAfterEachEvictionNeedNoLongerContext) {
  auto engine = MakeEngine({.threads = 1});
  SessionOptions options;
  options.policy = {
      .name = "streaming_rerotated", .budget = {Budget::Unit::kRows, 40}, .interval = 8};
  options.context = 64;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(200)));
  for (int i = 0; i < 200; ++i) ExpectOk(session->Decode(5 + i));
  EXPECT_EQ(session->next_position(), 400);
}

// The sinks turn 2,000 times here. Rounded each time, they would be off by ever more.
TEST(Rotation, KeysThatTurnAgainAndAgainAreRoundedOnce) {
  auto exact = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  auto rounded = MakeEngine({.threads = 1, .kv_type = RowType::kBf16});
  SessionOptions options;
  options.policy = {.name = "streaming_rerotated",
                    .budget = {Budget::Unit::kRows, 40},
                    .sinks = 4,
                    .interval = 1};
  options.context = 512;
  auto of_exact = Open(*exact, options);
  auto of_rounded = Open(*rounded, options);
  const std::vector<Token> tokens = SomeTokens(2000);
  const auto difference = [&](size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      ExpectOk(of_exact->Decode(tokens[i]));
      ExpectOk(of_rounded->Decode(tokens[i]));
      sum += LargestDifference(Logits(*of_exact), Logits(*of_rounded));
    }
    return sum / static_cast<double>(end - begin);
  };
  (void)difference(0, 100);
  const double early = difference(100, 400);
  (void)difference(400, 1700);
  EXPECT_LT(difference(1700, 2000), 1.3 * early);
}

// The context is full now and then: all keys turn, and the sinks from where they were first.
TEST(Rotation, KeysTurnedAfterEachEvictionAreRightAcrossAFullContext) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  for (const Granularity granularity : {Granularity::kToken, Granularity::kHead}) {
    SessionOptions options;
    options.policy = {.name = "streaming_rerotated", .granularity = granularity};
    options.policy.budget = {Budget::Unit::kRows, 40};
    options.policy.sinks = 4;
    options.policy.interval = 8;
    auto wide = Open(*engine, options);
    options.context = 64;
    auto narrow = Open(*engine, options);
    const std::vector<Token> tokens = SomeTokens(400);
    const auto expect_same = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        ExpectOk(wide->Decode(tokens[i]));
        ExpectOk(narrow->Decode(tokens[i]));
        ASSERT_LT(LargestDifference(Logits(*wide), Logits(*narrow)), 1e-3) << i;
      }
    };
    expect_same(0, 250);
    // Into the sinks, of which two are others then.
    auto fresh = Open(*engine, options);
    for (size_t i = 0; i < 2; ++i) ExpectOk(fresh->Decode(tokens[i]));
    for (auto* session : {wide.get(), narrow.get()}) ExpectOk(session->TruncateTo(2));
    for (size_t i = 250; i < 400; ++i) {
      ExpectOk(fresh->Decode(tokens[i]));
      const std::vector<float> expected = Logits(*fresh);
      for (auto* session : {wide.get(), narrow.get()}) {
        ExpectOk(session->Decode(tokens[i]));
        ASSERT_LT(LargestDifference(expected, Logits(*session)), 1e-3) << i;
      }
    }
  }
}

TEST(Rotation, APolicyThatKeepsEverythingIsRefused) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.past_context = PastContext::kReRotate;
  EXPECT_THAT(engine->OpenSession(options).status().message(),
              testing::HasSubstr("keeps every row, so re-rotating keys frees no room"));
}

TEST(Rotation, APolicyThatComparesKeysIsRefused) {
  auto engine = MakeEngine();
  for (const char* policy : {"rkv", "redundancy", "combined", "thinkv_original", "lag_kv"}) {
    SessionOptions options;
    options.policy = {.name = policy, .budget = {Budget::Unit::kPercent, 50}};
    ExpectOk(engine->OpenSession(options).status());
    options.past_context = PastContext::kReRotate;
    EXPECT_THAT(
        engine->OpenSession(options).status().message(),
        testing::HasSubstr("compares keys of different steps, which re-rotating keys would make "
                           "incomparable"))
        << policy;
  }
}

TEST(Rotation, TooManySurvivorsEndTheContext) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.policy = SmallPolicy("attention", "100%");
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(60)));
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = session->Decode(5).status;
  EXPECT_EQ(status.code(), StatusCode::kContextFull);
  EXPECT_EQ(status.message(),
            "the context of 64 tokens is full: 64 survive, and 1 more do not fit");
  EXPECT_THAT(status.message(), testing::HasSubstr("survive"));
  EXPECT_EQ(session->next_position(), 64);
}

}  // namespace
}  // namespace ebb
