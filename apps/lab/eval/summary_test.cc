#include "apps/lab/eval/summary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

Json Answer(int problem, int seed, const std::string& extracted, bool correct) {
  return {{"policy", "full"},
          {"budget", ""},
          {"tiers", ""},
          {"options", ""},
          {"problem", problem},
          {"seed", seed},
          {"extracted", extracted},
          {"correct", correct},
          {"outcome", correct             ? "right"
                      : extracted.empty() ? "no_answer"
                                          : "wrong"},
          {"finish_reason", "stop"}};
}

// Three samples of four problems:
//   0: right twice; 1: right once, a wrong answer twice; 2: never right; 3: a tie of three answers,
//   where the one that sorts first counts.
std::vector<Json> Samples() {
  return {Answer(0, 1, "7", true),  Answer(0, 2, "7", true),  Answer(0, 3, "8", false),
          Answer(1, 1, "3", true),  Answer(1, 2, "4", false), Answer(1, 3, "4", false),
          Answer(2, 1, "5", false), Answer(2, 2, "", false),  Answer(2, 3, "5", false),
          Answer(3, 1, "1", true),  Answer(3, 2, "2", false), Answer(3, 3, "9", false)};
}

TEST(Summarize, CountsMajorityAndAnyRightAnswerOverSamples) {
  const Result<Json> summary = Summarize(Samples());
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ASSERT_EQ(summary->size(), 1u);
  const Json& record = summary->front();
  EXPECT_EQ(record["n"], 12);
  EXPECT_EQ(record["correct"], 4);
  EXPECT_EQ(record["samples"], 3);
  EXPECT_DOUBLE_EQ(record["majority"].get<double>(), 2.0 / 4);  // problems 0 and 3
  EXPECT_DOUBLE_EQ(record["pass_all"].get<double>(), 3.0 / 4);  // all but problem 2
}

// A run that was stopped while it sampled a second time leaves such answers.
TEST(Summarize, SharesAreOfTheProblemsWhereSomeHaveFewerSamples) {
  const Result<Json> summary =
      Summarize({Answer(0, 1, "7", true), Answer(1, 1, "7", true), Answer(2, 1, "7", true),
                 Answer(3, 1, "8", false), Answer(0, 2, "7", true)});
  ASSERT_TRUE(summary.ok());
  EXPECT_DOUBLE_EQ(summary->front()["majority"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(summary->front()["pass_all"].get<double>(), 0.75);
}

TEST(Summarize, RightAnswersAreOneHoweverTheyAreWritten) {
  const std::vector<Json> samples = {Answer(0, 1, "1/2", true), Answer(0, 2, "7", false),
                                     Answer(0, 3, "0.5", true), Answer(0, 4, "7", false),
                                     Answer(0, 5, "0.50", true)};
  const Result<Json> summary = Summarize(samples);
  ASSERT_TRUE(summary.ok());
  EXPECT_DOUBLE_EQ(summary->front()["majority"].get<double>(), 1);
}

TEST(Summarize, WrongAnswersAreOneWhereTheyAreTheSameNumber) {
  const std::vector<Json> samples = {
      Answer(0, 1, "3", true),     Answer(0, 2, "\\frac{1}{2}", false),
      Answer(0, 3, "3", true),     Answer(0, 4, "0.5", false),
      Answer(0, 5, "1/2", false),  Answer(1, 1, "3", true),
      Answer(1, 2, "0.5", false),  Answer(1, 3, "3", true),
      Answer(1, 4, "0.25", false), Answer(1, 5, "x", false)};
  const Result<Json> summary = Summarize(samples);
  ASSERT_TRUE(summary.ok());
  EXPECT_DOUBLE_EQ(summary->front()["majority"].get<double>(), 0.5);  // problem 1 alone
}

TEST(Summarize, NamesWhatABudgetInPercentIsAShareOf) {
  const auto base_of = [](const std::string& policy, const std::string& budget) {
    Json answer = Answer(0, 1, "3", true);
    answer["policy"] = policy;
    answer["budget"] = budget;
    return Summarize({answer})->front()["budget_of"];
  };
  EXPECT_EQ(base_of("attention", "50%"), "the rows ever unprotected");
  EXPECT_EQ(base_of("raas:alpha=0.1", "50%"), "the rows ever unprotected");
  EXPECT_EQ(base_of("streaming", "50%"), "all rows but the sinks");
  EXPECT_EQ(base_of("windowed:h2o:w=4", "50%"), "all rows, the prompt's too");
  EXPECT_EQ(base_of("tova+scorer=random", "50%"), "all rows, the prompt's too");
  EXPECT_TRUE(base_of("attention", "64").is_null());
  EXPECT_TRUE(base_of("of_my_own", "50%").is_null());
  EXPECT_TRUE(base_of("full", "").is_null());
}

TEST(Summarize, WhatWasRefusedCostsNothing) {
  std::vector<Json> answers = {Answer(0, 1, "7", true), Answer(1, 1, "", false),
                               Answer(2, 1, "", false)};
  answers[2]["policy"] = "h2o";
  answers[0].update({{"peak_tokens", 144.0}, {"kv_reads", 9.0}, {"generated_tokens", 60}});
  for (size_t i : {1, 2}) answers[i].update({{"peak_tokens", 0.0}, {"error", "no room"}});
  const Result<Json> summary = Summarize(answers);
  ASSERT_TRUE(summary.ok());
  const Json& record = summary->front();
  EXPECT_EQ(record["n"], 2);
  EXPECT_EQ(record["errors"], 1);
  EXPECT_EQ(record["peak_tokens"], 144.0);
  EXPECT_EQ(record["generated_tokens"], 60.0);
  EXPECT_TRUE((*summary)[1]["peak_tokens"].is_null());
  EXPECT_NE(SummaryTable(*summary).find("| 144 |"), std::string::npos);
}

TEST(Summarize, NoAnswerHasNoVote) {
  // Two of three samples say nothing: the one answer is the majority.
  const Result<Json> summary =
      Summarize({Answer(0, 1, "", false), Answer(0, 2, "6", true), Answer(0, 3, "", false)});
  ASSERT_TRUE(summary.ok());
  EXPECT_DOUBLE_EQ(summary->front()["majority"].get<double>(), 1);
  EXPECT_EQ(summary->front()["no_answer"], 2);
}

TEST(Summarize, OneSampleHasNeither) {
  const Result<Json> summary = Summarize({Answer(0, 1, "7", true), Answer(1, 1, "3", false)});
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->front().contains("majority"));
  EXPECT_FALSE(summary->front().contains("pass_all"));
  EXPECT_DOUBLE_EQ(summary->front()["accuracy"].get<double>(), 0.5);
}

std::vector<Json> TwoSettings() {
  std::vector<Json> answers = Samples();
  for (Json line : Samples()) {
    line["policy"] = "h2o";
    line["budget"] = "25%";
    line["correct"] = true;
    answers.push_back(line);
  }
  return answers;
}

// By the hypergeometric distribution, in whole numbers: 4 of 12 right against 12 of 12.
TEST(AddAgainst, TestsEverySettingAgainstTheOneThatIsNamed) {
  Result<Json> summary = Summarize(TwoSettings());
  ASSERT_TRUE(summary.ok());
  ASSERT_TRUE(AddAgainst("h2o 25%", &*summary).ok());
  EXPECT_EQ((*summary)[0]["against"], "h2o 25%");
  EXPECT_NEAR((*summary)[0]["p_against"].get<double>(), 0.0013460761879122358, 1e-12);
  EXPECT_EQ((*summary)[1]["p_against"], 1);
  const std::string table = SummaryTable(*summary);
  EXPECT_NE(table.find("| p | p against h2o 25% | tokens |"), std::string::npos) << table;
  EXPECT_NE(table.find("| 0.0013 | - |"), std::string::npos) << table;
}

TEST(AddAgainst, ASettingThatIsNotThereIsRefusedWithThoseThatAre) {
  Result<Json> summary = Summarize(TwoSettings());
  ASSERT_TRUE(summary.ok());
  const Status status = AddAgainst("h2o", &*summary);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("full, h2o 25%"), std::string::npos) << status.message();
  EXPECT_FALSE(summary->front().contains("p_against"));
}

TEST(Summarize, TheStandardErrorIsOfTheMean) {
  const Result<Json> summary = Summarize(Samples());
  ASSERT_TRUE(summary.ok());
  EXPECT_NEAR(summary->front()["standard_error"].get<double>(), 0.14213381090374029, 1e-12);
  const Result<Json> one = Summarize({Answer(0, 1, "7", true)});
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->front()["standard_error"].is_null());
}

TEST(AddTimes, TellsRatesAndWhatASettingTakesMoreThanTheFullCache) {
  std::vector<Json> results = {Answer(0, 1, "7", true), Answer(1, 1, "8", true),
                               Answer(0, 1, "7", true), Answer(0, 1, "7", true)};
  results[2]["policy"] = "h2o";
  results[3]["policy"] = "tova";
  for (Json& result : results) result["generated_tokens"] = 100;
  // The last answer's time was not kept.
  const std::vector<Json> times = {{{"seconds", 1.0}}, {{"seconds", 3.0}}, {{"seconds", 2.5}}};
  Json summary = *Summarize(results);
  AddTimes(results, times, &summary);
  ASSERT_EQ(summary.size(), 3u);
  EXPECT_DOUBLE_EQ(summary[0]["seconds"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(summary[0]["tokens_per_s"].get<double>(), 50);
  EXPECT_DOUBLE_EQ(summary[0]["overhead"].get<double>(), 0);
  EXPECT_DOUBLE_EQ(summary[1]["tokens_per_s"].get<double>(), 40);
  EXPECT_DOUBLE_EQ(summary[1]["overhead"].get<double>(), 0.25);
  for (const char* name : {"seconds", "tokens_per_s", "overhead"}) {
    EXPECT_TRUE(summary[2][name].is_null()) << name;
  }
}

TEST(AddTimes, ComparesWithNothingWhereTheFullCacheIsNotThere) {
  std::vector<Json> results = {Answer(0, 1, "7", true)};
  results[0]["policy"] = "h2o";
  results[0]["generated_tokens"] = 100;
  Json summary = *Summarize(results);
  AddTimes(results, {{{"seconds", 1.0}}}, &summary);
  EXPECT_DOUBLE_EQ(summary[0]["tokens_per_s"].get<double>(), 100);
  EXPECT_TRUE(summary[0]["overhead"].is_null());
}

}  // namespace
}  // namespace ebb::cli
