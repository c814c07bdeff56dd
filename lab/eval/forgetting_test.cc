#include "lab/eval/forgetting.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "ebb/lab/fidelity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/model_variants.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

ForgettingCost CostOf(const std::vector<float>& query, const std::vector<float>& keys,
                      const std::vector<float>& values, const std::vector<uint8_t>& is_left) {
  return CostOfForgetting(query,
                          {.keys = keys,
                           .values = values,
                           .is_left = is_left,
                           .head_dim = static_cast<int>(query.size())},
                          1);
}

// A row with v = 0 is evicted at alpha = 1/2, one with v = 1 is left.
TEST(CostOfForgetting, Equation4AsPrintedIsNoBound) {
  const ForgettingCost cost = CostOf({1}, {0, 0}, {0, 1}, {0, 1});
  EXPECT_EQ(cost.error, 0.5);
  EXPECT_EQ(cost.eq4, 0);
  EXPECT_EQ(cost.bound, 0.5);
  EXPECT_EQ(cost.mass, 0.5);
  EXPECT_EQ(cost.output_norm, 0.5);
}

// Logits 0, 0, ln 2 give the weights 1/4, 1/4, 1/2.
TEST(CostOfForgetting, IsWhatTheFormulasSay) {
  const float ln2 = std::log(2.0f);
  const ForgettingCost cost = CostOf({1, 0}, {0, 7, 0, -7, ln2, 0}, {4, 0, 0, 8, 2, 2}, {1, 0, 1});
  // By hand: o = (1 + 0 + 1, 0 + 2 + 1) = (2, 3); o' = (1 + 1, 0 + 1) / (3/4) = (8/3, 4/3).
  EXPECT_NEAR(cost.output_norm, std::sqrt(13.0), 1e-6);
  EXPECT_NEAR(cost.error, std::hypot(2.0 / 3, 5.0 / 3), 1e-6);
  EXPECT_NEAR(cost.mass, 0.25, 1e-7);
  EXPECT_NEAR(cost.eq4, 2 * 0.25 * 8, 1e-6);
  EXPECT_NEAR(cost.bound, 0.25 * 8 + 0.25 * std::hypot(8.0 / 3, 4.0 / 3), 1e-6);
}

TEST(CostOfForgetting, NothingEvictedCostsNothing) {
  const ForgettingCost cost = CostOf({1}, {0, 3}, {5, 1}, {1, 1});
  EXPECT_EQ(cost.error, 0);
  EXPECT_EQ(cost.mass, 0);
  EXPECT_EQ(cost.bound, 0);
}

TEST(CostOfForgetting, WithoutAnyRowLeftThereIsNoOutput) {
  EXPECT_TRUE(std::isnan(CostOf({1}, {0}, {5}, {0}).error));
}

TEST(CostOfForgetting, LargeLogitsDoNotOverflow) {
  const ForgettingCost cost = CostOf({1}, {9000, 8999}, {1, 2}, {1, 0});
  EXPECT_NEAR(cost.mass, 1 / (1 + std::exp(1.0)), 1e-9);
  EXPECT_TRUE(std::isfinite(cost.error));
}

TEST(CostOfForgetting, TheTrueBoundHoldsAndEquation4SometimesDoesNot) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  ForgettingCosts costs(1, 1);
  for (int round = 0; round < 2000; ++round) {
    const int dim = 1 + static_cast<int>(random() % 4);
    const size_t rows = 2 + random() % 12;
    std::vector<float> query(dim), keys(rows * dim), values(rows * dim);
    for (auto* all : {&query, &keys, &values}) {
      for (float& value : *all) value = normal(random);
    }
    std::vector<uint8_t> is_left(rows, 1);
    // Makes some evicted values nearly zero, for which Eq. 4 is wrong.
    for (size_t i = 0; i + 1 < rows; ++i) {
      if (random() % 3 != 0) continue;
      is_left[i] = 0;
      for (int d = 0; d < dim; ++d) values[i * dim + d] *= round % 2 == 0 ? 0.01f : 1.0f;
    }
    costs.Add(0, 0, CostOf(query, keys, values, is_left));
  }
  const ForgettingReport report = costs.Report();
  EXPECT_EQ(report.measured, 2000);
  EXPECT_EQ(report.not_finite, 0);
  EXPECT_EQ(report.above_bound, 0);
  EXPECT_GT(report.above_eq4, 100);
}

TEST(ForgettingCosts, AreSummedUpByLayerAndStep) {
  ForgettingCosts costs(2, 2);
  for (int i = 1; i <= 200; ++i) {
    costs.Add(0, 1, {.error = double(i), .output_norm = 2, .mass = 0.5, .eq4 = 500, .bound = 300});
    costs.Add(1, i % 2, {.error = 1, .output_norm = 1, .mass = 0.1, .eq4 = 0.5, .bound = 2});
    costs.EndStep();
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  costs.Add(1, 0, {.error = nan, .output_norm = 1, .mass = nan, .eq4 = nan, .bound = nan});
  const ForgettingReport report = costs.Report();
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.steps, 200);
  EXPECT_EQ(report.measured, 401);
  EXPECT_EQ(report.not_finite, 1);
  EXPECT_EQ(report.above_eq4, 200);
  EXPECT_EQ(report.above_bound, 0);
  EXPECT_DOUBLE_EQ(report.layers[0].error.mean, 100.5);
  EXPECT_EQ(report.layers[0].error.p99, 198);
  EXPECT_EQ(report.layers[0].error.max, 200);
  EXPECT_EQ(report.layers[0].relative_error.max, 100);
  ASSERT_EQ(report.layers[0].heads.size(), 2u);
  EXPECT_EQ(report.layers[0].heads[0].mass.max, 0);
  EXPECT_EQ(report.layers[0].heads[1].mass.max, 0.5);
  EXPECT_EQ(report.layers[0].heads[1].relative_error.p99, 99);
  ASSERT_EQ(report.mass_by_step.size(), 200u);
  EXPECT_DOUBLE_EQ(report.mass_by_step[7], 0.3);
  EXPECT_DOUBLE_EQ(report.error_by_step[3], (2 + 1) / 2.0);
}

class ForgettingOfSessions : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteRandomGguf(gguf_, folder_.File("tiny.gguf")).ok());
    model_ = *Model::Load({.path = folder_.File("tiny.gguf")});
    engine_ = *Engine::Create(model_, {.threads = 1, .kv_type = RowType::kF32});
  }
  [[nodiscard]] ForgettingReport Measure(const PolicySpec& policy,
                                         const SignalNeeds& watched = {}) const {
    FidelityOptions options;
    options.setting.policy = policy;
    options.setting.extra_signals = watched;
    options.prompt_tokens = 16;
    options.forgetting = FidelityOptions::Forgetting::kMeasure;
    const std::vector<std::vector<Token>> windows = {RandomTokens(gguf_, 60, 3)};
    const auto report = MeasureFidelity(*engine_, windows, options);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return *report->forgetting;
  }

  const RandomGgufOptions gguf_ = {.num_layers = 1, .context = 256};
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ForgettingOfSessions, TheFullCacheForgetsNothing) {
  const ForgettingReport report = Measure({.name = "full"});
  EXPECT_EQ(report.steps, 44);
  EXPECT_EQ(report.measured, 44 * 4);
  EXPECT_EQ(report.layers[0].mass.max, 0);
  EXPECT_EQ(report.layers[0].error.max, 0);
}

TEST_F(ForgettingOfSessions, EvictedRowsHaveMassAndTheTrueBoundHolds) {
  for (const Granularity granularity : {Granularity::kToken, Granularity::kHead}) {
    PolicySpec policy = {.name = "h2o", .granularity = granularity};
    policy.budget = *ParseBudget("12");
    const ForgettingReport report = Measure(policy);
    EXPECT_EQ(report.not_finite, 0);
    EXPECT_GT(report.layers[0].mass.mean, 0);
    EXPECT_LT(report.layers[0].mass.max, 1);
    EXPECT_GT(report.layers[0].error.mean, 0);
    EXPECT_EQ(report.above_bound, 0);
  }
}

TEST_F(ForgettingOfSessions, TheQueryIsThatOfTheStepWhoeverElseWatches) {
  PolicySpec policy = {.name = "streaming"};
  policy.budget = *ParseBudget("12");
  const ForgettingReport alone = Measure(policy);
  const ForgettingReport watched = Measure(policy, {.num_recent_queries = 5});
  EXPECT_GT(alone.layers[0].mass.mean, 0);
  EXPECT_EQ(watched.mass_by_step, alone.mass_by_step);
  EXPECT_EQ(watched.error_by_step, alone.error_by_step);
}

// MassWatcher keeps the mass that a session reports to it.
class MassWatcher final : public Scorer {
 public:
  explicit MassWatcher(std::vector<float>* mass) : mass_(mass) {}
  std::string Name() const override { return "watcher"; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kPerQueryHead}; }
  void Append(int, std::span<const Position> positions) override {
    scores_.resize(scores_.size() + positions.size());
  }
  void ObserveGroup(int, const GroupSignals& signals, const StepSignals&) override {
    mass_->assign(signals.mass.begin(), signals.mass.end());
  }
  void Retain(int, std::span<const uint32_t> kept) override { scores_.resize(kept.size()); }
  std::span<const float> Scores(int) override { return scores_; }

 private:
  std::vector<float>* const mass_;
  std::vector<float> scores_;
};

// Queries, keys and values of the first layer do not depend on evictions, so that evicted rows have
// the mass that attention gives them in a full cache.
TEST_F(ForgettingOfSessions, TheMassIsThatWhichAttentionOfTheFullCacheGivesTheRows) {
  const std::vector<Token> text = RandomTokens(gguf_, 60, 3);
  PolicySpec streaming = {.name = "streaming"};
  streaming.sinks = 2;
  streaming.window = 8;
  const ForgettingReport report = Measure(streaming);
  std::vector<float> mass;  // [query heads, rows]
  SessionOptions watched;
  watched.make_policy = [&](const PolicyContext& context) -> Result<Policy> {
    PolicySpec keeps_all = {.name = "attention"};
    keeps_all.budget = *ParseBudget("100%");
    auto policy = MakePolicy(keeps_all, context);
    if (policy.ok()) policy->scorer = std::make_unique<MassWatcher>(&mass);
    return policy;
  };
  const auto full = *engine_->OpenSession(watched);
  ASSERT_TRUE(full->Prefill(std::span(text).first(16)).ok());
  ASSERT_EQ(report.mass_by_step.size(), text.size() - 16);
  for (size_t i = 16; i < text.size(); ++i) {
    ASSERT_TRUE(full->Decode(text[i]).ok());
    const size_t rows = i + 1;
    ASSERT_EQ(mass.size(), rows * gguf_.num_q_heads);
    double gone = 0;
    for (size_t at = 0; at < mass.size(); ++at) {
      const size_t row = at % rows;
      if (row >= 2 && row + 9 < rows) gone += mass[at];  // neither sink, window nor new
    }
    EXPECT_NEAR(report.mass_by_step[i - 16], gone / gguf_.num_q_heads, 1e-4) << i;
  }
}

TEST_F(ForgettingOfSessions, ModelsThatForgetByThemselvesAreRefused) {
  const TempFolder folder;
  const std::string path = folder.File("windows.gguf");
  ASSERT_TRUE(
      WriteRandomGguf({.family = "gemma3", .sliding_window = 16, .context = 256}, path).ok());
  const auto engine = Engine::Create(*Model::Load({.path = path}), {.threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  FidelityOptions options;
  const std::vector<std::vector<Token>> windows = {RandomTokens(gguf_, 60, 3)};
  options.prompt_tokens = 16;
  EXPECT_TRUE(MeasureFidelity(**engine, windows, options).ok());
  options.forgetting = FidelityOptions::Forgetting::kMeasure;
  const Status status = MeasureFidelity(**engine, windows, options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), testing::HasSubstr("not measured in models with sliding windows"));
}

TEST_F(ForgettingOfSessions, KeysThatAreRotatedAnewAreRefused) {
  FidelityOptions options;
  options.setting.policy = {.name = "streaming"};
  options.setting.past_context = PastContext::kReRotate;
  options.forgetting = FidelityOptions::Forgetting::kMeasure;
  const std::vector<std::vector<Token>> windows = {RandomTokens(gguf_, 100, 3)};
  EXPECT_EQ(MeasureFidelity(*engine_, windows, options).status().code(),
            StatusCode::kInvalidArgument);
  options.setting.past_context = PastContext::kRefuse;
  options.setting.policy = {.name = "streaming_rerotated"};
  EXPECT_EQ(MeasureFidelity(*engine_, windows, options).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ebb
