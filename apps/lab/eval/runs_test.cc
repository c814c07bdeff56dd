#include "apps/lab/eval/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(DifferingKey, IsTheFirstOneOfEither) {
  const Json one = {{"task", "pebble"}, {"seed", 1}, {"tokens", 8}};
  const Json other = {{"task", "pebble"}, {"seed", 2}, {"tokens", 9}};
  EXPECT_EQ(DifferingKey(one, one), "");
  EXPECT_EQ(DifferingKey(one, other), "seed");
  const std::string_view may_differ[] = {"seed"};
  EXPECT_EQ(DifferingKey(one, other, may_differ), "tokens");
}

TEST(DifferingKey, MayBeMissingWhereOthersTellIt) {
  const Json older = {{"model_fingerprint", 1}};
  const Json newer = {{"model_fingerprint", 1}, {"model_compression", 4.0}, {"answer_tokens", 9}};
  EXPECT_EQ(DifferingKey(older, newer), "");
  EXPECT_EQ(DifferingKey(newer, older), "");
  Json other = newer;
  other["model_compression"] = 8.0;
  EXPECT_EQ(DifferingKey(newer, other), "model_compression");
  EXPECT_EQ(DifferingKey({{"seed", 1}}, Json::object()), "seed");
  EXPECT_EQ(DifferingKey(Json::object(), {{"seed", 1}}), "seed");
}

TEST(ReadManifest, KnowsWhatOlderRunsCouldNotChoose) {
  const TempFolder folder;
  const std::string path = folder.File("grid.json");
  std::ofstream(path) << R"({"top_p": 0.95})";
  const auto older = ReadManifest(path);
  ASSERT_TRUE(older.ok()) << older.status().ToString();
  EXPECT_EQ((*older)["top_k"], 40);
  EXPECT_EQ((*older)["min_p"], 0.05f);
  std::ofstream(path) << R"({"top_k": 0, "min_p": 0.0})";
  const auto newer = ReadManifest(path);
  EXPECT_EQ((*newer)["top_k"], 0);
  EXPECT_EQ((*newer)["min_p"], 0);
}

// A run of one setting over three problems, of which it has answered some.
EvalRun PartOf(const std::string& folder, int seed, std::vector<int> answered) {
  EvalRun run = {.folder = folder,
                 .manifest = {{"problems", 3}, {"shard", "0/1"}, {"settings", {{{"seed", seed}}}}}};
  for (const int problem : answered) {
    run.results.push_back({{"setting", 0}, {"problem", problem}, {"seed", seed}});
    run.times.push_back({{"setting", 0}, {"seconds", 1.0}});
  }
  return run;
}

TEST(MergeRuns, PutsPartsInTheOrderOfTheGrid) {
  const auto merged =
      MergeRuns({PartOf("a", 1, {2, 0}), PartOf("b", 2, {1}), PartOf("c", 1, {1, 2})});
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_EQ(merged->folder, "a");
  EXPECT_EQ(NumAsked(*merged), 6u);
  ASSERT_EQ(merged->results.size(), 4u) << "what two parts have counts once";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(merged->results[i]["problem"], i);
    EXPECT_EQ(merged->results[i]["setting"], 0);
  }
  EXPECT_EQ(merged->results[3]["setting"], 1);
  EXPECT_EQ(merged->times[3]["setting"], 1);
}

TEST(MergeRuns, RefusesWhatIsNotOfOneRun) {
  EvalRun other = PartOf("b", 1, {0});
  other.manifest["problems"] = 4;
  EXPECT_THAT(MergeRuns({PartOf("a", 1, {0}), other}).status().message(),
              HasSubstr("a and b are answers to different questions: their \"problems\" differs"));
  other = PartOf("b", 1, {0});
  other.results[0]["correct"] = true;
  EXPECT_THAT(MergeRuns({PartOf("a", 1, {0}), other}).status().message(),
              HasSubstr("two answers to problem 0 of setting 0 differ"));
}

}  // namespace
}  // namespace ebb::cli
