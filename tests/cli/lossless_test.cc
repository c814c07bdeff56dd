// --lossless and what goes with it, as a user gives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/default_model.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class LosslessTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  static ProgramEnd Run(const std::string& arguments) {
    return RunEbb(
        "run --raw --temp 0.8 --seed 5 --threads 1 -n 150 --ignore-eos --json -p tide -m " +
        model_->path() + " " + arguments);
  }
  static json Record(const ProgramEnd& end) {
    json record = json::parse(LastLine(end.err), nullptr, false);
    EXPECT_TRUE(record.is_object()) << end.err;
    return record;
  }
  static void ExpectRefused(const std::string& arguments, const std::string& why) {
    const ProgramEnd end = Run(arguments);
    EXPECT_NE(end.exit_code, 0) << arguments;
    EXPECT_THAT(end.err, HasSubstr(why)) << arguments;
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> LosslessTest::model_;

TEST_F(LosslessTest, SaysWhatTheFullCacheSaysWhateverDrafts) {
  const ProgramEnd full = Run("");
  ASSERT_EQ(full.exit_code, 0) << full.err;
  const json expected = Record(full);
  EXPECT_FALSE(expected.contains("drafted"));
  for (const std::string draft :
       {"--t1 host", "--t1 none --draft streaming:sinks=2,window=9",
        "--t1 host --policy h2o --budget 12", "--t1 host --t0 20% --window 8 --interval 8",
        "--t1 host --t0 50% --t2 50%:int4 --window 8", "--t1 host --t0 30% --draft select"}) {
    const ProgramEnd end = Run("--lossless --draft-min 4 " + draft);
    EXPECT_EQ(end.out, full.out) << draft;
    const json record = Record(end);
    EXPECT_EQ(record["logits_hash"], expected["logits_hash"]) << draft;
    EXPECT_GT(record["drafted"], 0) << draft;
    EXPECT_LE(record["accepted"], record["drafted"]) << draft;
    EXPECT_GT(record["verify_steps"], 0) << draft;
    EXPECT_TRUE(record.contains("bytes_read_per_token")) << draft;
    EXPECT_EQ(record["rows_evicted"], 0) << draft;
    EXPECT_GE(record["kv_staging_peak_bytes"], record["kv_staging_bytes"]) << draft;
    EXPECT_EQ(record["rows_kept"], expected["rows_kept"]) << draft;
  }
}

TEST_F(LosslessTest, TwoOptionsThatNameTheRowsToReadAreRefused) {
  for (const std::string order :
       {"--draft select:mass=0.3 --t1-read all", "--t1-read select --draft select"}) {
    const ProgramEnd end = Run("--lossless --t1 host " + order);
    EXPECT_EQ(end.exit_code, 2) << order;
    EXPECT_THAT(end.err, HasSubstr("both set which rows of T0 and T1 are read; give one"));
  }
}

TEST_F(LosslessTest, ErrorsOfASelectionNameTheOptionThatWasGiven) {
  const std::string twice = "select:mass=0.5,rows=512,mass=0.9";
  const std::string why =
      "rows read of T1 \"" + twice + "\": \"mass\" is given twice; write select, ";
  ExpectRefused("--lossless --t1 host --draft " + twice, "--draft: " + why);
  ExpectRefused("--t1 host --t1-read " + twice, "--t1-read: " + why);
  ExpectRefused("--policy h2o:sinks=1,sinks=2", "\"sinks\" is given twice");
  ExpectRefused("--lossless --draft streaming:window=8,window=9", "\"window\" is given twice");
  const std::string in_t2 = "select cannot be combined with T2 of 50%";
  ExpectRefused("--lossless --t1 host --t2 50% --draft select", "ebb: --draft select: " + in_t2);
  ExpectRefused("--t1 host --t2 50% --t1-read select", "ebb: --t1-read: " + in_t2);
}

// A cap that the start accepts holds every step of the generation.
TEST_F(LosslessTest, ASelectionsCapOnT0IsCheckedAtTheStart) {
  const std::string model = DefaultModelPath();
  if (model.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  const std::string run = "run --raw --temp 0 -n 450 --ignore-eos --json -p tide -m " + model;
  for (const std::string selection :
       {"--lossless --draft-min 64 --draft select", "--t1-read select"}) {
    const ProgramEnd small = RunEbb(run + " --t0 9MiB " + selection);
    EXPECT_EQ(small.exit_code, 2) << small.err;
    EXPECT_EQ(small.out, "");
    EXPECT_THAT(small.err, HasSubstr("ebb: --t0: 9 MiB are too few"));
    EXPECT_THAT(small.err, HasSubstr("so it needs 10 MiB"));
    const ProgramEnd enough = RunEbb(run + " --t0 10485760 " + selection);
    EXPECT_EQ(enough.exit_code, 0) << enough.err;
    const json t0 = Record(enough)["tiers"][0], t1 = Record(enough)["tiers"][1];
    EXPECT_EQ(t0["peak_bytes"], 10485760);
    EXPECT_GT(t1["rows"], 0);
  }
}

TEST_F(LosslessTest, ADraftsKeysAreItsPolicysOwnWhereItHasThem) {
  const json full = Record(Run(""));
  const json record = Record(Run("--lossless --t1 host --draft h2o:budget=40,sinks=2"));
  EXPECT_EQ(record["logits_hash"], full["logits_hash"]);
}

TEST_F(LosslessTest, DraftsWithThePolicyThatIsNamedLast) {
  const std::string options = "--lossless --t1 host --no-draft-lookup --draft-min 8 --draft-max 8 ";
  const json full = Record(Run(options + "--draft full"));
  EXPECT_EQ(full["policy"], "full");
  for (const char* draft : {"--policy full", "--draft streaming:sinks=2,window=9 --draft full",
                            "--draft streaming:budget=30 --draft full"}) {
    const json record = Record(Run(options + draft));
    EXPECT_EQ(record["policy"], "full") << draft;
    EXPECT_EQ(record["accepted"], full["accepted"]) << draft;
  }
  const json both = Record(
      Run(options + "--draft streaming:sinks=2,window=9 --draft streaming:sinks=2,window=30"));
  const json last = Record(Run(options + "--draft streaming:sinks=2,window=30"));
  EXPECT_EQ(both["accepted"], last["accepted"]);
}

TEST_F(LosslessTest, ReadsT1OncePerVerifyingStep) {
  const json each = Record(Run("--lossless --t1 host --draft full --draft-max 1"));
  const json few = Record(Run("--lossless --t1 host --draft full --draft-min 8"));
  EXPECT_EQ(each["drafted"], 0);
  EXPECT_GT(few["accepted"], 100);
  EXPECT_LT(few["bytes_read_per_token"].get<double>(),
            each["bytes_read_per_token"].get<double>() / 4);
}

TEST_F(LosslessTest, ASessionGoesOn) {
  const std::string file = model_->File("lossless");
  std::filesystem::remove(file);
  const json whole = Record(Run("-n 60"));
  const std::string options =
      " --lossless --t1 host --draft streaming:sinks=2,window=9 --session " + file;
  ASSERT_EQ(Run("-n 30" + options).exit_code, 0);
  const ProgramEnd rest =
      RunEbb("run --raw --temp 0.8 --seed 5 --threads 1 -n 30 --ignore-eos --json -m " +
             model_->path() + options);
  EXPECT_EQ(Record(rest)["logits_hash"], whole["logits_hash"]) << rest.err;
  // A session that keeps every row is not one that forgets.
  const ProgramEnd other = RunEbb("run --raw --threads 1 -n 30 -m " + model_->path() +
                                  " --policy streaming --sinks 2 --window 9 --session " + file);
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("a session of another"));
}

TEST_F(LosslessTest, IsMeasured) {
  const ProgramEnd end = RunEbb(
      "ebb-bench lossless --lossless --t1 host --depth 64 --tokens 16 --repetitions 2 --json "
      "--threads 1 --draft streaming:sinks=2,window=16 --temp 0.5 --repeat-penalty 1.25 -m " +
      model_->path());
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json record = json::parse(end.out);
  EXPECT_EQ(record["temperature"], 0.5);
  EXPECT_EQ(record["repeat_penalty"], 1.25);
  EXPECT_TRUE(record["same_bits"].get<bool>());
  EXPECT_TRUE(record["same_tokens"].get<bool>());
  for (const char* of : {"tokens_per_s", "full", "tiers", "ratio_full", "ratio_tiers"}) {
    EXPECT_GT(record[of]["median"], 0) << of;
  }
  const ProgramEnd told = RunEbb(
      "ebb-bench lossless --lossless --t1 host --depth 64 --tokens 32 --repetitions 2 --json "
      "--threads 1 --accept 1 --draft-min 8 -m " +
      model_->path());
  EXPECT_EQ(json::parse(told.out)["accepted"], json::parse(told.out)["drafted"]) << told.err;
  EXPECT_GT(json::parse(told.out)["drafted"], 0);
  const ProgramEnd close = RunEbb(
      "ebb-bench lossless --lossless --t1 host --depths 64,80 --tokens 32 -m " + model_->path());
  EXPECT_THAT(close.err, HasSubstr("depths further apart"));
}

TEST_F(LosslessTest, AChatSaysWhatTheFullCacheSays) {
  const auto chat = [](const std::string& more) {
    return RunEbb(
        {.arguments = Words("chat --temp 0.8 --seed 3 --threads 1 --ignore-eos -n 25 -m " +
                            model_->path() + " " + more),
         .input = "one\ntwo\n/reset\nthree\nfour\n"});
  };
  const ProgramEnd full = chat("");
  ASSERT_EQ(full.exit_code, 0) << full.err;
  EXPECT_GT(full.out.size(), 60U);
  for (const std::string draft :
       {"--t1 host --draft streaming:sinks=2,window=9 --draft-min 4", "--t1 host --draft-min 20",
        "--t1 none --draft h2o:budget=40,sinks=2 --draft-min 8 --draft-max 8"}) {
    EXPECT_EQ(chat("--lossless " + draft).out, full.out) << draft;
  }
}

// Figures of /stats are a turn's, in all of their lines.
TEST_F(LosslessTest, AChatCountsEachTurnByItself) {
  const ProgramEnd end = RunEbb(
      {.arguments = Words("chat --temp 0 --threads 1 --ignore-eos -n 20 --lossless --t1 host "
                          "--draft-min 4 --draft full -m " +
                          model_->path()),
       .input = "one\n/stats\ntwo\n/stats\nthree\n/stats\n"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  std::istringstream lines(end.err);
  int turns = 0;
  for (std::string line; std::getline(lines, line);) {
    int accepted = 0;
    if (std::sscanf(line.c_str(), "[lossless: %d of", &accepted) != 1) continue;
    ++turns;
    EXPECT_LT(accepted, 20) << line;
  }
  EXPECT_EQ(turns, 3) << end.err;
}

TEST_F(LosslessTest, RefusesWhatMakesNoSense) {
  ExpectRefused("--verify fast", "--verify goes with --lossless");
  ExpectRefused("--draft h2o", "--draft goes with --lossless");
  ExpectRefused("--lossless --verify twice", "expected exact or fast");
  ExpectRefused("--lossless --policy tova --draft h2o", "give one");
  ExpectRefused("--lossless --draft nonsense", "nonsense");
  ExpectRefused("--lossless --draft streaming:window=many", "window");
  ExpectRefused("--lossless --draft h2o:budget=some", "budget");
  ExpectRefused("--lossless --draft-min 9 --draft-max 8", "the smaller number first");
  ExpectRefused("--lossless --draft-max 65", "64");
  ExpectRefused("--lossless --draft-min 0 --draft-max 0", "--draft-max");
  ExpectRefused("--lossless --draft-min -1", "--draft-min");
  ExpectRefused("--lossless --draft streaming_rerotated", "re-rotates keys");
  ExpectRefused("--lossless --memory 1GiB",
                "--memory: cannot be combined with lossless generation");
  ExpectRefused("--lossless --t1 none --t0 2MiB", "a cap on T0 needs a T1 in a lossless session");
  const ProgramEnd end = RunEbb("ebb-bench lossless -m " + model_->path());
  EXPECT_THAT(end.err, HasSubstr("--lossless is missing"));
}

}  // namespace
}  // namespace ebb
