#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "ebb/lab/eval.h"
#include "ebb/lab/pebble.h"
#include "lab/eval/answer_batch.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

std::vector<Token> Repeat(const std::vector<Token>& period, int times) {
  std::vector<Token> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), period.begin(), period.end());
  return all;
}

std::vector<Token> Counting(int from, int count) {
  std::vector<Token> all;
  for (int i = 0; i < count; ++i) all.push_back(from + i);
  return all;
}

TEST(EndsInLoop, SeesAPeriodThatCameThreeTimes) {
  std::vector<Token> tokens = Counting(1000, 50);
  const std::vector<Token> loop = Repeat(Counting(0, 100), 3);
  tokens.insert(tokens.end(), loop.begin(), loop.end());
  EXPECT_TRUE(EndsInLoop(tokens, 128));
  EXPECT_FALSE(EndsInLoop(tokens, 99));
  EXPECT_FALSE(EndsInLoop(std::span(tokens).first(tokens.size() - 51), 128));
}

TEST(EndsInLoop, LeavesShortRepetitionsAlone) {
  EXPECT_FALSE(EndsInLoop(Repeat({7}, 191), 128));
  EXPECT_TRUE(EndsInLoop(Repeat({7}, 192), 128));
  EXPECT_FALSE(EndsInLoop(Counting(0, 1000), 128));
  EXPECT_FALSE(EndsInLoop({}, 128));
  EXPECT_FALSE(EndsInLoop(Repeat({7}, 1000), 0));
}

TEST(PebbleProblems, AreJudgedByWhatFollowsTheThought) {
  const EvalQuestion problem = PebbleProblems(5, 3)[2];
  const std::string right = MakePebbleProblem(5, 2).answer;
  const auto judge = [&](const std::string& text, const std::string& answer) {
    return problem.judge(text, answer).verdict;
  };
  EXPECT_EQ(problem.id, "2");
  EXPECT_EQ(judge(" x</think> The answer is " + right + ".", " The answer is " + right + "."),
            Verdict::kRight);
  EXPECT_EQ(judge(" x</think> The answer is rat.", " The answer is rat."), Verdict::kWrong);
  // A text whose thought never ends has no answer, even if the thought contains one.
  EXPECT_EQ(judge(" The answer is " + right + ".", ""), Verdict::kNoAnswer);
  EXPECT_EQ(judge(" x</think> The answer is .", " The answer is ."), Verdict::kNoAnswer);
  EXPECT_EQ(judge("", ""), Verdict::kEmpty);
}

TEST(NumUnits, SharesProblemsOutAmongShards) {
  EXPECT_EQ(NumUnits(3, 10, 0, 1), 30u);
  EXPECT_EQ(
      NumUnits(3, 10, 0, 4) + NumUnits(3, 10, 1, 4) + NumUnits(3, 10, 2, 4) + NumUnits(3, 10, 3, 4),
      30u);
}

class EvaluationTest : public testing::Test {
 protected:
  void SetUp() override {
    RandomGgufOptions config;
    config.context = 512;
    ASSERT_TRUE(WriteRandomGguf(config, path_).ok());
    auto model = Model::Load({.path = path_});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    for (int i = 0; i < 5; ++i) {
      problems_.push_back({.id = std::to_string(i),
                           .question = std::string(static_cast<size_t>(20 + 7 * i), 'a' + i),
                           .max_tokens = 60,
                           .judge = [](std::string_view text, std::string_view) {
                             return Judgement{Verdict::kWrong, {.answer = std::string(text)}};
                           }});
    }
    EvalSetting full = {.policy = "full"};
    EvalSetting streaming = {.policy = "streaming", .budget = "24"};
    streaming.session.policy.name = "streaming";
    streaming.session.policy.budget = {Budget::Unit::kRows, 24};
    settings_ = {full, streaming};
  }

  using Line = std::tuple<size_t, size_t, std::string, int, std::string, size_t, double, double>;
  static Line LineOf(const EvalAnswer& a) {
    return {a.setting,       a.problem,       a.text,        a.generated_tokens,
            a.finish_reason, a.peak_kv_bytes, a.peak_tokens, a.kv_reads};
  }

  std::vector<Line> Run(EvaluationOptions options) {
    std::vector<Line> lines;
    options.sampling.temperature = 0;
    options.prompt_style = PromptStyle::kRaw;
    options.on_answer = [&](const EvalAnswer& answer) {
      lines.push_back(LineOf(answer));
      return OkStatus();
    };
    const Status status = RunEvaluation(model_, problems_, settings_, options);
    EXPECT_TRUE(status.ok()) << status.message();
    return lines;
  }

  TempFolder folder_;
  std::string path_ = folder_.File("model.gguf");
  std::shared_ptr<const Model> model_;
  std::vector<EvalQuestion> problems_;
  std::vector<EvalSetting> settings_;
};

TEST_F(EvaluationTest, ComesInTheOrderOfTheGridHoweverManyWork) {
  const auto one = Run({.workers = 1});
  ASSERT_EQ(one.size(), 10u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(std::get<0>(one[i]), i / 5);
    EXPECT_EQ(std::get<1>(one[i]), i % 5);
  }
  EXPECT_EQ(Run({.workers = 3}), one);
}

TEST_F(EvaluationTest, GoesOnWhereItEnded) {
  const auto all = Run({});
  const auto rest = Run({.workers = 2, .first_unit = 4});
  EXPECT_EQ(rest, std::vector<Line>(all.begin() + 4, all.end()));
}

TEST_F(EvaluationTest, ShardsTogetherAreTheWhole) {
  auto all = Run({});
  auto shards = Run({.shard = 0, .num_shards = 2});
  const auto second = Run({.shard = 1, .num_shards = 2});
  shards.insert(shards.end(), second.begin(), second.end());
  std::ranges::sort(shards);
  EXPECT_EQ(shards, all);
}

// With weights in F32, products have the same bits at any width, so that batches must give the
// answers of each problem alone.
TEST_F(EvaluationTest, InBatchesGivesTheSameAnswers) {
  const auto alone = Run({});
  EXPECT_EQ(Run({.workers = 2, .batch = 4}), alone);
  EXPECT_EQ(Run({.workers = 1, .batch = 8}), alone);
  const auto rest = Run({.batch = 4, .first_unit = 3});
  EXPECT_EQ(rest, std::vector<Line>(alone.begin() + 3, alone.end()));
}

TEST_F(EvaluationTest, ABatchMayHoldSettingsWhoseTiersDiffer) {
  const auto with = [](TierSetting tiers) {
    EvalSetting setting = {.policy = "attention"};
    setting.session.policy = {.name = "attention", .window = 8, .interval = 8};
    SetTiers(tiers, &setting.engine, &setting.session);
    return setting;
  };
  settings_ = {
      with({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.5}}),
      with({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.2, .evict_share = 0.5}}),
      with({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
            .shares = {.t0_share = 1, .t2_share = 1}}),
      with({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4},
            .shares = {.t0_share = 1, .t2_share = 0.5}}),
      {.policy = "full"}};
  const auto alone = Run({});
  ASSERT_EQ(alone.size(), 25u);
  EXPECT_NE(std::get<6>(alone[0]), std::get<6>(alone[5]));
  for (const int width : {4, 8}) EXPECT_EQ(Run({.batch = width}), alone) << width;
}

TEST_F(EvaluationTest, EnginesThatDifferInMoreThanSharesAreNotShared) {
  EvalSetting setting = {.policy = "attention"};
  setting.engine.tiers = EngineTiers{.t1 = T1Place::kHost};
  const auto shares = [&](const std::function<void(EngineOptions*)>& change) {
    EvalSetting other = setting;
    change(&other.engine);
    return ShareAnEngine(setting, other);
  };
  EXPECT_TRUE(shares([](EngineOptions*) {}));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->tiers->t2_type = CompressedType::kInt8; }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->tiers->t1 = T1Place::kFile; }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->tiers.reset(); }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->kv_type = RowType::kF32; }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->allow_inexact = true; }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->t1_mode = T1Mode::kCompute; }));
  EXPECT_FALSE(shares([](EngineOptions* o) { o->device.attention = DeviceAttention::kEager; }));
}

TEST_F(EvaluationTest, AnErrorWithinABatchIsOfItsProblem) {
  problems_[1].question = std::string(600, 'x');  // longer than the context
  problems_[3].question = std::string(505, 'y');  // leaves room for a few tokens
  const auto alone = Run({});
  ASSERT_EQ(std::get<4>(alone[1]), "error");
  ASSERT_EQ(std::get<4>(alone[3]), "context");
  EXPECT_EQ(Run({.batch = 4}), alone);
}

TEST_F(EvaluationTest, BatchesAreRefusedWhereNeighboursWouldMatter) {
  const auto refused = [&](EvalSetting setting, int batch) {
    settings_ = {std::move(setting)};
    EvaluationOptions options = {.batch = batch};
    options.prompt_style = PromptStyle::kRaw;
    options.on_answer = [](const EvalAnswer&) { return OkStatus(); };
    const Status status = RunEvaluation(model_, problems_, settings_, options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refused({.policy = "full"}, 6), testing::HasSubstr("multiple of 4"));
  EvalSetting capped = {.policy = "full"};
  capped.engine.kv_cap_bytes = 64 << 20;
  EXPECT_THAT(refused(capped, 4), testing::HasSubstr("caps"));
  EvalSetting lossless = {.policy = "full"};
  lossless.session.lossless.emplace();
  EXPECT_THAT(refused(lossless, 4), testing::HasSubstr("lossless"));
}

TEST_F(EvaluationTest, CountsWhatTheCacheHeldAndRead) {
  const auto lines = Run({});
  const auto& [setting, problem, text, tokens, reason, bytes, peak, reads] = lines[0];
  const int prompt = static_cast<int>(
      model_->Tokenize(problems_[0].question, Model::AddBos::kAsModelSays, Model::Specials::kParse)
          ->size());
  ASSERT_EQ(reason, "length");
  // The last token is never appended.
  EXPECT_EQ(peak, prompt + tokens - 1);
  double expected = 0;
  for (int step = 1; step < tokens; ++step) expected += prompt + step;
  EXPECT_EQ(reads, expected);
  // The policy keeps 24 rows; a step appends one before it evicts one.
  EXPECT_EQ(std::get<6>(lines[9]), std::max(25, prompt));
}

TEST_F(EvaluationTest, ACompressionIsOfThePromptAndTheLongestAnswer) {
  settings_[1].session.policy.budget = {Budget::Unit::kCompression, 4};
  const auto lines = Run({});
  for (size_t i = 5; i < lines.size(); ++i) {
    const double all = std::get<6>(lines[i - 5]) + 1;  // a full cache never appends the last token
    const double prompt = all - 60;
    EXPECT_EQ(std::get<6>(lines[i]), std::max(std::floor(all / 4) + 1, prompt)) << i;
  }
}

TEST_F(EvaluationTest, EndsWithTheErrorOfWhoeverKeepsTheAnswers) {
  int kept = 0;
  EvaluationOptions options = {.workers = 2};
  options.prompt_style = PromptStyle::kRaw;
  options.on_answer = [&](const EvalAnswer&) {
    return ++kept == 3 ? IoError("the disk is full") : OkStatus();
  };
  const Status status = RunEvaluation(model_, problems_, settings_, options);
  EXPECT_EQ(status.message(), "the disk is full");
  EXPECT_EQ(kept, 3);
}

TEST_F(EvaluationTest, AnErrorOfOneProblemIsItsAnswer) {
  problems_[1].question = std::string(600, 'x');  // longer than the context
  const auto lines = Run({});
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(std::get<4>(lines[1]), "error");
  EXPECT_EQ(std::get<4>(lines[2]), "length");
}

TEST_F(EvaluationTest, StopsWhenItIsCancelled) {
  std::atomic<bool> cancel = false;
  EvaluationOptions options;
  options.prompt_style = PromptStyle::kRaw;
  options.cancel = &cancel;
  options.on_answer = [&](const EvalAnswer&) {
    cancel = true;
    return OkStatus();
  };
  EXPECT_EQ(RunEvaluation(model_, problems_, settings_, options).code(), StatusCode::kCancelled);
}

TEST_F(EvaluationTest, ASettingThatCannotBeOpenedEndsIt) {
  settings_[1].session.policy.name = "nonsense";
  EvaluationOptions options;
  options.prompt_style = PromptStyle::kRaw;
  options.on_answer = [](const EvalAnswer&) { return OkStatus(); };
  const Status status = RunEvaluation(model_, problems_, settings_, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("nonsense"));
}

}  // namespace
}  // namespace ebb
