#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers/segments.h"

namespace ebb {
namespace {

const ModelShape kOneHead = {
    .num_layers = 2, .num_q_heads = 1, .num_kv_heads = 1, .head_dim = 4, .embed_dim = 4};
constexpr int kTau = 4;
constexpr int kSegments = 9;

// The scores after some segments, each with attention of a spread of its own. Both layers see the
// same, but for one that is left out for a NaN during a segment, and so do all heads of a layer.
std::vector<float> ScoresWithout(const char* policy_name, int left_out_segment, int heads = 1) {
  PolicySpec spec = {.name = policy_name,
                     .params = {{"tau", "4"}},
                     .budget = {Budget::Unit::kPercent, 50},
                     .granularity = Granularity::kToken};
  if (spec.name == "thinkv") {
    spec.params.insert({{"reasoning", "3"}, {"execution", "2"}, {"transition", "1"}});
  }
  ModelShape shape = kOneHead;
  shape.num_q_heads = heads;
  auto policy = MakePolicy(spec, {.shape = shape, .max_tokens = 512});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  Scorer& scorer = *policy->scorer;
  for (int token = 0; token < kSegments * kTau; ++token) {
    const int segment = token / kTau;
    const bool one_layer = segment == left_out_segment;
    const Position position = token;
    scorer.Append(0, {&position, 1});
    const auto rows = static_cast<size_t>(token) + 1;
    // The first so many rows share what there is.
    const size_t reached = std::min<size_t>(rows, 1 + segment % 3 * 3);
    std::vector<float> mass(2 * heads * rows, 0.0f);
    for (int head = 0; head < (one_layer ? heads : 2 * heads); ++head) {
      std::fill_n(mass.begin() + head * rows, reached, 1.0f / static_cast<float>(reached));
    }
    const std::vector<float> key = {1, 2, 3, static_cast<float>(token % 5)};
    scorer.ObserveGroup(0,
                        {.mass = mass,
                         .num_mass_heads = 2 * heads,
                         .num_rows = token + 1,
                         .num_new_rows = 1,
                         .num_layers_counted = one_layer ? 1 : 2},
                        {.first_position = position, .num_tokens = 1, .keys = {key, key}});
  }
  const auto scores = scorer.Scores(0);
  return {scores.begin(), scores.end()};
}

TEST(SegmentScorer, ALayerThatIsLeftOutChangesNoSegment) {
  for (const char* policy : {"thinkv", "thinkv_original"}) {
    const std::vector<float> all = ScoresWithout(policy, -1);
    for (int segment = 0; segment < kSegments; ++segment) {
      EXPECT_THAT(ScoresWithout(policy, segment),
                  testing::Pointwise(testing::FloatNear(1e-5f), all))
          << policy << " " << segment;
    }
  }
}

TEST(SegmentScorer, ManyHeadsThatSeeTheSameAreAsOne) {
  for (const char* policy : {"thinkv", "thinkv_original"}) {
    const std::vector<float> one = ScoresWithout(policy, 2);
    EXPECT_THAT(ScoresWithout(policy, 2, 25), testing::Pointwise(testing::FloatNear(1e-5f), one))
        << policy;
  }
}

void Take(Segments* segments, StepKind kind, int num_tokens, float signal) {
  for (int i = 0; i < num_tokens; ++i) {
    segments->Take(kind);
    if (kind == StepKind::kDecode) segments->AddSignal(signal);
    (void)segments->CloseIfFull();
  }
}

// Segments of 4 and 2 given tokens, then of 4 generated ones, of which the last is open.
Segments SomeSegments() {
  Segments segments(kTau);
  Take(&segments, StepKind::kPrefill, 6, 0);
  for (const float signal : {0.5f, 0.1f, 0.9f}) Take(&segments, StepKind::kDecode, 4, signal);
  Take(&segments, StepKind::kDecode, 2, 0.3f);
  return segments;
}

void ExpectCounts(const Segments& segments, int num_tokens, int size, int num_closed) {
  EXPECT_EQ(segments.num_tokens(), num_tokens);
  EXPECT_EQ(segments.size(), size);
  EXPECT_EQ(segments.num_closed(), num_closed);
}

TEST(Segments, ARollBackTakesBackWhatBeganBehindIt) {
  Segments segments = SomeSegments();
  ExpectCounts(segments, 20, 6, 5);
  EXPECT_EQ(segments.TypeOf(4), Thought::kExecution);
  segments.TruncateTo(20);
  ExpectCounts(segments, 20, 6, 5);
  segments.TruncateTo(19);
  ExpectCounts(segments, 19, 6, 5);
  segments.TruncateTo(18);
  ExpectCounts(segments, 18, 5, 5);
  segments.TruncateTo(6);
  ExpectCounts(segments, 6, 2, 2);
  EXPECT_EQ(segments.Take(StepKind::kDecode), 2);
  segments.TruncateTo(0);
  ExpectCounts(segments, 0, 0, 0);
  EXPECT_EQ(segments.Take(StepKind::kDecode), 0);
}

TEST(Segments, OneThatARollBackCutsIsOpenAndGoesOnWithItsSignal) {
  Segments segments = SomeSegments();
  segments.TruncateTo(16);
  ExpectCounts(segments, 16, 5, 4);
  EXPECT_EQ(segments.TypeOf(4), Thought::kReasoning);
  Segments others = segments;
  Take(&segments, StepKind::kDecode, 1, 0.9f);
  ExpectCounts(segments, 17, 5, 4);
  Take(&segments, StepKind::kDecode, 1, 0.9f);
  ExpectCounts(segments, 18, 5, 5);
  EXPECT_EQ(segments.TypeOf(4), Thought::kExecution);
  // (0.9 + 0.9 + 0 + 0) / 4 lies between the other two.
  Take(&others, StepKind::kDecode, 2, 0);
  ExpectCounts(others, 18, 5, 5);
  EXPECT_EQ(others.TypeOf(4), Thought::kReasoning);
}

TEST(Segments, LengthsThatCannotBeAreRefused) {
  const auto load = [](int num_closed, int num_tokens, int num_signals) {
    StateWriter to;
    to.Number<int32_t>(num_closed);
    to.Number<uint64_t>(1);
    to.Number<uint8_t>(1);
    to.Number<uint8_t>(0);
    to.Number<int32_t>(num_tokens);
    to.Number<float>(0.5f);
    to.Number<int32_t>(num_signals);
    StateReader from(to.bytes(), "segments");
    return Segments(kTau).Load(&from).code();
  };
  EXPECT_EQ(load(1, 4, 4), StatusCode::kOk);
  EXPECT_EQ(load(0, 1, 0), StatusCode::kOk);
  for (const int num_tokens : {-1, 0, 5, 1 << 30}) {
    EXPECT_EQ(load(0, num_tokens, 0), StatusCode::kCorrupt) << num_tokens;
  }
  EXPECT_EQ(load(0, 3, 4), StatusCode::kCorrupt);
  EXPECT_EQ(load(0, 3, -1), StatusCode::kCorrupt);
  EXPECT_EQ(load(2, 3, 3), StatusCode::kCorrupt);
}

// Each token's attention is its own row's alone, so that tokens that are taken back leave nothing
// in the scores of others; no row goes but by a roll-back.
class SelfishThought {
 public:
  explicit SelfishThought(const std::string& name) {
    PolicySpec spec = {
        .name = name, .params = {{"tau", "4"}}, .budget = {Budget::Unit::kPercent, 50}};
    if (name == "thinkv") {
      spec.params.insert({{"reasoning", "3"}, {"execution", "2"}, {"transition", "1"}});
    }
    auto policy = MakePolicy(spec, {.shape = kOneHead, .max_tokens = 512});
    EXPECT_TRUE(policy.ok()) << policy.status().ToString();
    policy_ = *std::move(policy);
  }

  void Read(int num_tokens) {
    const std::vector<float> keys(size_t(num_tokens) * kOneHead.head_dim, 1.0f);
    Append(num_tokens);
    scorer().ObserveGroup(0, {.num_rows = next_, .num_new_rows = num_tokens},
                          {.kind = StepKind::kPrefill,
                           .first_position = next_ - num_tokens,
                           .num_tokens = num_tokens,
                           .keys = {keys, keys}});
  }
  void Think(int num_tokens) {
    for (int i = 0; i < num_tokens; ++i) {
      Append(1);
      const auto rows = static_cast<size_t>(next_);
      std::vector<float> mass(2 * rows, 0.0f);
      mass[rows - 1] = mass[2 * rows - 1] = 1;
      const std::vector<float> key = {1, 2, 3, static_cast<float>(next_ % 5)};
      scorer().ObserveGroup(0,
                            {.mass = mass,
                             .num_mass_heads = 2,
                             .num_rows = next_,
                             .num_new_rows = 1,
                             .num_layers_counted = 2},
                            {.first_position = next_ - 1, .num_tokens = 1, .keys = {key, key}});
    }
  }
  void TruncateTo(Position end) {
    std::vector<uint32_t> kept(end);
    std::iota(kept.begin(), kept.end(), 0);
    scorer().Retain(0, kept);
    next_ = end;
  }
  [[nodiscard]] std::vector<float> Scores() {
    const std::span<const float> scores = scorer().Scores(0);
    return {scores.begin(), scores.end()};
  }
  [[nodiscard]] std::string Save() {
    StateWriter to;
    EXPECT_TRUE(scorer().SaveState(&to).ok());
    return to.text();
  }
  [[nodiscard]] StatusCode Load(const std::string& state) {
    StateReader from(std::as_bytes(std::span(state)), "the scorer");
    return scorer().LoadState(&from).code();
  }

 private:
  Scorer& scorer() { return *policy_.scorer; }
  void Append(int num_tokens) {
    std::vector<Position> positions(num_tokens);
    std::iota(positions.begin(), positions.end(), next_);
    scorer().Append(0, positions);
    next_ += num_tokens;
  }

  Policy policy_;
  Position next_ = 0;
};

TEST(SegmentScorer, AThoughtThatWasRolledBackIsCutAsOneThatWasNot) {
  constexpr int kPrompt = 6, kThought = 30;
  SelfishThought straight("thinkv");
  straight.Read(kPrompt);
  straight.Think(kThought);
  const std::vector<float> expected = straight.Scores();
  EXPECT_TRUE(std::ranges::any_of(expected, [](float score) { return score < 0; }));
  for (int before = 0; before < 14; ++before) {
    for (int taken_back = 1; taken_back < 11; ++taken_back) {
      SelfishThought rolled("thinkv");
      rolled.Read(kPrompt);
      rolled.Think(before);
      rolled.Think(taken_back);
      rolled.TruncateTo(kPrompt + before);
      rolled.Think(kThought - before);
      EXPECT_EQ(rolled.Scores(), expected) << before << " and " << taken_back;
    }
  }
}

TEST(SegmentScorer, RowsOfASegmentThatIsOpenAgainHaveRoom) {
  SelfishThought thought("thinkv");
  thought.Think(12);
  // The third segment is a transition: there is room for one of its four rows.
  EXPECT_LT(thought.Scores()[9], 0);
  thought.TruncateTo(11);
  EXPECT_LT(thought.Scores()[9], 0) << "a roll-back alone changes no score";
  thought.Think(1);
  EXPECT_LT(thought.Scores()[9], 0) << "it is full and closed again";
  thought.TruncateTo(10);
  thought.Think(1);
  EXPECT_GT(thought.Scores()[9], 0);
}

TEST(SegmentScorer, AThoughtThatWasRolledBackCanBeSaved) {
  for (const char* name : {"thinkv", "thinkv_original"}) {
    SelfishThought saved(name), loaded(name);
    saved.Think(22);
    saved.TruncateTo(9);
    EXPECT_EQ(SelfishThought(name).Load(saved.Save()), StatusCode::kOk) << name;
    saved.Think(1);
    ASSERT_EQ(loaded.Load(saved.Save()), StatusCode::kOk) << name;
    EXPECT_EQ(loaded.Scores(), saved.Scores());
  }
}

TEST(SegmentScorer, RowsOfSegmentsThatAreNotThereAreRefused) {
  SelfishThought thought("thinkv");
  thought.Think(2);
  std::string state = thought.Save();
  // Scores and then segments of two rows, each list behind the number of groups and its length.
  const size_t last_id = (8 + 8 + 2 * 4) + 8 + 8 + 4;
  float id = -1;
  std::memcpy(&id, state.data() + last_id, sizeof(id));
  ASSERT_EQ(id, 0);
  EXPECT_EQ(SelfishThought("thinkv").Load(state), StatusCode::kOk);
  for (const float other : {1.0f, -1.0f}) {
    std::memcpy(state.data() + last_id, &other, sizeof(other));
    EXPECT_EQ(SelfishThought("thinkv").Load(state), StatusCode::kCorrupt) << other;
  }
}

constexpr ModelShape kWideShape = {
    .num_layers = 12, .num_q_heads = 3, .num_kv_heads = 1, .head_dim = 4, .embed_dim = 4};

struct WideThought {
  std::vector<float> scores;
  std::vector<double> attention;  // cumulative, mean over layers and heads
};

// 40 tokens that follow a prompt of 2,000, with attention that differs by head.
WideThought ThinkWide(const std::string& policy_name, const RunParts& run_parts) {
  constexpr int kPrompt = 2000, kTokens = 40, kHeads = 36;
  const PolicySpec spec = {.name = policy_name,
                           .params = {{"tau", "4"}},
                           .budget = {Budget::Unit::kPercent, 50},
                           .granularity = Granularity::kToken};
  auto policy = MakePolicy(spec, {.shape = kWideShape, .max_tokens = 4096, .run_parts = run_parts});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  Scorer& scorer = *policy->scorer;
  std::vector<Position> prompt(kPrompt);
  std::iota(prompt.begin(), prompt.end(), 0);
  scorer.Append(0, prompt);
  const std::vector<float> key(4 * kPrompt, 1.0f);
  const std::vector<std::span<const float>> keys(kWideShape.num_layers, key);
  std::mt19937 random(1);
  std::vector<float> output(key.size());  // of a block
  const auto change = [&] {
    for (float& x : output) x = static_cast<float>(random() % 100);
  };
  change();
  const std::vector<int> layers = scorer.Needs().hidden_layers;
  const std::vector<std::span<const float>> hidden(layers.size(), output);
  scorer.ObserveGroup(0, {.num_rows = kPrompt, .num_new_rows = kPrompt},
                      {.kind = StepKind::kPrefill,
                       .num_tokens = kPrompt,
                       .keys = keys,
                       .hidden_layers = layers,
                       .hidden = hidden});
  std::vector<double> attention(kPrompt + kTokens);
  for (Position position = kPrompt; position < kPrompt + kTokens; ++position) {
    scorer.Append(0, {&position, 1});
    const auto rows = static_cast<size_t>(position) + 1;
    std::vector<float> mass(kHeads * rows);
    for (float& m : mass) m = static_cast<float>(random() % 1000) / static_cast<float>(500 * rows);
    std::fill_n(mass.begin() + 5 * rows, rows, 0.0f);  // a head without any
    for (size_t i = 0; i < mass.size(); ++i) attention[i % rows] += mass[i] / double{kHeads};
    change();
    scorer.ObserveGroup(0,
                        {.mass = mass,
                         .num_mass_heads = kHeads,
                         .num_rows = position + 1,
                         .num_new_rows = 1,
                         .num_layers_counted = 12},
                        {.first_position = position,
                         .num_tokens = 1,
                         .keys = keys,
                         .hidden_layers = layers,
                         .hidden = hidden});
  }
  const auto scores = scorer.Scores(0);
  return {{scores.begin(), scores.end()}, attention};
}

TEST(SegmentScorer, PartsInAnyOrderGiveTheSameBits) {
  for (const std::string policy : {"thinkv", "thinkv_original", "segment_hs"}) {
    int num_calls = 0;
    const RunParts backwards = [&](int num_parts, const std::function<void(int)>& work) {
      EXPECT_GT(num_parts, 1);
      for (int part = num_parts - 1; part >= 0; --part) work(part);
      ++num_calls;
    };
    const WideThought thought = ThinkWide(policy, backwards);
    EXPECT_EQ(num_calls, 40);
    EXPECT_EQ(thought.scores, ThinkWide(policy, {}).scores) << policy;
    if (policy == "segment_hs") continue;  // ranks by something else
    for (size_t row = 0; row < thought.scores.size(); ++row) {
      const double rank = thought.attention[row] / (1 + thought.attention[row]);
      const float score = thought.scores[row];
      EXPECT_NEAR(score < 0 ? score + 1 : score, rank, 1e-5) << policy << " row " << row;
    }
  }
}

}  // namespace
}  // namespace ebb
