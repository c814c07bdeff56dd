#include "apps/lab/eval/manifest.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

TEST(DifferingKey, IsTheFirstOneOfEither) {
  const Json one = {{"task", "pebble"}, {"seed", 1}, {"tokens", 8}};
  const Json other = {{"task", "pebble"}, {"seed", 2}, {"tokens", 9}};
  EXPECT_EQ(DifferingKey(one, one), "");
  EXPECT_EQ(DifferingKey(one, other), "seed");
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

}  // namespace
}  // namespace ebb::cli
