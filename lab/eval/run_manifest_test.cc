#include "lab/eval/run_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

TEST(DifferingKey, IsTheFirstOneOfEither) {
  const Json one = {{"task", "pebble"}, {"seed", 1}, {"tokens", 8}, {"made_by", {1}}};
  const Json other = {{"task", "elsewhere"}, {"seed", 2}, {"tokens", 9}, {"made_by", {2}}};
  EXPECT_EQ(DifferingKey(one, one), "");
  EXPECT_EQ(DifferingKey(one, other), "seed");
  EXPECT_EQ(DifferingKey({{"seed", 1}}, Json::object()), "seed");
  EXPECT_EQ(DifferingKey(Json::object(), {{"seed", 1}}), "seed");
  Json elsewhere = one;
  elsewhere["task"] = "copy/of/it";
  elsewhere["made_by"] = Json::array();
  EXPECT_EQ(DifferingKey(one, elsewhere), "");
}

Json MadeBy(const char* version, const char* commit, const char* cpu, const char* date) {
  return {{"made_by",
           {{{"version", version},
             {"commit", commit},
             {"cpu", cpu},
             {"instructions", "cpu:AVX2"},
             {"date", date}}}}};
}

TEST(AddMachine, TellsAnotherProcessorAndRefusesAnotherVersion) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  Json there = MadeBy("0.2.0", "a", "EPYC", "monday");
  EXPECT_TRUE(AddMachine(MadeBy("0.2.0", "a", "EPYC", "tuesday"), false, note, &there).ok());
  EXPECT_EQ(there["made_by"].size(), 1u);
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_TRUE(AddMachine(MadeBy("0.2.0", "a", "Xeon", "tuesday"), false, note, &there).ok());
  ASSERT_EQ(there["made_by"].size(), 2u);
  EXPECT_EQ(there["made_by"][1]["cpu"], "Xeon");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], testing::HasSubstr("cpu EPYC, here it is Xeon"));
  const Json newer = MadeBy("0.3.0", "b", "Xeon", "friday");
  const Status refused = AddMachine(newer, false, note, &there);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), testing::HasSubstr("version 0.2.0, here it is 0.3.0"));
  EXPECT_EQ(there["made_by"].size(), 2u);
  EXPECT_TRUE(AddMachine(newer, true, note, &there).ok());
  EXPECT_EQ(there["made_by"].size(), 3u);
  Json other_types = {{"made_by", {{{"version", 2}, {"cpu", Json::array()}}}}};
  EXPECT_EQ(AddMachine(newer, false, note, &other_types).code(), StatusCode::kInvalidArgument);
  Json damaged = {{"made_by", "nobody"}};
  EXPECT_EQ(AddMachine(newer, true, note, &damaged).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ebb
