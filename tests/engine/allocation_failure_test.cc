// Memory that runs out in the middle of a step, wherever the step asks for some: the step either
// leaves nothing behind, so that it can be taken again, or ends the sequence; never wrong numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"
#include "tests/support/skip.h"

namespace {

// Of this thread, until one fails; below 0: none does.
thread_local int64_t allocations_left = -1;

}  // namespace

// Not inlined: the compiler would take the parts of it for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The standard library's own would allocate by other means where a sanitizer is linked.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  if (allocations_left >= 0 && allocations_left-- == 0) return nullptr;
  return std::malloc(std::max<size_t>(bytes, 1));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it needs the CPU's own memory");

using testing::HasSubstr;

constexpr size_t kFailurePromptTokens = 40;
constexpr size_t kFirst = 54;     // of the steps in which an allocation fails
constexpr size_t kReading = 63;   // reads some tokens at once
constexpr size_t kRollBack = 66;  // goes back by a few
constexpr size_t kLast = 72;      // behind them all

struct FailureSetting {
  std::string name;
  EngineOptions engine;
  SessionOptions session;
};

std::vector<FailureSetting> Settings() {
  const EngineOptions one_thread = {.threads = 1};
  std::vector<FailureSetting> settings = {
      {"Full", one_thread, {}},
      {"H2o", one_thread, {.policy = SmallPolicy("h2o", "48")}},
      {"Lazy", one_thread, {.policy = SmallPolicy("lazy_eviction", "48")}},
      {"Quest", one_thread, {.policy = {.name = "quest", .params = {{"page", "8"}}}}},
      {"SinksTurn", one_thread, {.policy = SmallPolicy("streaming_rerotated", "40")}},
      {"AllKeysTurn", one_thread, {.policy = SmallPolicy("streaming", "40")}},
  };
  settings[2].session.policy.interval = 8;
  settings[3].session.policy.budget = *ParseBudget("24");
  settings[4].session.policy.interval = 8;
  settings[5].session.policy.interval = 8;
  settings[5].session.context = 64;
  settings[5].session.past_context = PastContext::kReRotate;

  FailureSetting tiers = {"Tiers", one_thread, {.policy = SmallPolicy("attention", "25%")}};
  tiers.session.policy.budget = {};
  tiers.engine.tiers = EngineTiers{.t2_type = CompressedType::kInt8};
  tiers.session.policy.tiers = TierShares{.t0_share = 0.3, .t2_share = 0.3, .evict_share = 0.1};
  settings.push_back(tiers);
  tiers.name = "TiersOnHost";
  tiers.engine.tiers->t1 = T1Place::kHost;
  tiers.session.policy.granularity = Granularity::kHead;
  tiers.session.ledger = SessionOptions::Record::kYes;
  settings.push_back(tiers);

  FailureSetting lossless = {"Lossless", one_thread, {}};
  lossless.engine.tiers = EngineTiers();
  lossless.session.policy = {.name = "streaming", .sinks = 4, .window = 12};
  lossless.session.lossless = LosslessOptions{.draft_min = 6, .draft_max = 6};
  settings.push_back(lossless);
  return settings;
}

class AllocationFailure : public testing::TestWithParam<FailureSetting> {
 protected:
  void SetUp() override {
    auto engine = Engine::Create(SmallModel(), GetParam().engine);
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }
  // Behind the last step that has all the memory it asks for.
  [[nodiscard]] std::unique_ptr<Session> Begin() const {
    auto session = Open(*engine_, GetParam().session);
    ExpectOk(session->Prefill(std::span(text_).first(kFailurePromptTokens)));
    for (size_t i = kFailurePromptTokens; i < kFirst; ++i) ExpectOk(Decode(*session, i));
    return session;
  }
  // What one was to read, the rest of it.
  [[nodiscard]] Status Act(Session& session, size_t i, Position end) const {
    if (i == kRollBack) return session.TruncateTo(end);
    if (i != kReading) return Decode(session, i);
    return session.Prefill(std::span(text_).last(end - session.next_position())).status;
  }
  // Its guesses are right but for one in five.
  [[nodiscard]] Status Decode(Session& session, size_t i) const {
    if (!GetParam().session.lossless.has_value()) return session.Decode(text_[i]).status;
    return session
        .Decode(text_[i],
                [this, i](std::span<const float>) mutable {
                  ++i;
                  return std::optional<Token>(i % 5 == 0 ? 3 : text_[i]);
                })
        .status;
  }
  [[nodiscard]] static Position EndOf(const Session& session, size_t i) {
    const Position now = session.next_position();
    if (i == kRollBack) return now - 7;
    return now + (i == kReading ? 20 : 1);
  }

  std::unique_ptr<Engine> engine_;
  const std::vector<Token> text_ = SomeTokens(kLast + 8);
};

TEST_P(AllocationFailure, LeavesTheSequenceAsItWasOrEndsIt) {
  std::vector<std::vector<float>> expected;
  std::vector<Position> ends;
  const auto undisturbed = Begin();
  for (size_t i = kFirst; i < kLast; ++i) {
    ends.push_back(EndOf(*undisturbed, i));
    ExpectOk(Act(*undisturbed, i, ends.back()));
    ASSERT_EQ(undisturbed->next_position(), ends.back());
    expected.push_back(Logits(*undisturbed));
  }
  int64_t num_taken_again = 0;
  for (int64_t allocation = 0;; ++allocation) {
    SCOPED_TRACE(allocation);
    const auto session = Begin();
    int64_t left = allocation;
    bool has_ended = false;
    for (size_t i = kFirst; i < kLast && !has_ended; ++i) {
      const Position end = ends[i - kFirst];
      allocations_left = left;
      Status status = Act(*session, i, end);
      left = std::exchange(allocations_left, -1);
      if (!status.ok()) {
        ASSERT_EQ(left, -1) << status.ToString();
        ASSERT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
        // A policy that fails behind a step does not undo it.
        if (i != kRollBack && session->next_position() == end) continue;
        status = Act(*session, i, end);
        has_ended = !status.ok();
        if (!has_ended) ++num_taken_again;
      }
      if (has_ended) {
        EXPECT_THAT(status.message(), HasSubstr("cannot go on"));
        EXPECT_FALSE(session->Decode(text_[i]).ok());
      } else {
        ASSERT_EQ(session->next_position(), end);
        ASSERT_EQ(Logits(*session), expected[i - kFirst]) << i;
      }
    }
    if (session->ledger() != nullptr) session->ledger()->ForEach([](const LedgerEvent&) {});
    if (left >= 0) break;  // no step asks for so much
  }
  EXPECT_GT(num_taken_again, 0);
}

INSTANTIATE_TEST_SUITE_P(Settings, AllocationFailure, testing::ValuesIn(Settings()),
                         [](const auto& info) { return info.param.name; });

// A model with windows plans checkpoints before it reads a prompt.
TEST(AllocationFailureInPrompts, LeavesTheSequenceAsItWas) {
  RandomGgufOptions shape = SmallModelOptions();
  shape.family = "gemma3";
  shape.sliding_window = 16;
  shape.window_layers = {true, false};
  const auto engine = MakeEngineOf(RandomModel(shape), {.threads = 1});
  const std::vector<Token> text = SomeTokens(60);
  const std::span<const Token> first = std::span(text).first(20), rest = std::span(text).last(40);
  auto undisturbed = Open(*engine);
  ExpectOk(undisturbed->Prefill(first));
  ExpectOk(undisturbed->Prefill(rest));
  for (int64_t allocation = 0;; ++allocation) {
    SCOPED_TRACE(allocation);
    auto session = Open(*engine);
    ExpectOk(session->Prefill(first));
    allocations_left = allocation;
    const StepOutcome outcome = session->Prefill(rest);
    if (std::exchange(allocations_left, -1) >= 0) break;
    if (outcome.status.ok()) continue;  // done without what there was no memory for
    ASSERT_EQ(outcome.status.code(), StatusCode::kOutOfMemory);
    if (session->next_position() != 20) continue;
    ExpectOk(session->Prefill(rest));
    EXPECT_EQ(session->logits_hash(), undisturbed->logits_hash());
  }
}

// A draft that has no memory ends guessing, and not the step.
TEST(AllocationFailureInDrafts, LeavesThePlainStep) {
  const auto engine = MakeEngineOf(SmallModel(), {.threads = 1, .draft_model = SmallModel()});
  const std::vector<Token> text = SomeTokens(22);
  const Guess wrong = [](std::span<const float>) { return std::optional<Guessed>(Guessed(3)); };
  auto plain = Open(*engine);
  ExpectOk(plain->Prefill(std::span(text).first(20)));
  for (size_t i = 20; i < 22; ++i) ExpectOk(plain->Decode(text[i]));
  int64_t num_dropped = 0;
  for (int64_t allocation = 0;; ++allocation) {
    SCOPED_TRACE(allocation);
    auto session = Open(
        *engine,
        SessionOptions{.speculation = Speculation::kModel, .least_guesses = 4, .most_guesses = 4});
    ExpectOk(session->Prefill(std::span(text).first(20)));
    ExpectOk(session->Decode(text[20], wrong));
    allocations_left = allocation;
    const StepOutcome outcome = session->Decode(text[21], wrong);
    if (std::exchange(allocations_left, -1) >= 0) break;
    EXPECT_NE(outcome.status.message(), "no memory for a step with guesses");
    if (!session->TakesGuesses()) ++num_dropped;
    if (outcome.ok()) ASSERT_EQ(session->logits_hash(), plain->logits_hash());
  }
  EXPECT_GT(num_dropped, 0);
}

}  // namespace
}  // namespace ebb
