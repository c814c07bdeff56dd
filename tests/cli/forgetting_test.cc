#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Forgetting, IsReportedByLayerHeadAndStep) {
  const TinyModel model;
  const std::string command =
      "ebb-lab fidelity --forgetting --threads 1 --window-tokens 120 --policy h2o --budget 40 "
      "--quiet -m " +
      model.path();
  const ProgramEnd end = RunEbb(command + " --json");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json record = json::parse(end.out)["forgetting"];
  EXPECT_EQ(record["steps"], 120 - 64);
  EXPECT_EQ(record["above_bound"], 0);
  EXPECT_EQ(record["not_finite"], 0);
  ASSERT_EQ(record["layers"].size(), 2u);
  for (const json& layer : record["layers"]) {
    EXPECT_EQ(layer["heads"].size(), 4u);
    EXPECT_GT(layer["mass"]["mean"], 0);
    EXPECT_LE(layer["mass"]["max"], 1);
    EXPECT_LE(layer["error"]["mean"], layer["bound"]["mean"]);
    EXPECT_LE(layer["error"]["p99"], layer["error"]["max"]);
  }
  EXPECT_EQ(record["mass_by_step"].size(), 120u - 64u);
  const ProgramEnd text = RunEbb(command);
  EXPECT_THAT(text.out, HasSubstr("what evicted rows cost, over 56 steps"));
  EXPECT_THAT(text.out, HasSubstr(" 0 above the true bound"));
}

TEST(Forgetting, IsLeftOutUnlessAskedFor) {
  const TinyModel model;
  const ProgramEnd end =
      RunEbb("ebb-lab fidelity --threads 1 --window-tokens 80 --policy h2o --budget 40 --json -m " +
             model.path());
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_FALSE(json::parse(end.out).contains("forgetting"));
}

}  // namespace
}  // namespace ebb
