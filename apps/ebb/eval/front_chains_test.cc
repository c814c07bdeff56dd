#include "apps/ebb/eval/front_chains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/ebb/eval/front_fixture.h"

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const TestModel kCr8 = {.fingerprint = 8, .compression = 8, .window = 16};
const TestAnswers kOne = {{"+1"}, {"2"}};

EvalRun RunOf(const TestModel& model, const TestSetting& setting, int tokens = 512) {
  return MakeRun(model, tokens, setting, kOne, {});
}

// "method L-CR" of each setting.
std::vector<std::string> Names(const Chains& chains) {
  std::vector<std::string> names;
  for (const ChainSet& set : chains.sets) {
    names.push_back(set.method + " " + std::to_string(set.tokens) + "-" + set.compression);
  }
  return names;
}

TEST(CollectChains, AFrontGoesOverLimitsBudgetsAndModelsThatMark) {
  const auto chains = CollectChains({RunOf(kCr4, {"dms"}), RunOf(kCr8, {"dms"}, 1024),
                                     RunOf(kPlain, {"tova", "1/4"}), RunOf(kPlain, {"tova", "1/8"}),
                                     RunOf(kPlain, {"full"}), RunOf(kPlain, {"full"}, 1024)});
  ASSERT_TRUE(chains.ok()) << chains.status().ToString();
  EXPECT_THAT(chains->methods, ElementsAre("full", "tova", "dms"));
  EXPECT_THAT(Names(*chains), ElementsAre("dms 512-4", "dms 1024-8", "tova 512-4", "tova 512-8",
                                          "full 512-1", "full 1024-1"));
}

TEST(CollectChains, WhatLimitsRowsStandsInPlaceOfARatio) {
  const TestModel unsaid = {.fingerprint = 9, .window = 16};
  const auto chains = CollectChains({RunOf(kPlain, {"tova", "25%"}), RunOf(kPlain, {"tova", "128"}),
                                     RunOf(kPlain, {"tova", "+64"}),
                                     RunOf(kPlain, {"attention", "", "t0=50% evict=5% of alive"}),
                                     RunOf(kPlain, {"quest"}), RunOf(unsaid, {"dms"})});
  ASSERT_TRUE(chains.ok()) << chains.status().ToString();
  EXPECT_THAT(Names(*chains), ElementsAre("tova 512-25%", "tova 512-128 rows", "tova 512-+64 rows",
                                          "attention, t0=50% of alive 512-evict=5%",
                                          "quest 512-quest", "dms 512-dms"));
}

TEST(CollectChains, NamesHoldWhatTellsMethodsApart) {
  TestModel wide = kCr4;
  wide.fingerprint = 5;
  wide.window = 64;
  TestModel immediate = kCr4;
  immediate.fingerprint = 6;
  immediate.shift = 16;
  TestModel other = {.fingerprint = 2, .description = "other, llama, F16"};
  TestModel twin = {.fingerprint = 0xabcdef0000000000, .description = "other, llama, F16"};
  const auto chains =
      CollectChains({RunOf(kCr4, {"full"}), RunOf(kPlain, {"full"}), RunOf(other, {"full"}),
                     RunOf(twin, {"full"}), RunOf(kCr4, {"dms"}), RunOf(wide, {"dms"}),
                     RunOf(immediate, {"dms"}), RunOf(kPlain, {"h2o", "25%", "", "window=8"}),
                     RunOf(kPlain, {"h2o", "25%", "", "window=16"})});
  ASSERT_TRUE(chains.ok()) << chains.status().ToString();
  EXPECT_THAT(chains->methods,
              ElementsAre("full", "full, other, llama, F16 000000",
                          "full, other, llama, F16 abcdef", "full, model of CR 4", "h2o, window=8",
                          "h2o, window=16", "dms, window 16, shift 1", "dms, window 64, shift 1",
                          "dms, window 16, shift 16"));
}

TEST(CollectChains, AMethodOfAnotherModelThanTheFullCachesSaysSo) {
  const TestModel unsaid = {.fingerprint = 9, .window = 16, .description = "marked, llama, F16"};
  const auto chains = CollectChains(
      {RunOf(unsaid, {"full"}), RunOf(kCr4, {"tova", "1/4"}), RunOf(kPlain, {"full"})});
  ASSERT_TRUE(chains.ok()) << chains.status().ToString();
  EXPECT_THAT(chains->methods,
              ElementsAre("full", "full, marked, llama, F16", "tova, model of CR 4"));
  const auto of_one = CollectChains({RunOf(kCr4, {"full"}), RunOf(kCr4, {"dms"})});
  ASSERT_TRUE(of_one.ok());
  EXPECT_THAT(of_one->methods, ElementsAre("full", "dms"));
}

TEST(CollectChains, TheTasksOwnLimitIsThatOfItsProblems) {
  const auto chains = CollectChains({RunOf(kPlain, {"full"}, 0)});
  ASSERT_TRUE(chains.ok());
  EXPECT_THAT(Names(*chains), ElementsAre("full 1600-1"));
}

TEST(CollectChains, ShardsAndFurtherSeedsArePooled) {
  EvalRun first = MakeRun(kPlain, 512, {"full"}, {{"+1", "a"}, {"b", "+2"}}, {});
  EvalRun second = first;
  first.manifest["shard"] = "0/2";
  second.manifest["shard"] = "1/2";
  std::erase_if(first.results, [](const auto& line) { return line["problem"] == 1; });
  std::erase_if(second.results, [](const auto& line) { return line["problem"] == 0; });
  for (EvalRun* run : {&first, &second}) run->times.resize(run->results.size());
  // A longer context, by which alone it would be a run of its own.
  EvalRun more = MakeRun(kPlain, 512, {"full"}, {{"+3"}, {"c"}}, {}, 2);
  more.manifest["context"] = 4096;
  first.manifest["context"] = second.manifest["context"] = 2048;
  const auto chains = CollectChains({second, more, first});
  ASSERT_TRUE(chains.ok()) << chains.status().ToString();
  ASSERT_EQ(chains->sets.size(), 1u);
  std::vector<std::vector<std::string>> answers;
  for (const auto& of_problem : chains->sets[0].of_problem) {
    answers.emplace_back();
    for (const Chain& chain : of_problem) answers.back().push_back(chain.extracted);
  }
  EXPECT_THAT(answers, ElementsAre(ElementsAre("+1", "a", "+3"), ElementsAre("b", "+2", "c")));
}

TEST(CollectChains, RefusesWhatIsNotOfTheSameProblems) {
  const auto refused = [](const char* key, const nlohmann::ordered_json& value) {
    EvalRun other = RunOf(kCr4, {"dms"});
    other.manifest[key] = value;
    return CollectChains({RunOf(kPlain, {"full"}), other}).status().message();
  };
  EXPECT_THAT(refused("problems", 3), HasSubstr("answers are missing"));
  EXPECT_THAT(refused("seed", 8), HasSubstr("full and dms have no fronts in common: their \"seed\" "
                                            "differs; they are to be of the same problems"));
  EXPECT_THAT(refused("temperature", 0.5), HasSubstr("\"temperature\" differs"));
  EXPECT_THAT(refused("top_k", 40), HasSubstr("\"top_k\" differs"));
  EXPECT_FALSE(CollectChains({}).ok());
}

TEST(CollectChains, ProblemsOfAFileDoNotFollowFromTheSeed) {
  const auto of_file = [](const std::string& task, int seed, const std::string& fingerprint) {
    EvalRun run = RunOf(seed == 1 ? kPlain : kCr4, {"full"});
    run.manifest["task"] = task;
    run.manifest["seed"] = seed;
    run.manifest["task_fingerprint"] = fingerprint;
    return run;
  };
  EXPECT_TRUE(CollectChains({of_file("a.jsonl", 1, "f"), of_file("b.jsonl", 2, "f")}).ok());
  EXPECT_THAT(
      CollectChains({of_file("a.jsonl", 1, "f"), of_file("a.jsonl", 2, "g")}).status().message(),
      HasSubstr("\"task_fingerprint\" differs"));
}

TEST(CollectChains, RefusesGapsAndAnswersThatDiffer) {
  EvalRun gap = RunOf(kPlain, {"full"});
  gap.results.pop_back();
  gap.times.pop_back();
  EXPECT_THAT(CollectChains({gap}).status().message(),
              HasSubstr("full: 1 of 2 answers are missing; end the run by --resume"));
  EvalRun again = RunOf(kPlain, {"full"});
  again.manifest["context"] = 4096;
  again.results[1]["extracted"] = "3";
  EXPECT_THAT(CollectChains({RunOf(kPlain, {"full"}), again}).status().message(),
              HasSubstr("two answers to problem 1 of full, seed 0 differ"));
}

}  // namespace
}  // namespace ebb::cli
