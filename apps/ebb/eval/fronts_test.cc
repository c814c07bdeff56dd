#include "apps/ebb/eval/fronts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/ebb/eval/front_fixture.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const TestModel kCr2 = {.fingerprint = 2, .compression = 2, .window = 16};

Json Compare(std::vector<EvalRun> runs, const BootstrapOptions& options = {}) {
  const auto fronts = CompareFronts(std::move(runs), options);
  EXPECT_TRUE(fronts.ok()) << fronts.status().ToString();
  return fronts.ok() ? *fronts : Json();
}

TEST(CompareFronts, PointsAreMeansOverDisjointSubsets) {
  // W = 1: 5 of 8 right. W = 2: "+1 x" and "x +1" are ties, which "+1" wins, since it sorts first;
  // "x x" is wrong and "+1 +1" right. W = 4: "+1 x x x" is wrong; in "+1 +1 x +1", +1 has most.
  const Json fronts =
      Compare({MakeRun(kPlain, 512, {"full"}, {{"+1", "x", "x", "x"}, {"+1", "+1", "x", "+1"}},
                       {.kv_reads = 100, .peak_tokens = 10})});
  const Json& points = fronts["points"];
  ASSERT_EQ(points.size(), 3u);
  const auto expect = [](const Json& point, const char* name, double majority, double pass_all,
                         double kv_reads, double peak_tokens) {
    EXPECT_EQ(point["name"], name);
    EXPECT_EQ(point["majority"], majority) << name;
    EXPECT_EQ(point["pass_all"], pass_all) << name;
    EXPECT_EQ(point["kv_reads"], kv_reads) << name;
    EXPECT_EQ(point["peak_tokens"], peak_tokens) << name;
    EXPECT_EQ(point["samples"], 4) << name;
  };
  expect(points[0], "512-1-1", 4.0 / 8, 4.0 / 8, 100, 10);
  expect(points[1], "512-2-1", 3.0 / 4, 3.0 / 4, 200, 20);
  expect(points[2], "512-4-1", 1.0 / 2, 1.0, 400, 40);
  EXPECT_EQ(fronts["baseline"], "full");
  EXPECT_TRUE(fronts["margins"].empty());
  // By majority the widest point is behind the front.
  EXPECT_EQ(points[2]["on_front"]["majority"]["kv_reads"], false);
  EXPECT_EQ(points[2]["on_front"]["pass_all"]["kv_reads"], true);
  EXPECT_EQ(points[1]["on_front"]["majority"]["peak_tokens"], true);
  // A problem drawn twice, in a quarter of the resamples each: 1/4 and 3/4 of single answers.
  EXPECT_EQ(points[0]["majority_low"], 0.25);
  EXPECT_EQ(points[0]["majority_high"], 0.75);
}

TEST(CompareFronts, ALimitThatAnOlderRunDidNotSayIsTheTasksOwn) {
  EvalRun run = MakeRun(kPlain, 0, {"full"}, {{"+1"}}, {});
  EXPECT_EQ(Compare({run})["points"][0]["name"], "1600-1-1");
  run.manifest.erase("answer_tokens");
  EXPECT_EQ(Compare({run})["points"][0]["name"], "own-1-1");
}

TEST(CompareFronts, SamplesThatFillNoSubsetAreLeftOut) {
  const Json fronts = Compare({MakeRun(kPlain, 512, {"full"}, {{"x", "x", "x", "+1", "+1"}}, {})});
  ASSERT_EQ(fronts["points"].size(), 3u);
  EXPECT_EQ(fronts["points"][0]["majority"], 2.0 / 5);
  EXPECT_EQ(fronts["points"][1]["majority"], 1.0 / 2);  // "x x", and a tie
  EXPECT_EQ(fronts["points"][2]["majority"], 0.0);
}

TEST(CompareFronts, AMarginIsTheMeanDifference) {
  // full: 1/2 right for 100 reads, all for 200; dms: 1/2 for 100, all for 150. Over 100 to 150 the
  // difference grows from 0 to 1/4. By peak rows the two have nothing in common.
  const TestAnswers half = {{"+1"}, {"x"}, {"+1"}, {"x"}};
  const TestAnswers all = {{"+1"}, {"+1"}, {"+1"}, {"+1"}};
  const auto runs = [&] {
    return std::vector<EvalRun>{MakeRun(kCr4, 512, {"dms"}, half, {100, 10}),
                                MakeRun(kCr2, 512, {"dms"}, all, {150, 20}),
                                MakeRun(kPlain, 512, {"full"}, half, {100, 40}),
                                MakeRun(kPlain, 1024, {"full"}, all, {200, 80})};
  };
  const Json fronts = Compare(runs(), {.resamples = 400, .seed = 3});
  ASSERT_EQ(fronts["margins"].size(), 1u);
  const Json& margin = fronts["margins"][0];
  EXPECT_EQ(margin["method"], "dms");
  EXPECT_EQ(margin["over"], "full");
  const Json& reads = margin["majority"]["kv_reads"];
  EXPECT_NEAR(reads["margin"].get<double>(), 0.125, 1e-12);
  EXPECT_EQ(reads["from"], 100);
  EXPECT_EQ(reads["to"], 150);
  // With k of 4 draws right for the least cost it is (1 - k / 4) / 4, and none for k = 4.
  EXPECT_NEAR(reads["low"].get<double>(), 0.0625, 1e-12);
  EXPECT_NEAR(reads["high"].get<double>(), 0.25, 1e-12);
  EXPECT_NEAR(reads["none"].get<double>(), 1.0 / 16, 0.04);
  EXPECT_EQ(margin["pass_all"]["kv_reads"], reads) << "of one sample they are the same";
  const Json& peak = margin["majority"]["peak_tokens"];
  EXPECT_TRUE(peak["margin"].is_null());
  EXPECT_TRUE(peak["low"].is_null());
  EXPECT_TRUE(peak["from"].is_null());
  EXPECT_EQ(peak["none"], 1);
  const std::string table = FrontTable(fronts);
  EXPECT_THAT(table, HasSubstr("| dms | 512-1-4 | 50.0 % ("));
  EXPECT_THAT(table, HasSubstr(" | 100 | 10 | reads, peak rows |\n"));
  EXPECT_THAT(table, HasSubstr("| dms over full | +12.5 (+6.2 to +25.0), NA in "));
  EXPECT_THAT(table, HasSubstr(" | NA | "));
  EXPECT_EQ(Compare(runs(), {.resamples = 400, .seed = 3}), fronts);
}

TEST(CompareFronts, EveryMethodIsHeldAgainstEveryOther) {
  const TestAnswers answers = {{"+1", "x"}, {"x", "+2"}};
  const Json fronts = Compare(
      {MakeRun(kCr4, 512, {"dms"}, answers, {}), MakeRun(kPlain, 512, {"tova", "1/4"}, answers, {}),
       MakeRun(kPlain, 512, {"quest", "1/4"}, answers, {}),
       MakeRun(kPlain, 512, {"full"}, answers, {})},
      {.resamples = 10});
  std::vector<std::string> pairs;
  for (const Json& margin : fronts["margins"]) {
    pairs.push_back(margin["method"].get<std::string>() + " " + margin["over"].get<std::string>());
  }
  EXPECT_THAT(pairs, testing::ElementsAre("tova full", "quest full", "dms full", "quest tova",
                                          "dms tova", "dms quest"));
}

TEST(CompareFronts, WhatWasRefusedCostsNothing) {
  EvalRun run = MakeRun(kPlain, 512, {"full"}, {{"+1", "x"}, {"+1", "x"}}, {100, 10});
  for (const char* cost : {"kv_reads", "peak_tokens"}) run.results[3][cost] = 0.0;
  const Json fronts =
      Compare({run, MakeRun(kPlain, 512, {"tova", "1/4"}, {{"+1", ""}, {"", ""}}, {0, 0})});
  ASSERT_EQ(fronts["points"].size(), 2u);
  EXPECT_EQ(fronts["points"][0]["kv_reads"], 100) << "the mean of three";
  EXPECT_EQ(fronts["points"][1]["peak_tokens"], 20);
  EXPECT_EQ(fronts["left_out"], Json({"tova 4"}));
  EXPECT_EQ(fronts["methods"], Json({"full"}));
  EXPECT_THAT(FrontTable(fronts), HasSubstr("Left out, since no request began: tova 4"));
  EXPECT_THAT(CompareFronts({MakeRun(kPlain, 512, {"full"}, {{""}}, {0, 0})}).status().message(),
              HasSubstr("no request of these runs began"));
}

TEST(CompareFronts, RefusesWhatCannotBeCompared) {
  EXPECT_THAT(CompareFronts({}).status().message(), HasSubstr("expected folders"));
  EvalRun other = MakeRun(kCr4, 512, {"dms"}, {{"+1"}}, {});
  other.manifest["seed"] = 8;
  EXPECT_THAT(
      CompareFronts({MakeRun(kPlain, 512, {"full"}, {{"+1"}}, {}), other}).status().message(),
      HasSubstr("their \"seed\" differs"));
}

}  // namespace
}  // namespace ebb::cli
