#include "ebb/lab/fidelity.h"

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "ebb/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/model_variants.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

using Windows = std::vector<std::vector<Token>>;

class FidelityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteRandomGguf(gguf_, folder_.File("tiny.gguf")).ok());
    auto model = Model::Load({.path = folder_.File("tiny.gguf")});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    auto engine = Engine::Create(model_, {.threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }

  [[nodiscard]] std::vector<Token> Text(size_t count) const {
    return RandomTokens(gguf_, count, 3);
  }

  const RandomGgufOptions gguf_ = {.context = 256};
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

FidelityOptions Streaming() {
  FidelityOptions options;
  options.setting.policy.name = "streaming";
  options.setting.policy.sinks = 2;
  options.setting.policy.window = 8;
  options.prompt_tokens = 16;
  return options;
}

TEST_F(FidelityTest, ComparesEveryStepAfterThePrompts) {
  FidelityOptions options = Streaming();
  std::vector<int64_t> seen;
  options.progress = [&](int64_t steps) { seen.push_back(steps); };
  const auto report = MeasureFidelity(*engine_, Windows{Text(40), Text(24)}, options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->tokens, 24 + 8);
  EXPECT_EQ(report->windows, 2);
  EXPECT_GT(report->mean_kl.value, 0);
  EXPECT_GE(report->max_kl, report->mean_kl.value);
  EXPECT_GT(report->perplexity.value, 1);
  ASSERT_EQ(seen.size(), 32u);
  EXPECT_EQ(seen.back(), 32);
}

// Until the window is exceeded, the policy evicts nothing, and both sessions are equal.
TEST_F(FidelityTest, IsZeroWhileNothingIsEvicted) {
  FidelityOptions options = Streaming();
  options.setting.policy.window = 200;
  const auto report = MeasureFidelity(*engine_, Windows{Text(60)}, options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->mean_kl.value, 0);
  EXPECT_EQ(report->top1.value, 1);
  EXPECT_EQ(report->perplexity.value, report->perplexity_full.value);
}

TEST_F(FidelityTest, WindowsDoNotSeeEachOther) {
  const auto alone = MeasureFidelity(*engine_, Windows{Text(40)}, Streaming());
  const auto twice = MeasureFidelity(*engine_, Windows{Text(40), Text(40)}, Streaming());
  ASSERT_TRUE(alone.ok() && twice.ok());
  EXPECT_EQ(alone->max_kl, twice->max_kl);
  EXPECT_NEAR(alone->mean_kl.value, twice->mean_kl.value, 1e-12);
}

TEST_F(FidelityTest, RefusesWhatCannotBeCompared) {
  const auto expect = [&](const std::vector<std::vector<Token>>& windows,
                          const FidelityOptions& options, const std::string& message) {
    const auto report = MeasureFidelity(*engine_, windows, options);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr(message));
  };
  expect({}, Streaming(), "no text");
  expect({Text(16)}, Streaming(), "expected more than the prompt's 16");
  expect({Text(257)}, Streaming(), "no more than the context's 256");
  FidelityOptions options = Streaming();
  options.confidence = 1;
  expect({Text(40)}, options, "a confidence between 0 and 1");
  options = Streaming();
  options.setting.policy.name = "nothing";
  expect({Text(40)}, options, "nothing");
}

// Spy passes every call to a scorer, and records its scores with their rows.
class Spy final : public Scorer {
 public:
  struct Said {
    int group = 0;
    std::vector<Position> positions;
    std::vector<float> scores;
  };
  Spy(std::unique_ptr<Scorer> scorer, std::vector<Said>* said)
      : scorer_(std::move(scorer)), said_(said) {}

  std::string Name() const override { return scorer_->Name(); }
  SignalNeeds Needs() const override { return scorer_->Needs(); }
  void Append(int group, std::span<const Position> positions) override {
    positions_[group].insert(positions_[group].end(), positions.begin(), positions.end());
    scorer_->Append(group, positions);
  }
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    scorer_->Observe(groups, step);
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    std::vector<Position> left;
    for (const uint32_t row : kept) left.push_back(positions_[group][row]);
    positions_[group] = left;
    scorer_->Retain(group, kept);
  }
  std::span<const float> Scores(int group) override {
    const std::span<const float> scores = scorer_->Scores(group);
    said_->push_back({group, positions_[group], {scores.begin(), scores.end()}});
    return scores;
  }

 private:
  const std::unique_ptr<Scorer> scorer_;
  std::vector<Said>* const said_;
  std::map<int, std::vector<Position>> positions_;
};

FidelityOptions Oracle(Granularity granularity, const std::string& budget) {
  FidelityOptions options;
  options.setting.policy = {.name = "oracle",
                            .budget = *ParseBudget(budget),
                            .sinks = 1,
                            .window = 4,
                            .interval = 8,
                            .granularity = granularity};
  options.prompt_tokens = 16;
  return options;
}

// Returns the mean mass in each decode step of a full cache, [groups][decode steps][positions].
std::vector<std::vector<std::vector<double>>> MassesOfFullCache(Engine* engine,
                                                                std::span<const Token> window,
                                                                Granularity granularity,
                                                                size_t prompt_tokens) {
  const ModelShape& shape = engine->model().shape();
  const double heads = double{1} * shape.num_layers * shape.num_q_heads;
  std::vector<std::vector<std::vector<double>>> masses(shape.NumGroups(granularity));
  SessionOptions options;
  options.policy.granularity = granularity;
  options.extra_signals.mass = MassNeed::kSummed;
  options.on_signals = [&](int group, std::span<const Position>, const GroupSignals& signals,
                           const StepSignals& step) {
    if (step.kind == StepKind::kPrefill) return;
    std::vector<double>& of_step = masses[group].emplace_back();
    for (const float mass : signals.mass) {
      of_step.push_back(mass * static_cast<double>(masses.size()) / heads);
    }
  };
  const auto session = engine->OpenSession(options);
  EXPECT_TRUE((*session)->Prefill(window.first(prompt_tokens)).ok());
  for (const Token token : window.subspan(prompt_tokens)) {
    EXPECT_TRUE((*session)->Decode(token).ok());
  }
  return masses;
}

TEST_F(FidelityTest, TheOracleIsToldWhatAFullCacheWillPay) {
  constexpr size_t kTokens = 80, kPrompt = 16, kInterval = 8;
  for (const auto granularity : {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    FidelityOptions options = Oracle(granularity, "40%");
    const PolicySpec spec = options.setting.policy;
    std::vector<Spy::Said> said;
    options.setting.make_policy = [&](const PolicyContext& context) -> Result<Policy> {
      EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy(spec, context));
      policy.scorer = std::make_unique<Spy>(std::move(policy.scorer), &said);
      return policy;
    };
    const std::vector<Token> window = Text(kTokens);
    const auto report = MeasureFidelity(*engine_, Windows{window}, options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_GT(report->mean_kl.value, 0);
    const auto masses = MassesOfFullCache(engine_.get(), window, granularity, kPrompt);
    const size_t num_decided = masses.size() * ((kTokens - kPrompt) / kInterval);
    // Counting the bytes of the policy's saved state asks the spy again.
    ASSERT_EQ(said.size(), num_decided + masses.size());
    said.resize(num_decided);
    for (size_t i = 0; i < said.size(); ++i) {
      const size_t steps_done = (i / masses.size() + 1) * kInterval;
      const auto& of_group = masses[said[i].group];
      for (size_t row = 0; row < said[i].positions.size(); ++row) {
        const size_t position = said[i].positions[row];
        double left = 0;
        for (size_t step = steps_done; step < of_group.size(); ++step) {
          left += of_group[step][position];
        }
        ASSERT_NEAR(said[i].scores[row], left, 1e-5 * left + 1e-9) << "position " << position;
      }
      ASSERT_LT(said[i].positions.size(), steps_done + kPrompt + (i < masses.size() ? 1 : 0));
    }
  }
}

TEST_F(FidelityTest, TheOraclesReplayChangesNoBitWhileNothingGoes) {
  const auto report =
      MeasureFidelity(*engine_, Windows{Text(60)}, Oracle(Granularity::kHead, "100%"));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->mean_kl.value, 0);
  EXPECT_EQ(report->max_logit_difference, 0);
}

TEST_F(FidelityTest, EachWindowHasAReplayOfItsOwn) {
  const FidelityOptions options = Oracle(Granularity::kLayer, "40%");
  const auto alone = MeasureFidelity(*engine_, Windows{Text(60)}, options);
  const auto after = MeasureFidelity(*engine_, Windows{Text(60), Text(60)}, options);
  ASSERT_TRUE(alone.ok() && after.ok());
  EXPECT_EQ(alone->max_kl, after->max_kl);
}

TEST_F(FidelityTest, TheOracleDrivesTheHierarchy) {
  const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t2_share = 0.25, .evict_share = 0.5}};
  auto engine = Engine::Create(model_, {.threads = 1, .tiers = tiers.engine});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const auto kl_of = [&](const char* scorer) {
    FidelityOptions options = Oracle(Granularity::kHead, "100%");
    options.setting.policy.budget = {};
    options.setting.policy.name = scorer;
    options.setting.policy.tiers = tiers.shares;
    const auto report = MeasureFidelity(**engine, Windows{Text(200)}, options);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report->mean_kl.value;
  };
  EXPECT_GT(kl_of("oracle"), 0);
  EXPECT_LT(kl_of("oracle"), 0.5 * kl_of("random"));
}

TEST_F(FidelityTest, StopsWhenCancelled) {
  std::atomic<bool> cancel = false;
  FidelityOptions options = Streaming();
  options.cancel = &cancel;
  options.progress = [&](int64_t steps) { cancel = steps == 3; };
  const auto report = MeasureFidelity(*engine_, Windows{Text(40)}, options);
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

TEST(CutWindowsTest, BeginsEachWithThePrefixAndDropsWhatHasNoStep) {
  const std::vector<Token> text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(CutWindows(text, {}, 4, 2), (Windows{{1, 2, 3, 4}, {5, 6, 7, 8}}));
  EXPECT_EQ(CutWindows(text, {}, 4, 1), (Windows{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}}));
  const std::vector<Token> prefix = {0};
  EXPECT_EQ(CutWindows(text, prefix, 5, 2),
            (Windows{{0, 1, 2, 3, 4}, {0, 5, 6, 7, 8}, {0, 9, 10}}));
  EXPECT_EQ(CutWindows({}, prefix, 5, 2), Windows{});
}

}  // namespace
}  // namespace ebb
