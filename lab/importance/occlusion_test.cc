// Tests labels and signals of pebble, the small reasoner in this repository, as it is shipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ebb/lab/importance.h"
#include "ebb/model.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

class Occlusion : public testing::Test {
 protected:
  void SetUp() override {
    auto model = Model::Load({.path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf"});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    auto engine = Engine::Create(model_, {.threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }

  LabelResult Label(const EvalQuestion& problem, const OcclusionOptions& options) {
    auto result = LabelByOcclusion(engine_.get(), problem, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *std::move(result) : LabelResult{};
  }
  // Returns the labels of the first problem that the model solves.
  LabelResult FirstLabelled(const OcclusionOptions& options) {
    for (const EvalQuestion& problem : PebbleProblems(5, 8)) {
      LabelResult result = Label(problem, options);
      if (result.outcome == LabelOutcome::kLabelled) return result;
    }
    ADD_FAILURE() << "no problem was solved";
    return {};
  }
  std::string TextOf(const ImportanceLabels& labels, Position begin, Position end) {
    std::string text;
    for (Position p = begin; p < end; ++p) {
      text += model_->TokenText(labels.tokens[p], Model::ControlTokens::kShow);
    }
    return text;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Occlusion, BehindTheThoughtLittleMatters) {
  const ImportanceLabels labels = FirstLabelled({}).labels;
  ASSERT_EQ(labels.important.size(), static_cast<size_t>(labels.boundary));
  EXPECT_TRUE(TextOf(labels, 0, labels.boundary).ends_with("</think>"));
  EXPECT_TRUE(std::all_of(labels.important.begin(), labels.important.begin() + labels.thought_begin,
                          [](uint8_t label) { return label == 1; }));
  const auto begin = labels.important.begin() + labels.thought_begin;
  EXPECT_LT(std::count(begin, labels.important.end(), 1), (labels.important.end() - begin) / 4);
  EXPECT_EQ(labels.num_windows, (labels.boundary - labels.thought_begin + 15) / 16);
}

TEST_F(Occlusion, BeforeTheLastLookUpWhatIsLookedUpMatters) {
  const ImportanceLabels labels =
      FirstLabelled({.window = 8, .stride = 8, .boundary = "all."}).labels;
  ASSERT_GT(labels.boundary, labels.thought_begin);
  EXPECT_TRUE(TextOf(labels, 0, labels.boundary).ends_with("That is all."));
  EXPECT_GT(labels.num_important_windows, 0);
  EXPECT_LT(labels.num_important_windows, labels.num_windows / 4);
  // These windows do not overlap, so that each token has the label of its window.
  for (int window = 0; window < labels.num_windows; ++window) {
    const Position first = labels.thought_begin + window * 8;
    for (Position p = first; p < std::min(first + 8, labels.boundary); ++p) {
      EXPECT_EQ(labels.important[p], labels.important[first]) << p;
    }
  }
}

TEST_F(Occlusion, WrongAnswersHaveNoLabels) {
  std::vector<EvalQuestion> problems = PebbleProblems(5, 1);
  problems[0].judge = [](std::string_view, std::string_view) {
    return Judgement{.verdict = Verdict::kWrong};
  };
  EXPECT_EQ(Label(problems[0], {}).outcome, LabelOutcome::kWrong);
}

TEST_F(Occlusion, AMarkThatIsNotThereMakesNoThought) {
  bool solved = false;
  for (const EvalQuestion& problem : PebbleProblems(5, 4)) {
    const LabelOutcome outcome = Label(problem, {.boundary = "nowhere"}).outcome;
    if (outcome == LabelOutcome::kWrong) continue;
    solved = true;
    EXPECT_EQ(outcome, LabelOutcome::kNoThought);
  }
  EXPECT_TRUE(solved);
}

TEST_F(Occlusion, RefusesAnEmptyWindow) {
  const EvalQuestion problem = PebbleProblems(5, 1)[0];
  EXPECT_EQ(LabelByOcclusion(engine_.get(), problem, {.window = 0}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(LabelByOcclusion(engine_.get(), problem, {.stride = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(Occlusion, ReadsEverySignalOfEveryToken) {
  ImportanceLabels labels = FirstLabelled({.stride = 512}).labels;
  labels.boundary = labels.thought_begin + 80;
  labels.tokens.resize(labels.boundary);
  const auto signals = ReadSignals(engine_.get(), labels);
  ASSERT_TRUE(signals.ok()) << signals.status().message();
  const ThoughtSignal* rolling = nullptr;
  const ThoughtSignal* scorer = nullptr;
  for (const ThoughtSignal& signal : *signals) {
    ASSERT_EQ(signal.values.size(), 80u) << signal.name;
    for (const double value : signal.values) EXPECT_TRUE(std::isfinite(value)) << signal.name;
    if (signal.name == "key_variance rolling") rolling = &signal;
    if (signal.name == "kv_key") scorer = &signal;
  }
  // A scorer with the same rule must give the same scores.
  ASSERT_NE(rolling, nullptr);
  ASSERT_NE(scorer, nullptr);
  for (size_t i = 0; i < 80; ++i) {
    EXPECT_NEAR(rolling->values[i], scorer->values[i], 1e-5 * scorer->values[i]);
  }
}

TEST(OcclusionOfWindows, SignalsAreOfTokensThatAllLayersSee) {
  const TempFolder folder;
  const std::string path = folder.File("windows.gguf");
  ASSERT_TRUE(WriteRandomGguf({.family = "gemma3", .sliding_window = 16}, path).ok());
  const auto engine = Engine::Create(*Model::Load({.path = path}), {.threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const Status status = ReadSignals(engine->get(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), testing::HasSubstr("this model has sliding windows"));
}

TEST_F(Occlusion, TheSameWithSeveralAtATime) {
  const std::vector<EvalQuestion> problems = PebbleProblems(5, 3);
  std::vector<std::vector<std::vector<uint8_t>>> runs;
  for (const int workers : {1, 2}) {
    ImportanceOptions options = {.occlusion = {.stride = 64}, .workers = workers};
    std::vector<std::vector<uint8_t>> labels;
    options.on_result = [&](const ImportanceResult& result) {
      EXPECT_EQ(result.problem, labels.size());
      labels.push_back(result.label.labels.important);
      return OkStatus();
    };
    const Status status = StudyImportance(model_, problems, options);
    ASSERT_TRUE(status.ok()) << status.message();
    runs.push_back(labels);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

}  // namespace
}  // namespace ebb
