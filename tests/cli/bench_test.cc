// Runs every measurement for a moment, as a user would, on a tiny model: what they print is what
// docs/figures/performance.md and scripts/performance rely on. Figures are not judged here.

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/terminal/subprocess.h"
#include "ebb/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = 0;
  std::string text;           // stdout, or stdout and stderr
  std::vector<json> records;  // the lines of it that are JSON objects
};

class BenchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder();
    const Status status = WriteRandomGguf({.context = 1024}, Model());
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string Model() { return folder_->File("tiny.gguf"); }

  static Outcome Run(const std::vector<std::string>& program) {
    const auto result = RunProcess(program, ProcessOutput::kKeepAlone);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (!result.ok()) return {.exit_code = -1, .text = {}, .records = {}};
    Outcome outcome = {.exit_code = result->exit_code, .text = result->output, .records = {}};
    std::istringstream lines(result->output);
    for (std::string line; std::getline(lines, line);) {
      json record = json::parse(line, nullptr, false);
      if (record.is_object()) outcome.records.push_back(std::move(record));
    }
    return outcome;
  }

  // ebb's records. `arguments` are separated by blanks.
  static std::vector<json> Records(const std::string& arguments) {
    const Outcome outcome = Run(Arguments(arguments + " --json"));
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.text;
    return outcome.records;
  }
  static json Record(const std::string& arguments) {
    const std::vector<json> records = Records(arguments);
    EXPECT_EQ(records.size(), 1u) << arguments;
    return records.empty() ? json::object() : records.front();
  }
  // What ebb wrote to both outputs, and how it ended.
  static Outcome Everything(const std::string& arguments) {
    std::vector<std::string> program = {"sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
    for (const std::string& argument : Arguments(arguments)) program.push_back(argument);
    return Run(program);
  }

  static std::vector<std::string> Arguments(const std::string& text) {
    return WithProgram(Words(text));
  }
  static std::string WithModel(const std::string& command) {
    return command + " -m " + Model() + " --threads 1";
  }

  static TempFolder* folder_;
};

TempFolder* BenchTest::folder_ = nullptr;

void ExpectSpread(const json& record, const std::string& key) {
  ASSERT_TRUE(record.contains(key)) << record.dump();
  const json& spread = record[key];
  EXPECT_GT(spread.at("median").get<double>(), 0) << key;
  EXPECT_LE(spread.at("min").get<double>(), spread.at("median").get<double>()) << key;
  EXPECT_LE(spread.at("median").get<double>(), spread.at("max").get<double>()) << key;
}

void ExpectMachine(const json& record) {
  EXPECT_FALSE(record.at("machine").get<std::string>().empty());
  EXPECT_FALSE(record.at("kernel").get<std::string>().empty());
  EXPECT_EQ(record.at("threads"), 1);
  EXPECT_GE(record.at("others_share").get<double>(), 0);
  EXPECT_LE(record.at("others_share").get<double>(), 1);
}

TEST_F(BenchTest, DecodeReportsEachDepthInOrderWithMassOn) {
  const auto records =
      Records(WithModel("ebb-bench decode --depths 300,0,40 --tokens 2 --repetitions 3"));
  ASSERT_EQ(records.size(), 3u);
  const int depths[] = {0, 40, 300};
  for (size_t i = 0; i < records.size(); ++i) {
    const json& record = records[i];
    EXPECT_EQ(record.at("bench"), "decode");
    EXPECT_EQ(record.at("depth"), depths[i]);
    EXPECT_EQ(record.at("mass"), true);
    EXPECT_EQ(record.at("policy"), "full");
    EXPECT_EQ(record.at("samples").size(), 3u);
    // 2 layers of 2 kv heads; repetitions roll back to the depth.
    EXPECT_EQ(record.at("rows_kept"), 4 * depths[i]);
    EXPECT_EQ(record.at("kv_bytes").get<int64_t>() > 0, depths[i] > 0);
    EXPECT_GT(record.at("peak_rss_bytes").get<int64_t>(), 1 << 20);
    EXPECT_GT(record.at("compute_ms").get<double>(), 0);
    ExpectSpread(record, "tokens_per_s");
    ExpectMachine(record);
  }
}

TEST_F(BenchTest, DecodeWithoutMassSaysSo) {
  const json record =
      Record(WithModel("ebb-bench decode --depth 8 --tokens 1 --repetitions 1 --no-mass"));
  EXPECT_EQ(record.at("mass"), false);
}

TEST_F(BenchTest, MassCostIsMeasuredInTurns) {
  const json record =
      Record(WithModel("ebb-bench decode --depth 40 --tokens 2 --repetitions 3 --mass-cost"));
  EXPECT_EQ(record.at("mass"), true);
  EXPECT_EQ(record.at("rows_kept"), 4 * 40);
  ExpectSpread(record, "without_mass");
  EXPECT_LE(record.at("mass_cost").at("min").get<double>(),
            record.at("mass_cost").at("max").get<double>());
  EXPECT_GT(record.at("mass_cost").at("min").get<double>(), -1);
}

TEST_F(BenchTest, APolicyIsMeasuredInTurnsWithAFullCacheOfAsManyRows) {
  const json record = Record(WithModel(
      "ebb-bench decode --generate 400 --policy streaming --budget 40 --sinks 4 --tokens 8 "
      "--repetitions 3 --against-full"));
  EXPECT_EQ(record.at("rows_kept"), 4 * 40);
  EXPECT_EQ(record.at("full_cache_rows"), 4 * 40);
  ExpectSpread(record, "full_cache");
  ExpectSpread(record, "ratio");
}

TEST_F(BenchTest, DecodeOfSeveralSequencesCountsTheirTokensTogether) {
  const json record =
      Record(WithModel("ebb-bench decode --depth 16 --tokens 4 --repetitions 2 --sequences 3"));
  EXPECT_EQ(record.at("sequences"), 3);
  EXPECT_EQ(record.at("rows_kept"), 3 * 4 * 16);
  ExpectSpread(record, "tokens_per_s");
}

TEST_F(BenchTest, GenerationUnderAPolicyKeepsMemoryFlat) {
  const json record = Record(
      WithModel("ebb-bench decode --generate 600 --tokens 8 --repetitions 4 --policy streaming "
                "--sinks 4 --window 60"));
  EXPECT_EQ(record.at("depth"), 600);
  EXPECT_EQ(record.at("policy_options"), json({{"sinks", 4}, {"window", 60}}));
  EXPECT_LT(record.at("rows_kept").get<int>(), 4 * 200);
  const json& timeline = record.at("timeline");
  ASSERT_EQ(timeline.size(), 16u);
  EXPECT_EQ(timeline.back().at("tokens"), 600 - 8 * 4);
  EXPECT_GT(timeline.back().at("rss_bytes").get<int64_t>(), 0);
  EXPECT_GT(timeline.back().at("tokens_per_s").get<double>(), 0);
  EXPECT_LE(timeline.back().at("kv_bytes").get<int64_t>(),
            2 * timeline[4].at("kv_bytes").get<int64_t>());
  ExpectSpread(record, "tokens_per_s");
}

TEST_F(BenchTest, PrefillReportsEachDepth) {
  const auto records = Records(WithModel("ebb-bench prefill --prompt 32 --depth 0,64 --reps 2"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].at("depth"), 64);
  for (const json& record : records) {
    EXPECT_EQ(record.at("bench"), "prefill");
    EXPECT_EQ(record.at("prompt"), 32);
    EXPECT_EQ(record.at("samples").size(), 2u);
    ExpectSpread(record, "tokens_per_s");
    ExpectMachine(record);
  }
}

TEST_F(BenchTest, AttentionReportsItsShareOfTheLimit) {
  const json dense = Record("ebb-bench attention --depth 256 --threads 1 --repetitions 1");
  EXPECT_EQ(dense.at("layout"), "dense");
  EXPECT_EQ(dense.at("rows_kept"), 256);
  const json kept =
      Record(WithModel("ebb-bench attention --depth 256 --keep 25% --repetitions 1 --kv-type f32"));
  EXPECT_EQ(kept.at("layout"), "scattered");
  EXPECT_EQ(kept.at("rows_kept"), 64);
  // The model's shape: 2 layers, 2 kv heads, 64 floats of key and of value.
  EXPECT_EQ(kept.at("bytes_per_step"), 2 * 2 * 64 * 2 * 64 * 4);
  for (const json& record : {dense, kept}) {
    EXPECT_EQ(record.at("bench"), "attention");
    for (const json& rate : {record, record.at("with_mass")}) {
      EXPECT_GT(rate.at("read_gb_s").get<double>(), 0);
      EXPECT_GT(rate.at("share_of_limit").get<double>(), 0);
      EXPECT_GT(rate.at("step_ms").get<double>(), 0);
    }
    EXPECT_GT(record.at("limit_gb_s").get<double>(), 0);
    EXPECT_LT(record.at("max_error").get<double>(), 1e-4);
    ExpectMachine(record);
  }
}

TEST_F(BenchTest, MemoryReportsBandwidth) {
  const json record = Record("ebb-bench memory --threads 1 --bytes 4MiB --repetitions 2");
  EXPECT_EQ(record.at("bench"), "memory");
  EXPECT_GT(record.at("read_gb_s").get<double>(), 0);
  EXPECT_GT(record.at("copy_gb_s").get<double>(), 0);
  ExpectMachine(record);
}

TEST_F(BenchTest, ProductsReportEveryTypeThatWasAskedFor) {
  const std::string small =
      "ebb-bench products --rows 128 --columns 512 --bytes 1MiB --batch 4 --repetitions 2";
  const json record = Record(small + " --types q4_K,F16,q8_0 --threads 1");
  EXPECT_EQ(record.at("bench"), "products");
  ExpectMachine(record);
  ASSERT_EQ(record.at("types").size(), 3u);
  EXPECT_EQ(record["types"][0]["type"], "q4_K");
  EXPECT_EQ(record["types"][1]["type"], "f16");
  for (const json& rate : record["types"]) {
    EXPECT_GT(rate.at("read_gb_s").get<double>(), 0) << rate;
    EXPECT_GT(rate.at("gflop_s").get<double>(), 0) << rate;
    EXPECT_GE(rate.at("bits_per_weight").get<double>(), 4.5) << rate;
  }
  // Threads divide the rows, not the sums.
  const json two = Record(small + " --types q4_K,F16,q8_0 --threads 2");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(two["types"][i]["hash"], record["types"][i]["hash"]) << record["types"][i];
  }
  EXPECT_GT(Record(small).at("types").size(), 10u);
  const Outcome unknown = Everything(small + " --types q9_K");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("unknown type \"q9_K\"; there are f32, f16, "));
  EXPECT_EQ(Everything("ebb-bench products --columns 300").exit_code, 2);
}

TEST_F(BenchTest, ThreadsAreAsManyAsTheAffinityMaskHasCoresUnlessToldOtherwise) {
  const auto on_one_cpu = [](const std::string& arguments) {
    std::vector<std::string> program = {"taskset", "-c", std::to_string(AllowedCpus().front())};
    for (const std::string& argument : Arguments(arguments + " --json --quiet")) {
      program.push_back(argument);
    }
    const Outcome outcome = Run(program);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.records.empty() ? json::object() : outcome.records.front();
  };
  const std::string memory = "ebb-bench memory --bytes 4MiB --repetitions 1";
  const std::string decode = "ebb-bench decode --depths 0 --tokens 2 --repetitions 1 -m " + Model();
  for (const std::string& bench : {memory, decode}) {
    const json record = on_one_cpu(bench);
    ExpectMachine(record);
    EXPECT_THAT(record.at("machine").get<std::string>(), HasSubstr(", 1 core")) << bench;
    EXPECT_EQ(on_one_cpu(bench + " --threads 2").at("threads"), 2) << bench;
    EXPECT_EQ(Record(bench).at("threads"), AvailableProcessors().threads) << bench;
  }
}

TEST_F(BenchTest, MemoryTakesWhatOtherMeasurementsTakeAndListsWhatHasAnEffect) {
  const json record = Record(
      WithModel("ebb-bench memory --bytes 4MiB --repetitions 1 --seed 3 --kv-type f32 --quiet"));
  EXPECT_EQ(record.at("bench"), "memory");
  ExpectMachine(record);
  const std::string help = Everything("ebb-bench memory --help").text;
  EXPECT_THAT(help, HasSubstr("without any effect here: -m, -hf, --seed, --kv-type, "
                              "--quiet."));
  EXPECT_THAT(help, HasSubstr("--threads"));
  EXPECT_THAT(help, Not(HasSubstr("--context")));
  for (const std::string bench : {"memory", "attention"}) {
    const Outcome refused = Everything("ebb-bench " + bench + " --context 100");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.text, HasSubstr("unknown option or argument: --context"));
  }
}

TEST_F(BenchTest, BadOptionsAreRefusedWithWhatIsValid) {
  const struct {
    std::string arguments;
    std::string message;
  } cases[] = {
      {WithModel("ebb-bench decode --depth 1020"), "the context has 1024"},
      {WithModel("ebb-bench decode --generate 100"), "expected at least 304"},
      {WithModel("ebb-bench decode --depth 8 --t0 30% --t1 host"), "give --t0 a size"},
      {WithModel("ebb-bench decode --mass-cost --no-mass"), "neither --no-mass nor --generate"},
      {WithModel("ebb-bench decode --generate 400 --against-full"), "a policy that drops rows"},
      {WithModel("ebb-bench decode --against-full --policy streaming --budget 40"), "--generate"},
      {WithModel("ebb-bench decode --depth 1,x"), "expected an integer"},
      {WithModel("ebb-bench decode --sequences 0"), "--sequences"},
      {WithModel("ebb-bench prefill --depth 1000 --prompt 100"), "needs 1100 tokens"},
      {"ebb-bench attention --keep 0%", "expected a percentage"},
      {"ebb-bench attention --keep 100", "expected a percentage"},
      {"ebb-bench memory --bytes lots", "--bytes"},
      {"ebb-bench memory --bytes 10", "at least 1 MiB"},
      {WithModel("ebb-lab fidelity --window-tokens 64"), "expected fewer than the 64"},
      {WithModel("ebb-lab fidelity --window-tokens 1"), "from 2 to"},
      {WithModel("ebb-lab fidelity --window-tokens 2048"), "does not fit the context of 1024"},
      {WithModel("ebb-lab fidelity --window-tokens 100 --windows 5"), "at most 4 windows"},
  };
  for (const auto& bad : cases) {
    const Outcome outcome = Everything(bad.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << bad.arguments;
    EXPECT_THAT(outcome.text, HasSubstr(bad.message)) << bad.arguments;
  }
}

TEST_F(BenchTest, FiguresForPeopleComeWithoutJson) {
  EXPECT_THAT(Everything("ebb-bench memory --threads 1 --bytes 4MiB --repetitions 1").text,
              HasSubstr("GB/s, copy "));
  EXPECT_THAT(Everything(WithModel("ebb-bench decode --depth 4 --tokens 1 --reps 1")).text,
              HasSubstr("decode at depth 4: "));
}

TEST_F(BenchTest, FidelityOfTheFullCacheIsPerfect) {
  const json record = Record(WithModel("ebb-lab fidelity --window-tokens 128 --windows 2"));
  EXPECT_EQ(record.at("policy"), "full");
  EXPECT_EQ(record.at("tokens"), 2 * 64);
  EXPECT_EQ(record.at("windows"), 2);
  EXPECT_TRUE(record.at("text").is_null());
  EXPECT_EQ(record.at("mean_kl"), 0);
  EXPECT_EQ(record.at("max_kl"), 0);
  EXPECT_EQ(record.at("top1"), 1);
  EXPECT_EQ(record.at("not_finite"), 0);
  EXPECT_EQ(record.at("perplexity"), record.at("perplexity_full"));
  EXPECT_THAT(record.at("intervals").at("mean_kl"), ElementsAre(0, 0));
}

TEST_F(BenchTest, FidelityOnATextSeesWhatAPolicyEvicts) {
  const std::string text = folder_->File("text");
  std::ofstream file(text);
  for (int i = 0; i < 100; ++i) file << "word " << i * i << " and ";
  file.close();
  const json record = Record(WithModel("ebb-lab fidelity --policy streaming --sinks 2 --window 16 "
                                       "--window-tokens 200 --tokens 400") +
                             " --text " + text);
  EXPECT_EQ(record.at("tokens"), 2 * (200 - 64));
  EXPECT_GT(record.at("mean_kl").get<double>(), 1e-6);
  EXPECT_GT(record.at("max_kl").get<double>(), record.at("mean_kl").get<double>());
  EXPECT_NE(record.at("perplexity"), record.at("perplexity_full"));
  for (const std::string figure : {"mean_kl", "top1", "perplexity", "perplexity_full"}) {
    const json& interval = record.at("intervals").at(figure);
    EXPECT_LE(interval[0].get<double>(), record.at(figure).get<double>()) << figure;
    EXPECT_GE(interval[1].get<double>(), record.at(figure).get<double>()) << figure;
  }
}

TEST_F(BenchTest, FidelityAloneGivesTheOracleItsReplay) {
  const std::string oracle = " --policy oracle --sinks 2 --window 8 --interval 8 --budget 50%";
  const json record =
      Record(WithModel("ebb-lab fidelity --window-tokens 150 --windows 1") + oracle);
  EXPECT_EQ(record.at("policy"), "oracle");
  EXPECT_EQ(record.at("tokens"), 150 - 64);
  EXPECT_GT(record.at("mean_kl").get<double>(), 0);
  const json tiers =
      Record(WithModel("ebb-lab fidelity --window-tokens 150 --windows 1 --policy oracle") +
             " --window 8 --interval 8 --evict 50% --t1 host");
  EXPECT_GT(tiers.at("mean_kl").get<double>(), 0);
  const std::vector<std::string> commands = {
      "run -p x -n 4", "chat", "ebb-lab profile -p x -n 4", "ebb-bench decode --depth 4 --tokens 1",
      "ebb-lab eval --task pebble --problems 1 --policies oracle --budgets 50% --out " +
          folder_->File("answers")};
  for (const std::string& command : commands) {
    const Outcome outcome =
        Everything(WithModel(command) + (command.starts_with("ebb-lab eval") ? "" : oracle));
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_THAT(outcome.text, HasSubstr("is unknown for text that is still to be generated"))
        << command;
  }
}

TEST_F(BenchTest, FidelityNeedsATextThatIsThereAndLongEnough) {
  EXPECT_THAT(
      Everything(WithModel("ebb-lab fidelity --window-tokens 100 --text /nowhere/text")).text,
      HasSubstr("cannot read /nowhere/text"));
  const std::string text = folder_->File("short");
  std::ofstream(text) << "too short";
  const Outcome outcome =
      Everything(WithModel("ebb-lab fidelity --window-tokens 100") + " --text " + text);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("expected more than 64 tokens"));
}

}  // namespace
}  // namespace ebb::cli
