// Tests pebble, the small reasoner in this repository, as it is shipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/lab/eval.h"
#include "ebb/lab/pebble.h"
#include "ebb/model.h"

namespace ebb {
namespace {

constexpr char kPath[] = EBB_SOURCE_DIR "/training/pebble/pebble.gguf";

class PebbleModelTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model = Model::Load({.path = kPath});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
  }
  std::shared_ptr<const Model> model_;
};

TEST_F(PebbleModelTest, ReadsProblemsAsTheWordsThatItLearnt) {
  for (uint64_t number = 0; number < 20; ++number) {
    const PebbleProblem problem = MakePebbleProblem(1, number);
    const std::vector<ChatMessage> messages = {{.role = "user", .content = problem.Question()}};
    const auto prompt = model_->FormatChat(messages, Model::Thinking::kModelDefault);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    const auto tokens =
        model_->Tokenize(prompt->text, Model::AddBos::kAsModelSays, Model::Specials::kParse);
    ASSERT_TRUE(tokens.ok());
    const auto expected =
        std::span(problem.tokens).first(static_cast<size_t>(problem.num_question_tokens));
    EXPECT_EQ(*tokens, std::vector<Token>(expected.begin(), expected.end()));
  }
}

TEST_F(PebbleModelTest, SolvesProblemsThatItNeverSaw) {
  constexpr int kProblems = 24;
  const std::vector<EvalQuestion> problems = PebbleProblems(12, kProblems);
  const std::vector<EvalSetting> settings = {{.policy = "full"}};
  int right = 0;
  EvaluationOptions options;
  options.workers = 2;
  options.on_answer = [&](const EvalAnswer& answer) {
    right += answer.judgement.verdict == Verdict::kRight ? 1 : 0;
    EXPECT_EQ(answer.error, "");
    return OkStatus();
  };
  const Status status = RunEvaluation(model_, problems, settings, options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GE(right, kProblems - 2);
}

}  // namespace
}  // namespace ebb
