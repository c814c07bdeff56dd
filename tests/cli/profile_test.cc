#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/random_gguf.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class ProfileTest : public testing::Test {
 protected:
  ProgramEnd Profile(const std::string& arguments) {
    return RunEbb("ebb-lab profile --raw --temp 0 --threads 1 --ignore-eos -m " + model_.path() +
                  " " + arguments);
  }
  static json Record(const ProgramEnd& end) {
    json record = json::parse(end.out, nullptr, false);
    EXPECT_TRUE(record.is_object()) << end.out << end.err;
    return record;
  }

  TinyModel model_;
};

TEST_F(ProfileTest, TheTextShowsTheRowsOfEachTier) {
  const ProgramEnd end = Profile(
      "-n 60 -p tide --quiet --t0 50% --t1 host --t2 30% --evict 10% --window 8 --interval 8");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out,
              testing::ContainsRegex(
                  "\ntiers at the end +T0 [0-9]+ rows, [0-9.]+ [KM]iB; T1 [0-9]+ rows, "
                  "[0-9.]+ [KM]iB; T2 [0-9]+ rows, [0-9.]+ [KM]iB; [0-9]+ rows evicted\n"));
  EXPECT_THAT(Profile("-n 4 -p tide --quiet").out,
              testing::ContainsRegex("\ntiers at the end +T0 [0-9]+ rows, [0-9.]+ [KM]iB\n"));
}

TEST_F(ProfileTest, TheRecordHoldsEveryFigure) {
  const ProgramEnd end = Profile(
      "-n 60 -p tide --json --quiet --t0 50% --t1 host --t2 30% --evict 10% --window 8 --interval "
      "8 "
      "--transfer-tokens 40");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json record = Record(end);
  const json& figures = record["figures"];
  EXPECT_EQ(record["runs"][0]["generated_tokens"], 60);
  EXPECT_EQ(figures["cost"]["steps"], 59);
  for (const char* part :
       {"embedding", "matmul", "attention", "other", "policy", "moves", "sampling"}) {
    EXPECT_GT(figures["cost"]["mean_seconds"][part].get<double>(), 0) << part;
  }
  EXPECT_GT(figures["importance"]["top_20_percent"]["mean"].get<double>(), 0.2);
  EXPECT_LT(figures["importance"]["bottom_50_percent"]["mean"].get<double>(), 0.5);
  EXPECT_GT(figures["overlap"]["mean"].get<double>(), 0);
  EXPECT_EQ(figures["top_half"]["distance"], json({1, 2, 4, 8, 16, 32}));  // of 59 steps
  for (const json& share : figures["top_half"]["share"]) {
    EXPECT_GT(share.get<double>(), 0);
    EXPECT_LE(share.get<double>(), 1);
  }
  // The last token of the answer is in no row.
  const int rows = (record["runs"][0]["prompt_tokens"].get<int>() + 59) * 4;
  int counted = 0;
  for (const char* tier : {"T0", "T1", "T2", "T3"}) {
    EXPECT_GT(figures["tiers"]["rows"][tier].back().get<int>(), 0) << tier;
    counted += figures["tiers"]["rows"][tier].back().get<int>();
  }
  EXPECT_EQ(counted, rows);
  // 1, 4, 16, 40 tokens to two tiers and back.
  EXPECT_EQ(figures["transfers"]["measured"].size(), 16u);
  EXPECT_GT(figures["transfers"]["in_runs"].size(), 0u);
}

TEST_F(ProfileTest, HeadsOfLayersThatDifferAreNotDrawnAsAGrid) {
  const std::string path = model_.File("mixed.gguf");
  ASSERT_TRUE(
      WriteRandomGguf({.family = "deci", .kv_heads_by_layer = {1, 2}, .context = 256}, path).ok());
  const std::string arguments =
      "ebb-lab profile --raw --temp 0 --threads 1 --quiet --json -n 8 -p tide -m ";
  EXPECT_EQ(RunEbb(arguments + path).exit_code, 0);
  const ProgramEnd end = RunEbb(arguments + path + " --policy h2o --budget 30");
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("not at granularity head where layers differ in their kv heads"));
}

TEST_F(ProfileTest, TheTextShowsTheAuditOfSelectiveReading) {
  const std::string path = model_.File("long.gguf");
  ASSERT_TRUE(WriteRandomGguf({.context = 1024}, path).ok());
  const std::string run =
      "ebb-lab profile --raw --temp 0 --threads 1 --quiet --ignore-eos -p tide -n ";
  const std::string select = " --t0 50% --t1 file --t1-read select:mass=0.5 -m " + path;
  const ProgramEnd end = RunEbb(run + "900" + select);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("selective reading        "));
  EXPECT_THAT(end.out, HasSubstr(" % of the attention unread by estimate, "));
  EXPECT_THAT(RunEbb(run + "20" + select).out, Not(HasSubstr("selective reading")));
}

TEST_F(ProfileTest, WhyATokenLiesWhereItLiesIsToldWithScoreRankAndRule) {
  const std::string tiers = "-n 60 -p tide --t0 50% --t1 host --evict 20% --window 4 --interval 8 ";
  const json record = Record(Profile(tiers + "--why 8 --json"));
  const json& why = record["runs"][0]["why"];
  ASSERT_GT(why.size(), 0u);
  for (const json& decision : why) {
    EXPECT_GT(decision["tokens"], 8);
    EXPECT_THAT(decision["why"].get<std::string>(),
                AnyOf(HasSubstr("from the lowest: "), HasSubstr("protected: ")));
  }
  const ProgramEnd text = Profile(tiers + "--why 8");
  // The first decision finds it in the window, later ones rank it.
  EXPECT_THAT(text.out, HasSubstr("token 8:\n  at "));
  EXPECT_THAT(text.out, HasSubstr("protected: one of the newest 4 tokens"));
  EXPECT_THAT(text.out, HasSubstr(": score "));
  EXPECT_THAT(Profile("-n 4 -p tide --why 2").out,
              HasSubstr("the policy decided nothing about it"));
  EXPECT_THAT(Profile("-n 4 -p tide --why 9999").out, HasSubstr("tokens only"));
}

TEST_F(ProfileTest, ProfilingChangesNothingThatIsGenerated) {
  const ProgramEnd profile = Profile("-n 20 -p tide --json --t0 50% --t1 host --evict 10%");
  const ProgramEnd run = RunEbb(
      "run --raw --temp 0 --threads 1 --ignore-eos --json -n 20 -p tide --t0 50% --t1 host "
      "--evict 10% -m " +
      model_.path());
  EXPECT_EQ(Record(profile)["runs"][0]["rows_evicted"],
            json::parse(LastLine(run.err))["rows_evicted"]);
}

TEST_F(ProfileTest, ManyPromptsMakeOneProfile) {
  const std::string path = model_.File("prompts.jsonl");
  std::ofstream(path) << "{\"question\": \"one\"}\ntwo words\n";
  const json record = Record(Profile("-n 10 --json --prompts " + path));
  EXPECT_EQ(record["runs"].size(), 2u);
  EXPECT_EQ(record["figures"]["cost"]["steps"], 18);
  EXPECT_THAT(record["figures"]["transfers"]["skipped"].get<std::string>(), HasSubstr("--t0"));
}

TEST_F(ProfileTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT(Profile("--prompts /no/such/file").err, HasSubstr("cannot read /no/such/file"));
  const ProgramEnd both = Profile("-p x --prompts y");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("found both"));
}

TEST_F(ProfileTest, APromptThatCannotFitIsNamedBeforeTheWork) {
  const std::string prompts = model_.File("long.txt");
  std::ofstream(prompts) << "short\n" << std::string(2000, 'x') << "\n";
  const ProgramEnd end = Profile("-n 10 --prompts " + prompts);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, HasSubstr("prompt 2 has "));
}

// The budget holds the first prompt and not the second.
TEST_F(ProfileTest, WhatWasMeasuredBeforeAPromptFailedIsWritten) {
  const std::string prompts = model_.File("two.txt");
  std::ofstream(prompts) << "tide\n" << std::string(200, 'x') << "\n";
  const ProgramEnd end =
      Profile("-n 10 --json --policy attention --budget 60 --window 4 --prompts " + prompts);
  EXPECT_EQ(end.exit_code, 2) << end.err;
  EXPECT_THAT(end.err, HasSubstr("prompt 2: "));
  const json record = Record(end);
  EXPECT_EQ(record["runs"].size(), 1u);
  EXPECT_EQ(record["figures"]["cost"]["steps"], 9);
  EXPECT_THAT(record["ended_early"].get<std::string>(), HasSubstr("prompt 2: "));
}

TEST_F(ProfileTest, WhatEndsByALimitSaysSoAndIsWritten) {
  const ProgramEnd end = Profile("-n 100 -p tide --raw --ignore-eos --json --quiet --context 40");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, HasSubstr("context"));
  const json record = Record(end);
  EXPECT_EQ(record["runs"][0]["finish_reason"], "context");
  EXPECT_THAT(record["ended_early"].get<std::string>(), HasSubstr("context"));
}

TEST_F(ProfileTest, MemoryChoosesTiersHereToo) {
  const ProgramEnd end = Profile("-n 20 -p tide --memory 4GiB");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("[planned: "));
  EXPECT_THAT(end.out, HasSubstr("top 20 % of the tokens"));
}

}  // namespace
}  // namespace ebb
