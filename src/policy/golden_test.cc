// Every policy against values that were worked out a second time, from the papers' formulas, and
// against those of published code (tests/golden): its scores and the rows that are left after many
// decisions.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>

#include "ebb/lab/foresight.h"
#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/golden_signals_for_test.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

// The signals of tests/golden/sequence.py; there is what they are.
class Signals {
 public:
  Signals(uint64_t seed, Granularity granularity, const SignalNeeds& needs)
      : seed_(seed), granularity_(granularity), needs_(needs) {}

  const StepSignals& Step(StepKind kind, Position first, int num_tokens) {
    step_ = {.kind = kind, .first_position = first, .num_tokens = num_tokens};
    const auto fill = [&](bool wanted, size_t count, size_t floats,
                          std::vector<std::vector<float>>* data,
                          std::vector<std::span<const float>>* spans, const auto& at) {
      if (!wanted) return;
      data->assign(count, std::vector<float>(floats));
      spans->clear();
      for (size_t i = 0; i < count; ++i) {
        for (size_t j = 0; j < floats; ++j) (*data)[i][j] = static_cast<float>(at(i, j));
        spans->push_back((*data)[i]);
      }
    };
    const size_t dim = kGoldenShape.head_dim, kv = kGoldenShape.num_kv_heads,
                 q = kGoldenShape.num_q_heads;
    fill(needs_.keys, kGoldenShape.num_layers, num_tokens * kv * dim, &keys_, &step_.keys,
         [&](uint64_t l, size_t j) {
           return GoldenKey(seed_, l, j / dim % kv, first + j / (dim * kv), j % dim);
         });
    fill(needs_.values, kGoldenShape.num_layers, num_tokens * kv * dim, &values_, &step_.values,
         [&](uint64_t l, size_t j) {
           return Uniform({seed_, 3, l, j / dim % kv, first + j / (dim * kv), j % dim}) - 0.4;
         });
    fill(needs_.eviction_logits, kGoldenShape.num_layers, num_tokens * kv, &eviction_logits_,
         &step_.eviction_logits, [&](uint64_t l, size_t j) {
           return 6 * (Uniform({seed_, 10, l, j % kv, first + j / kv}) - 0.5);
         });
    const int num_recent = std::min(needs_.num_recent_queries, first + num_tokens);
    const Position first_query = first + num_tokens - num_recent;
    step_.num_recent = num_recent;
    fill(num_recent > 0, kGoldenShape.num_layers, num_recent * q * dim, &queries_,
         &step_.recent_queries, [&](uint64_t l, size_t j) {
           return GoldenQuery(seed_, l, j / dim % q, first_query + j / (dim * q), j % dim);
         });
    step_.hidden_layers = needs_.hidden_layers;
    const size_t embed = kGoldenShape.embed_dim;
    fill(!needs_.hidden_layers.empty(), needs_.hidden_layers.size(), num_tokens * embed, &hidden_,
         &step_.hidden, [&](size_t i, size_t j) {
           const uint64_t at = first + j / embed;
           const double size = 1 + 4 * Uniform({seed_, 8, at / 7});
           const auto layer = static_cast<uint64_t>(needs_.hidden_layers[i]);
           return size * (Uniform({seed_, 5, layer, at, j % embed}) - 0.5);
         });
    return step_;
  }

  GroupSignals Group(int group, std::span<const Position> positions) {
    GroupSignals signals = {.num_rows = static_cast<int>(positions.size()),
                            .num_new_rows = step_.num_tokens};
    if (needs_.mass == MassNeed::kNone) return signals;
    if (step_.kind == StepKind::kPrefill && !needs_.mass_in_prefill) return signals;
    const int streams =
        kGoldenShape.num_layers * kGoldenShape.num_kv_heads / kGoldenShape.NumGroups(granularity_);
    const int per_kv = kGoldenShape.QueryHeadsPerKvHead(0);
    const bool by_head = needs_.mass == MassNeed::kPerQueryHead;
    signals.num_mass_heads = by_head ? streams * per_kv : 1;
    signals.num_layers_counted = granularity_ == Granularity::kToken ? kGoldenShape.num_layers : 1;
    std::vector<float>& mass = mass_[group];
    mass.assign(signals.num_mass_heads * positions.size(), 0);
    for (int token = 0; token < step_.num_tokens; ++token) {
      const Position query = step_.first_position + token;
      const auto seen = std::upper_bound(positions.begin(), positions.end(), query);
      for (int head = 0; head < streams * per_kv; ++head) {
        const int stream = group * streams + head / per_kv;
        const int q_head = stream % kGoldenShape.num_kv_heads * per_kv + head % per_kv;
        AddAttention(stream / kGoldenShape.num_kv_heads, q_head, query,
                     positions.first(seen - positions.begin()),
                     mass.data() + (by_head ? head * positions.size() : 0));
      }
    }
    signals.mass = mass;
    return signals;
  }

 private:
  void AddAttention(uint64_t layer, uint64_t q_head, Position query,
                    std::span<const Position> positions, float* to) const {
    const auto at = static_cast<uint64_t>(query);
    const double spread = 2 + 8 * Uniform({seed_, 7, at / 6});
    std::vector<double> weights;
    for (const Position p : positions) {
      weights.push_back(
          std::exp(spread * Uniform({seed_, 6, layer, q_head, at, static_cast<uint64_t>(p)})));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < weights.size(); ++i) to[i] += static_cast<float>(weights[i] / sum);
  }

  const uint64_t seed_;
  const Granularity granularity_;
  const SignalNeeds needs_;
  StepSignals step_;
  std::vector<std::vector<float>> keys_, values_, queries_, hidden_, eviction_logits_;
  std::map<int, std::vector<float>> mass_;  // by group
};

class GoldenSequence {
 public:
  GoldenSequence(Policy policy, uint64_t seed)
      : policy_(std::move(policy)),
        signals_(seed, policy_.granularity, policy_.scorer->Needs()),
        groups_(kGoldenShape.NumGroups(policy_.granularity)) {}

  void Step(StepKind kind, int num_tokens) {
    const auto first = static_cast<Position>(kinds_.size());
    std::vector<Position> appended(num_tokens);
    std::iota(appended.begin(), appended.end(), first);
    kinds_.insert(kinds_.end(), num_tokens,
                  kind == StepKind::kDecode ? TokenKind::kGenerated : TokenKind::kGiven);
    generated_tokens_ += kind == StepKind::kDecode ? 1 : 0;
    kind_ = kind;
    const StepSignals& step = signals_.Step(kind, first, num_tokens);
    std::vector<GroupSignals> shown;
    for (int group = 0; group < num_groups(); ++group) {
      groups_[group].insert(groups_[group].end(), appended.begin(), appended.end());
      policy_.scorer->Append(group, appended);
      shown.push_back(signals_.Group(group, groups_[group]));
    }
    policy_.scorer->Observe(shown, step);
  }

  void Decide() {
    for (int group = 0; group < num_groups(); ++group) {
      PlacementInput input = {.group = group,
                              .num_groups = num_groups(),
                              .positions = groups_[group],
                              .kinds = kinds_,
                              .next_position = static_cast<Position>(kinds_.size()),
                              .generated_tokens = generated_tokens_,
                              .step_kind = kind_};
      if (!policy_.placement->Due(input, groups_[group].size())) continue;
      input.scores = policy_.scorer->Scores(group);
      std::vector<Move> moves;
      policy_.placement->Place(input, &moves);
      std::set<uint32_t> gone;
      for (const Move& move : moves) gone.insert(move.row);
      std::vector<uint32_t> kept;
      std::vector<Position> left;
      for (uint32_t row = 0; row < groups_[group].size(); ++row) {
        if (gone.contains(row)) continue;
        kept.push_back(row);
        left.push_back(groups_[group][row]);
      }
      if (gone.empty()) continue;
      groups_[group] = left;
      policy_.scorer->Retain(group, kept);
    }
  }

  // Removes the rows before a layer's window from the scorer.
  void LoseRowsBefore(Position first) {
    for (int group = 0; group < num_groups(); ++group) KeepRows(group, first, kinds_.size());
  }
  void TruncateTo(Position end) {
    for (int group = 0; group < num_groups(); ++group) KeepRows(group, 0, end);
    kinds_.resize(end);
    generated_tokens_ = std::count(kinds_.begin(), kinds_.end(), TokenKind::kGenerated);
  }
  [[nodiscard]] std::vector<float> Scores(int group) {
    const std::span<const float> scores = policy_.scorer->Scores(group);
    return {scores.begin(), scores.end()};
  }

  [[nodiscard]] int num_groups() const { return static_cast<int>(groups_.size()); }
  [[nodiscard]] const std::vector<Position>& positions(int group) const { return groups_[group]; }
  Policy& policy() { return policy_; }

 private:
  // Keeps the rows at positions from `begin` on and before `end`.
  void KeepRows(int group, Position begin, Position end) {
    std::vector<uint32_t> kept;
    std::vector<Position> left;
    for (uint32_t row = 0; row < groups_[group].size(); ++row) {
      const Position position = groups_[group][row];
      if (position < begin || position >= end) continue;
      kept.push_back(row);
      left.push_back(position);
    }
    groups_[group] = left;
    policy_.scorer->Retain(group, kept);
  }

  Policy policy_;
  Signals signals_;
  std::vector<std::vector<Position>> groups_;  // [num_groups][num_rows]
  std::vector<TokenKind> kinds_;
  int64_t generated_tokens_ = 0;
  StepKind kind_ = StepKind::kPrefill;
};

// The cache from which nothing goes, over the same tokens as a sequence.
class Replay {
 public:
  Replay(uint64_t seed, Granularity granularity)
      : num_groups_(kGoldenShape.NumGroups(granularity)),
        signals_(seed, granularity, ReplayedAttention::Needs()) {
    foresight.Begin(kGoldenShape, granularity);
  }

  void Add(StepKind kind, Position first, int num_tokens) {
    Show(kind, first, num_tokens, &ReplayedAttention::Add);
  }
  void Remove(StepKind kind, Position first, int num_tokens) {
    Show(kind, first, num_tokens, &ReplayedAttention::Remove);
  }

  ReplayedAttention foresight;

 private:
  template <typename Watch>
  void Show(StepKind kind, Position first, int num_tokens, Watch watch) {
    std::vector<Position> all(first + num_tokens);
    std::iota(all.begin(), all.end(), 0);
    const StepSignals& step = signals_.Step(kind, first, num_tokens);
    for (int group = 0; group < num_groups_; ++group) {
      (foresight.*watch)(group, all, signals_.Group(group, all), step);
    }
  }

  const int num_groups_;
  Signals signals_;
};

// Returns the cases of the formulas, then those of published code.
const std::vector<Json>& GoldenCases() {
  static const std::vector<Json> cases = [] {
    std::vector<Json> all;
    for (const char* file : {"policies.json", "published.json"}) {
      const Json some =
          Json::parse(std::ifstream(std::string(EBB_SOURCE_DIR) + "/tests/golden/" + file));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return cases;
}

std::optional<int> IntOr(const Json& options, const char* key) {
  if (!options.contains(key)) return std::nullopt;
  return options[key].get<int>();
}

Policy MakeGolden(const Json& c, const Foresight& foresight) {
  PolicySpec spec;
  EXPECT_TRUE(ParsePolicy(c["policy"].get<std::string>(), &spec).ok());
  if (!c["budget"].is_null()) spec.budget = *ParseBudget(c["budget"].get<std::string>());
  spec.granularity = *ParseGranularity(c["granularity"].get<std::string>());
  spec.sinks = IntOr(c["options"], "sinks");
  spec.window = IntOr(c["options"], "window");
  spec.interval = IntOr(c["options"], "interval");
  auto policy = MakePolicy(spec, {.shape = kGoldenShape,
                                  .row_bytes = 64,
                                  .max_tokens = 4096,
                                  .foresight = &foresight,
                                  .eviction_window = 12});
  EXPECT_TRUE(policy.ok()) << c["policy"] << policy.status().ToString();
  return *std::move(policy);
}

// Sums of hundreds of floats, and keys in 16 bits, against doubles. null: published code has no
// score that compares.
void ExpectScores(std::span<const float> scores, const Json& expected) {
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (expected[i].is_null()) continue;
    const double wanted = expected[i];
    ASSERT_NEAR(scores[i], wanted, 2e-4 * std::abs(wanted) + 2e-5) << "row " << i;
  }
}

class Golden : public ::testing::TestWithParam<size_t> {};

TEST_P(Golden, ScoresAndKeepsWhatTheFormulaSays) {
  const Json& c = GoldenCases()[GetParam()];
  SCOPED_TRACE(c["policy"].get<std::string>() + " " + c["budget"].dump());
  const auto seed = c["seed"].get<uint64_t>();
  const int num_steps = c["steps"], prompt = c["prompt"];
  Replay replay(seed, *ParseGranularity(c["granularity"].get<std::string>()));
  GoldenSequence sequence(MakeGolden(c, replay.foresight), seed);
  const bool looks_ahead = sequence.policy().looks_ahead;
  for (int step = 1; looks_ahead && step <= num_steps; ++step) {
    replay.Add(StepKind::kDecode, prompt + step - 1, 1);
  }
  auto checkpoint = c["checkpoints"].begin();
  for (int step = 0; step <= num_steps; ++step) {
    sequence.Step(step == 0 ? StepKind::kPrefill : StepKind::kDecode, step == 0 ? prompt : 1);
    if (looks_ahead && step > 0) replay.Remove(StepKind::kDecode, prompt + step - 1, 1);
    if (step == 0) sequence.policy().scorer->EndFirstPrefill();
    if (checkpoint != c["checkpoints"].end() && (*checkpoint)["step"] == step) {
      for (int group = 0; group < sequence.num_groups(); ++group) {
        const Json& expected = (*checkpoint)["groups"][group];
        SCOPED_TRACE("step " + std::to_string(step) + ", group " + std::to_string(group));
        ASSERT_EQ(sequence.positions(group), expected["positions"].get<std::vector<Position>>());
        if (expected.contains("scores")) {
          ExpectScores(sequence.policy().scorer->Scores(group), expected["scores"]);
        }
        if (HasFatalFailure()) return;
      }
      ++checkpoint;
    }
    sequence.Decide();
  }
  EXPECT_EQ(checkpoint, c["checkpoints"].end());
}

std::vector<size_t> CaseNumbers() {
  std::vector<size_t> numbers(GoldenCases().size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(Policies, Golden, ::testing::ValuesIn(CaseNumbers()),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           std::string name = GoldenCases()[info.param]["policy"];
                           if (GoldenCases()[info.param].contains("published"))
                             name += "_published";
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name + "_" + std::to_string(info.param);
                         });

GoldenSequence SequenceOf(const char* policy, Granularity granularity) {
  const PolicySpec spec = {
      .name = policy, .budget = {Budget::Unit::kPercent, 50}, .granularity = granularity};
  auto made = MakePolicy(spec, {.shape = kGoldenShape, .row_bytes = 64, .max_tokens = 4096});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return GoldenSequence(*std::move(made), /*seed=*/3);
}

// In the engine a row leaves a layer's window between the step's signals and the decision.
TEST(RkvScorer, ScoresAStepInWhichARowLeavesItsWindow) {
  for (const Granularity granularity : {Granularity::kLayer, Granularity::kHead}) {
    GoldenSequence early = SequenceOf("rkv", granularity), late = SequenceOf("rkv", granularity);
    for (GoldenSequence* sequence : {&early, &late}) {
      sequence->Step(StepKind::kPrefill, 20);
      for (int i = 0; i < 10; ++i) sequence->Step(StepKind::kDecode, 1);
    }
    early.LoseRowsBefore(5);
    early.Step(StepKind::kDecode, 1);
    late.Step(StepKind::kDecode, 1);
    late.LoseRowsBefore(5);
    for (int group = 0; group < late.num_groups(); ++group) {
      const std::vector<float> scores = late.Scores(group);
      ASSERT_EQ(scores.size(), 26u);
      EXPECT_EQ(scores, early.Scores(group)) << group;
      EXPECT_EQ(scores.back(), 1) << "one of the last 8";
      EXPECT_NE(scores.front(), 0) << group;
    }
  }
}

// Its queries may be of the step that is taken back.
TEST(RkvScorer, WhatWasScoredStaysScoredWhereAStepIsTakenBack) {
  GoldenSequence sequence = SequenceOf("rkv", Granularity::kHead);
  sequence.Step(StepKind::kPrefill, 30);
  const std::vector<float> scores = sequence.Scores(0);
  sequence.Step(StepKind::kDecode, 1);
  sequence.TruncateTo(30);
  EXPECT_EQ(sequence.Scores(0), scores);
}

TEST(RedundancyScorer, ATextThatWasForgottenAsAWholeLeavesNothing) {
  for (const char* policy : {"redundancy", "combined"}) {
    GoldenSequence used = SequenceOf(policy, Granularity::kLayer);
    GoldenSequence fresh = SequenceOf(policy, Granularity::kLayer);
    used.Step(StepKind::kPrefill, 30);
    for (int i = 0; i < 15; ++i) used.Step(StepKind::kDecode, 1);
    used.TruncateTo(0);
    for (GoldenSequence* sequence : {&used, &fresh}) {
      sequence->Step(StepKind::kPrefill, 10);
      for (int i = 0; i < 12; ++i) sequence->Step(StepKind::kDecode, 1);
    }
    for (int group = 0; group < fresh.num_groups(); ++group) {
      EXPECT_EQ(used.Scores(group), fresh.Scores(group)) << policy << " " << group;
    }
  }
}

TEST(GoldenTable, HasEveryPolicyThatScores) {
  std::set<std::string> covered;
  for (const Json& c : GoldenCases()) covered.insert(MakeGolden(c, ReplayedAttention()).name);
  // Their scores are a position or a hash, which their own tests hold.
  for (const char* name : {"full", "streaming_rerotated", "random", "recency", "quest"}) {
    covered.insert(name);
  }
  for (const PolicyInfo& info : BuiltinPolicies()) {
    EXPECT_TRUE(covered.contains(std::string(info.name))) << info.name;
  }
}

}  // namespace
}  // namespace ebb
