#include "ebb/fidelity.h"

#include <atomic>
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
    auto engine = Engine::Create(*model, {.threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }

  [[nodiscard]] std::vector<Token> Text(size_t count) const {
    return RandomTokens(gguf_, count, 3);
  }

  const RandomGgufOptions gguf_ = {.context = 256};
  TempFolder folder_;
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

// Until the window is exceeded nothing is evicted, and the two sessions are one and the same.
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
