// ebb fit and --memory, as a user runs them: what is foretold is held against what a run takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/base/sanitizers.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/default_model.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class FitTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  static ProgramEnd Fit(const std::string& arguments) {
    return RunEbb("fit --threads 1 --quiet -m " + model_->path() + " " + arguments);
  }
  static json Record(const std::string& arguments) {
    const ProgramEnd end = Fit("--json " + arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return Parsed(end.out);
  }
  static json Parsed(const std::string& text) {
    json record = json::parse(LastLine(text), nullptr, false);
    EXPECT_TRUE(record.is_object()) << text;
    return record;
  }
  // The text with its lines joined.
  static std::string Joined(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    return text;
  }
  // -n: tokens after a prompt of one.
  static ProgramEnd Run(const std::string& command) {
    return RunEbb("run --raw --temp 0 --threads 1 --ignore-eos -p a " + command);
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> FitTest::model_;

TEST_F(FitTest, TheRecordHasEverySettingWithItsBytes) {
  const json record = Record("--context 200");
  EXPECT_EQ(record["context"], 200);
  EXPECT_GT(record["measured"]["memory_gb_s"].get<double>(), 0);
  EXPECT_EQ(record["gentlest"], "full");
  ASSERT_EQ(record["settings"].size(), 8u);
  for (const json& setting : record["settings"]) {
    EXPECT_TRUE(setting["fits"].get<bool>()) << setting;
    EXPECT_GE(setting["largest_context"], 200) << setting;
    EXPECT_GE(setting["most_requests"], 1) << setting;
    uint64_t sum = 0;
    for (const auto& [name, bytes] : setting["bytes"].items()) {
      if (name != "t1_disk") sum += bytes.get<uint64_t>();
    }
    EXPECT_EQ(setting["memory_bytes"], sum) << setting;
    EXPECT_EQ(setting["disk_bytes"], setting["bytes"]["t1_disk"]) << setting;
  }
  EXPECT_EQ(record["settings"][0]["setting"], "full");
}

TEST_F(FitTest, ADeviceHoldsWeightsAndT0) {
  const json record = Record("--context 200 --device ggml-cpu");
  EXPECT_EQ(record["gentlest"], "full");
  for (const json& setting : record["settings"]) {
    EXPECT_GT(setting["device_memory_bytes"], setting["bytes"]["weights"]) << setting;
  }
  EXPECT_EQ(record["settings"][1]["setting"], "--t0 50% --t1 host");
  EXPECT_THAT(Fit("--context 200 --device ggml-cpu").out, HasSubstr("device"));
  // What is foretold holds what a run takes.
  const ProgramEnd run = Run("--device ggml-cpu --memory 64MiB -n 190 --json -m " + model_->path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json plan = Parsed(run.err.substr(0, run.err.find('\n')));
  const json end = Parsed(run.err);
  EXPECT_EQ(plan["device_limit_bytes"], 64 << 20);
  EXPECT_LE(plan["device_memory_bytes"], 64 << 20);
  const json& device = end["device"];
  EXPECT_LE(device["row_bytes"].get<int64_t>() + device["weight_bytes"].get<int64_t>(), 64 << 20);
  EXPECT_EQ(Run("--device ggml-cpu --memory 1MiB -n 190 -m " + model_->path()).exit_code, 3);
}

TEST_F(FitTest, TheTableNamesWhatWasMeasuredAndWhatWasComputed) {
  const ProgramEnd end = Fit("--context 200");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part :
       {"measured: memory ", "computed: all else", "--t0 50% --t1 file", "--t1 none --t2 old:int4",
        "--evict 10%", "The gentlest that fits: full"}) {
    EXPECT_THAT(Joined(end.out), HasSubstr(part));
  }
}

TEST_F(FitTest, TheTextHasEightyColumnsAndEndsWithACommandThatRuns) {
  const struct {
    std::string arguments;
    std::string command;
  } cases[] = {
      {"--context 200", "ebb chat --threads 1 -m " + model_->path() + " --context 200"},
      {"--context 200 --prompt-tokens 50 --memory 4GiB",
       "ebb run --threads 1 -m " + model_->path() +
           " --context 200 --memory 4GiB -n 150 -f PROMPT.txt"},
      {"--context 200 --t2 50%:int8 --requests 3", "ebb serve --threads 1 -m " + model_->path() +
                                                       " --context 200 --t2 50%:int8 "
                                                       "--max-running 3"},
      {"--context 200 --policy h2o --t1 file:/tmp", "ebb chat --threads 1 -m " + model_->path() +
                                                        " --context 200 --policy h2o "
                                                        "--t1 file:/tmp"}};
  for (const auto& [arguments, command] : cases) {
    const ProgramEnd end = Fit(arguments);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    std::istringstream lines(end.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    std::string last = end.out.substr(end.out.find("\n\nebb ") + 2);
    last.pop_back();
    for (size_t at = 0; (at = last.find(" \\\n   ")) != std::string::npos;) last.erase(at, 6);
    EXPECT_EQ(last, command);
  }
}

TEST_F(FitTest, WhereNothingFitsAShorterContextIsSuggested) {
  const ProgramEnd end = Fit("--context 250 --requests 5000 --memory 512MiB");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, HasSubstr("no setting of the tiers fits 250 tokens into 512 MiB"));
  EXPECT_EQ(end.out.find("no setting of the tiers"), std::string::npos);
  EXPECT_THAT(Joined(end.out), testing::ContainsRegex("[0-9]+ tokens fit with .*:  ebb serve "));
  EXPECT_THAT(Joined(end.out), testing::ContainsRegex("--max-running 5000.* --context [0-9]+ $"));
}

TEST_F(FitTest, MeasuredStepsPredictTokensPerSecond) {
  const json record = Record("--context 200 --measure");
  const json& measured = record["measured"];
  EXPECT_GT(measured["step_s"].get<double>(), 0);
  for (const char* rows :
       {"full_rows_gb_s", "int8_rows_gb_s", "int4_rows_gb_s", "int3_rows_gb_s"}) {
    EXPECT_GT(measured[rows].get<double>(), 0) << rows;
  }
  for (const json& setting : record["settings"]) {
    EXPECT_GT(setting["tokens_per_s"].get<double>(), 0) << setting;
    EXPECT_LT(setting["tokens_per_s"].get<double>(), 1 / measured["step_s"].get<double>());
  }
  EXPECT_THAT(Joined(Fit("--context 200 --measure").out), HasSubstr("tokens/s from a step of "));
  EXPECT_THAT(Joined(Fit("--context 200").out),
              HasSubstr("(--measure: what this machine reaches)"));
  const ProgramEnd on_device = Fit("--context 200 --measure --device ggml-cpu");
  EXPECT_EQ(on_device.exit_code, 2);
  EXPECT_THAT(on_device.err, HasSubstr("--measure: the speed of a device is not predicted"));
}

TEST_F(FitTest, WhatWasAskedForComesFirstAndDecides) {
  const json record = Record("--context 200 --t2 50%:int8");
  ASSERT_EQ(record["settings"].size(), 9u);
  EXPECT_EQ(record["settings"][0]["setting"], "as asked for");
  const ProgramEnd end = Fit("--context 200 --t2 50%:int8 --memory 1MiB");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, StartsWith("ebb: the setting takes "));
}

TEST_F(FitTest, NothingThatFitsIsALimit) {
  const ProgramEnd end = Fit("--context 200 --memory 1MiB");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, HasSubstr("no setting of the tiers fits 200 tokens into 1 MiB"));
}

TEST_F(FitTest, WhatRunRefusesIsRefused) {
  const struct {
    std::string arguments;
    std::string message;
  } cases[] = {{"--t0 50KiB", "T0: a cap must be at least 2 MiB; got 50 KiB"},
               {"--device ggml-cpu --t1 file --t1-mode compute", "T1 mode compute: rows of a file"},
               {"--device ggml-cpu:memory=1MiB", "a memory of 1 MiB"},
               {"--context 100000", "100000"}};
  for (const auto& [arguments, message] : cases) {
    const ProgramEnd fit = Fit(arguments);
    const ProgramEnd run = Run("-n 1 -m " + model_->path() + " " + arguments);
    EXPECT_NE(fit.exit_code, 0) << arguments;
    EXPECT_EQ(fit.exit_code, run.exit_code) << arguments;
    EXPECT_THAT(fit.err, HasSubstr(message));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(fit.out, "");
  }
}

// The full cache fits, and needs no policy.
TEST_F(FitTest, MemoryRefusesAPolicyThatCannotRankRows) {
  const std::string run = "--memory 1GiB -n 2 -m " + model_->path();
  EXPECT_EQ(Run(run + " --policy lag_kv").exit_code, 0);
  const struct {
    std::string policy;
    std::string message;
  } cases[] = {{"--policy nosuch", "unknown policy \"nosuch\""},
               {"--scorer nosuch", "unknown scorer \"nosuch\""},
               {"--policy lag_kv:nokey=3", "nokey"},
               {"--policy quest", "--policy quest: selects rows within a step"}};
  for (const auto& [policy, message] : cases) {
    const ProgramEnd end = Run(run + " " + policy);
    EXPECT_EQ(end.exit_code, 2) << policy;
    EXPECT_THAT(end.err, HasSubstr(message));
    const ProgramEnd fit = Fit("--context 200 " + policy);
    EXPECT_EQ(fit.exit_code, 2) << policy;
    EXPECT_THAT(fit.err, HasSubstr(message));
  }
}

// Selective reading and T2 of all old rows place rows by their position.
TEST_F(FitTest, APolicyLeavesTheSettingsWhoseRowsItRanks) {
  for (const char* policy : {"--policy h2o", "--window 16", "--scorer attention"}) {
    const json record = Record(std::string("--context 200 ") + policy);
    std::string names;
    for (const json& setting : record["settings"]) {
      names += setting["setting"].get<std::string>() + "; ";
    }
    EXPECT_EQ(names, "full; --t0 50% --t1 file; --t0 100% --t1 none --evict 10%; ") << policy;
  }
}

// Tiers have caps of their own, and --memory may choose tiers.
TEST_F(FitTest, ACapOnTheCacheGoesWithoutMemory) {
  const ProgramEnd fit = Fit("--context 200 --kv-cap 64MiB");
  EXPECT_EQ(fit.exit_code, 2);
  EXPECT_EQ(fit.out, "");
  EXPECT_THAT(fit.err, StartsWith("ebb: --kv-cap: limits the full cache alone"));
  const ProgramEnd run = Run("-n 2 --memory 1GiB --kv-cap 64MiB -m " + model_->path());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, StartsWith("ebb: --memory: cannot be combined with a cap on the cache"));
}

TEST_F(FitTest, TiersThatDoNotFitNameTheLimit) {
  const ProgramEnd run = Run("-n 100 --memory 1MiB --t0 50% --t1 file -m " + model_->path());
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("--memory: the setting takes "));
  EXPECT_THAT(run.err, HasSubstr(" MiB of memory, and the limit is 1 MiB"));
}

TEST_F(FitTest, MoreRequestsTakeMore) {
  const json one = Record("--context 250")["settings"][0];
  const json ten = Record("--context 250 --requests 60")["settings"][0];
  EXPECT_GT(ten["bytes"]["t0"], one["bytes"]["t0"]);
  EXPECT_EQ(ten["bytes"]["weights"], one["bytes"]["weights"]);
}

TEST_F(FitTest, RunTakesTheFullCacheWhereItFitsAndSaysSo) {
  const ProgramEnd plain = Run("-n 20 --quiet -m " + model_->path());
  const ProgramEnd end = Run("-n 20 --memory 4GiB -m " + model_->path());
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, plain.out);
  EXPECT_THAT(end.err, StartsWith("[planned: "));
  EXPECT_THAT(end.err, HasSubstr("tiers: full]"));
  // A policy gives scores to tiers; where none are needed it lets no row go.
  const ProgramEnd named =
      Run("-n 20 --memory 4GiB --policy h2o --window 8 --json -m " + model_->path());
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(json::parse(LastLine(named.err))["policy"], "full");
}

// A policy with a budget evicts in every setting of the table, which varies format and place.
TEST_F(FitTest, ABudgetIsCounted) {
  const std::string model = DefaultModelPath();
  if (model.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  const auto rows_of = [&](const std::string& policy) {
    const ProgramEnd end =
        RunEbb("fit --json --quiet --context 2048 --prompt-tokens 64 -m " + model + " " + policy);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    std::map<std::string, uint64_t> rows;
    const json record = json::parse(end.out);
    for (const json& row : record["settings"]) {
      const json& bytes = row["bytes"];
      rows[row["setting"]] = bytes["t0"].get<uint64_t>() + bytes["t1_disk"].get<uint64_t>() +
                             bytes["t2"].get<uint64_t>();
    }
    return rows;
  };
  const auto all = rows_of(""), some = rows_of("--policy h2o --budget 256");
  ASSERT_EQ(some.count("full"), 1u);
  EXPECT_EQ(some.count("--t1 none --evict 10%"), 0u);
  EXPECT_GT(some.size(), 3u);
  for (const auto& [setting, bytes] : some) EXPECT_LE(bytes, all.at(setting)) << setting;
  EXPECT_LT(some.at("full"), all.at("full"));
}

TEST_F(FitTest, RunRefusesWhatDoesNotFit) {
  for (const char* more : {"", " --t0 50%", " --evict 10%"}) {
    const ProgramEnd end = Run("-n 20 --memory 1MiB -m " + model_->path() + more);
    EXPECT_EQ(end.exit_code, 3) << more;
    EXPECT_EQ(end.out, "") << more;
  }
}

TEST_F(FitTest, ChatChecksBeforeTheFirstTurn) {
  ProgramRun run = {.arguments = Words("chat --threads 1 --memory 1MiB -m " + model_->path())};
  EXPECT_EQ(RunEbb(run).exit_code, 3);
}

TEST_F(FitTest, FidelityMeasuresTheSettingThatMemoryChooses) {
  const std::string fidelity =
      "ebb-lab fidelity --threads 1 --window-tokens 100 --windows 1 -m " + model_->path();
  const ProgramEnd end = RunEbb(fidelity + " --memory 4GiB");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, StartsWith("[planned: "));
  EXPECT_THAT(end.err, HasSubstr("for 100 tokens"));
  EXPECT_EQ(RunEbb(fidelity + " --memory 1MiB").exit_code, 3);
}

// The bar: within 5 %, as the process itself is seen from outside.
TEST_F(FitTest, APeakIsForetoldWithinFivePercent) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  const std::string model = DefaultModelPath();
  if (model.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  for (const std::string setting :
       {"", "--t0 30%", "--t1 none --t2 50%:int8", "--kv-type q4", "--evict 10%"}) {
    const json fit = Parsed(RunEbb("fit --json --quiet --threads 1 --context 300 --prompt-tokens 1 "
                                   "-m " +
                                   model + " " + setting)
                                .out);
    const json run = Parsed(Run("-n 300 --json -m " + model + " " + setting).err);
    const double foretold = fit["settings"][0]["memory_bytes"];
    const double measured = run["peak_rss_bytes"];
    EXPECT_NEAR(foretold / measured, 1, 0.05) << setting;
  }
}

// The limits are those that the compressed settings need.
TEST_F(FitTest, ChatTakesTheLastLineAndChoosesTheSameTiers) {
  const std::string model = DefaultModelPath();
  if (model.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  const std::string fit = "fit --quiet --threads 1 -m " + model;
  const json all = Parsed(RunEbb(fit + " --json").out);
  for (const size_t row : {0, 2, 3, 4}) {
    const json& setting = all["settings"][row];
    const std::string memory = std::to_string(setting["memory_bytes"].get<uint64_t>() + (1 << 20));
    const ProgramEnd end = RunEbb(fit + " --memory " + memory);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(Joined(end.out), HasSubstr("The gentlest that fits: " +
                                           setting["setting"].get<std::string>() + ". To run it"));
    std::string last = end.out.substr(end.out.find("\n\nebb ") + 6);
    for (size_t at = 0; (at = last.find(" \\\n")) != std::string::npos;) last.erase(at, 2);
    const ProgramEnd chat = RunEbb(ProgramRun{.arguments = Words(last)});
    EXPECT_EQ(chat.exit_code, 0) << last << chat.err;
    EXPECT_THAT(chat.err, HasSubstr(fmt::format("for {} tokens", all["context"].get<int>())));
    EXPECT_THAT(chat.err, HasSubstr("tiers: " + setting["setting"].get<std::string>() + "]"));
  }
}

TEST_F(FitTest, RunKeepsToItsMemoryByAHarderSetting) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  const std::string model = DefaultModelPath();
  if (model.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  // ggml's layouts of the weights and its buffers differ by processor: the limit is what int4
  // needs.
  const json fit = Parsed(
      RunEbb("fit --json --quiet --threads 1 --context 1201 --prompt-tokens 1 -m " + model).out);
  const json& int4 = fit["settings"][3];
  ASSERT_EQ(int4["setting"], "--t1 none --t2 old:int4");
  const uint64_t memory = int4["memory_bytes"].get<uint64_t>() + (1 << 20);
  ASSERT_LT(memory, fit["settings"][0]["memory_bytes"].get<uint64_t>());
  const ProgramEnd end = Run(fmt::format("-n 1200 --memory {} --json -m {}", memory, model));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, StartsWith("{\"tiers_setting\":\"--t"));
  EXPECT_LE(Parsed(end.err)["peak_rss_bytes"].get<uint64_t>(), memory);
}

}  // namespace
}  // namespace ebb
