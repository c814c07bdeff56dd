// The decoder graph against libllama, before there is a cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/model/graph_runner.h"
#include "tests/support/libllama_runner.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-3;  // of the logits' standard deviation

double StandardDeviation(const std::vector<float>& values) {
  double sum = 0, sum_of_squares = 0;
  for (const float value : values) {
    sum += value;
    sum_of_squares += static_cast<double>(value) * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(sum_of_squares / static_cast<double>(values.size()) - mean * mean);
}

// Infinite when sizes differ or anything is NaN.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

class GraphParityTest : public testing::TestWithParam<ModelVariant> {
 protected:
  void Write(const RandomGgufOptions& options) {
    path_ = folder_.File("model.gguf");
    const Status status = WriteRandomGguf(options, path_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  TempFolder folder_;
  std::string path_;
};

std::shared_ptr<const Model> Load(const ModelOptions& options) {
  auto model = Model::Load(options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return model.ok() ? *model : nullptr;
}

std::vector<float> LibllamaLogits(const LibllamaOptions& options,
                                  const std::vector<Token>& tokens) {
  auto runner = LibllamaRunner::Create(options);
  EXPECT_TRUE(runner.ok()) << runner.status().ToString();
  if (!runner.ok()) return {};
  auto logits = (*runner)->Append(tokens);
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  return logits.ok() ? *logits : std::vector<float>();
}

TEST_P(GraphParityTest, LogitsAreThoseOfLibllama) {
  Write(GetParam().options);
  const std::vector<Token> tokens = RandomTokens(GetParam().options, 64, 7);
  const auto model = Load({.path = path_});
  ASSERT_NE(model, nullptr);
  const std::vector<float> ours = RunGraph(*model, tokens).logits;
  const std::vector<float> theirs = LibllamaLogits({.path = path_}, tokens);
  const double deviation = StandardDeviation(theirs);
  EXPECT_GT(deviation, 0.5);
  EXPECT_LE(LargestDifference(ours, theirs), kTolerance * deviation);
}

INSTANTIATE_TEST_SUITE_P(Variants, GraphParityTest, testing::ValuesIn(ModelVariants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb
