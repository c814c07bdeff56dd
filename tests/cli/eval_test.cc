// What `ebb-lab eval` asks and writes.
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/eval_fixture.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_F(EvalTest, EveryGridOfThePapersOpens) {
  int num_grids = 0;
  for (const auto& entry : std::filesystem::directory_iterator(EBB_SOURCE_DIR "/grids")) {
    if (entry.path().extension() != ".json") continue;
    ++num_grids;
    const ProgramEnd end =
        RunEbb("ebb-lab eval --task pebble --problems 1 -n 1 --quiet --grid " +
               entry.path().string() + " --out " + Out(entry.path().stem().string()));
    EXPECT_EQ(end.exit_code, 0) << entry.path() << end.err;
  }
  EXPECT_GE(num_grids, 15);
}

TEST_F(EvalTest, PebbleNeedsNoModelFile) {
  const ProgramEnd end =
      RunEbb({.arguments = Words("ebb-lab eval --task pebble --problems 2 -n 8 --quiet --out " +
                                 Out("pebble")),
              .environment = {{"XDG_CACHE_HOME", "/nonexistent"}}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(json::parse(ReadFile(Out("pebble") + "/grid.json"))["model"].get<std::string>(),
              testing::StartsWith("pebble"));
  EXPECT_EQ(Lines(Out("pebble") + "/results.jsonl").size(), 2u);
  // It is a model like any other.
  const ProgramEnd run = RunEbb({.arguments = Words("run -m pebble -n 4 -p three"),
                                 .environment = {{"XDG_CACHE_HOME", "/nonexistent"}}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(EvalTest, WritesALineForEveryAnswerAndCountsEverySetting) {
  const ProgramEnd end = Eval("run", "--json");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::vector<json> lines = Lines(Out("run") + "/results.jsonl");
  ASSERT_EQ(lines.size(), 18u);
  for (const char* key :
       {"problem", "policy", "budget", "seed", "correct", "extracted", "text", "generated_tokens",
        "finish_reason", "peak_kv_bytes", "peak_tokens", "kv_reads"})
    EXPECT_TRUE(lines[0].contains(key)) << key;
  EXPECT_EQ(lines[0]["policy"], "full");
  EXPECT_EQ(lines[6]["policy"], "streaming");
  EXPECT_EQ(lines[6]["budget"], "50%");
  EXPECT_LT(lines[6]["peak_tokens"].get<double>(), lines[0]["peak_tokens"].get<double>());
  // The counts of every setting are printed at the end.
  const json printed = json::parse(end.out);
  ASSERT_EQ(printed.size(), 3u);
  EXPECT_EQ(printed[2]["policy"], "random");
  EXPECT_EQ(printed[2]["n"], 6);
  int right = 0;
  for (const json& line : lines)
    right += line["setting"] == 2 && line["correct"].get<bool>() ? 1 : 0;
  EXPECT_EQ(printed[2]["correct"], right);
  EXPECT_THAT(Eval("table").out, HasSubstr("| streaming 50% sinks=2 | "));
}

TEST_F(EvalTest, SamplesAmongAllTokensWhereItIsAskedTo) {
  const std::string all = "--temp 4 --top-k 0 --top-p 1 --min-p 0";
  ASSERT_EQ(Eval("cut", "--temp 4").exit_code, 0);
  ASSERT_EQ(Eval("all", all).exit_code, 0);
  ASSERT_EQ(Eval("one", "--temp 4 --top-k 1").exit_code, 0);
  ASSERT_EQ(Eval("likely", "--temp 4 --top-k 0 --top-p 1 --min-p 1").exit_code, 0);
  ASSERT_EQ(Eval("greedy").exit_code, 0);
  // Whether an answer is cut tells texts apart well enough: those of a model of random weights hold
  // no answers.
  const auto lengths = [&](const std::string& out) {
    std::vector<json> all_lengths;
    for (const json& line : Lines(Out(out) + "/results.jsonl")) {
      all_lengths.push_back({line["generated_tokens"], line["extracted"], line["peak_tokens"]});
    }
    return all_lengths;
  };
  EXPECT_NE(lengths("cut"), lengths("all"));
  EXPECT_EQ(lengths("one"), lengths("greedy"));
  EXPECT_EQ(lengths("likely"), lengths("greedy"));
  const json asked = json::parse(ReadFile(Out("all") + "/grid.json"));
  EXPECT_EQ(asked["top_k"], 0);
  EXPECT_EQ(asked["top_p"], 1);
  EXPECT_EQ(asked["min_p"], 0);
  const json usual = json::parse(ReadFile(Out("greedy") + "/grid.json"));
  EXPECT_EQ(usual["top_k"], 40);
  EXPECT_EQ(usual["min_p"], 0.05f);
}

TEST_F(EvalTest, AGridFileNamesSettings) {
  const std::string grid = model_.File("grid.json");
  std::ofstream(grid) << R"({"policies": ["attention"], "seeds": [1, 2],
    "settings": [{"t0": "30%"}, {"t0": "70%", "t1": "host", "evict": "20%"}]})";
  const std::string common = "ebb-lab eval -n 30 --quiet -m " + model_.path() + " --task " + task_ +
                             ":gsm8k --sinks 1 --window 2 --interval 4 --out ";
  const ProgramEnd end = RunEbb(common + Out("grid") + " --temp 0.5 --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::vector<json> lines = Lines(Out("grid") + "/results.jsonl");
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[0]["tiers"], "t0=30% evict=0%");
  EXPECT_EQ(lines[6]["seed"], 2);
  EXPECT_EQ(lines[23]["tiers"], "t0=70% t1=host evict=20%");
  EXPECT_EQ(lines[0]["rows_evicted"], 0);
  EXPECT_GT(lines[23]["rows_evicted"].get<int>(), 0);
}

// Opening a named pipe would wait for its other end.
TEST_F(EvalTest, FilesThatAreReadWholeAreRegularFiles) {
  const std::string pipe = model_.File("pipe.jsonl");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string common =
      "ebb-lab eval -n 8 --quiet -m " + model_.path() + " --out " + Out("pipe");
  for (const std::string& more :
       {" --task pebble --problems 1 --grid " + pipe, " --task " + pipe + ":gsm8k"}) {
    const ProgramEnd end = RunEbb(common + more);
    EXPECT_EQ(end.exit_code, 2) << more;
    EXPECT_THAT(end.err, HasSubstr("cannot read " + pipe + ": it is not a regular file")) << more;
  }
}

TEST_F(EvalTest, WhatComesOutTheSameIsRunOnce) {
  const std::string grid = model_.File("seeds.json");
  std::ofstream(grid) << R"({"policies": ["full", "random"], "seeds": [1, 2]})";
  const std::string common =
      "ebb-lab eval -n 8 --quiet -m " + model_.path() + " --task " + task_ + ":gsm8k --window 2 ";
  ASSERT_EQ(RunEbb(common + "--budgets 50% --out " + Out("seeds") + " --grid " + grid).exit_code,
            0);
  json summary = SettingsOf("seeds");
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0]["n"], 6);   // greedy, and nothing draws lots
  EXPECT_EQ(summary[1]["n"], 12);  // of rows
  // A setting may bring the scorer that does.
  std::ofstream(grid) << R"({"policies": ["attention"], "seeds": [1, 2],
    "settings": [{"scorer": "random", "t0": "50%", "evict": "20%"}]})";
  ASSERT_EQ(RunEbb(common + "--interval 4 --out " + Out("lots") + " --grid " + grid).exit_code, 0);
  summary = SettingsOf("lots");
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary[0]["n"], 12);
  ProgramRun run = {.arguments = Words(common + "--out " + Out("budgets"))};
  run.arguments.insert(run.arguments.end(),
                       {"--policies", "streaming , full", "--budgets", "50%, 50.0%"});
  const ProgramEnd end = RunEbb(run);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  summary = SettingsOf("budgets");
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0]["budget"], "50%");
  EXPECT_EQ(summary[1]["policy"], "full");
}

TEST_F(EvalTest, WhatRoundsOtherwiseIsASettingOfItsOwn) {
  const std::string grid = model_.File("inexact.json");
  std::ofstream(grid) << R"({"policies": ["attention"],
    "settings": [{"t0": "50%"}, {"t0": "50%"}, {"t0": "50%", "t1-mode": "compute"}]})";
  const ProgramEnd end = RunEbb(
      "ebb-lab eval -n 8 --quiet --sinks 1 --window 2 --interval 4 -m " + model_.path() +
      " --task " + task_ + ":gsm8k --device ggml-cpu --out " + Out("inexact") + " --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json summary = SettingsOf("inexact");
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0]["tiers"], "t0=50% evict=0%");
  EXPECT_EQ(summary[1]["tiers"], "t1-mode=compute t0=50% evict=0%");
}

// A row that evicts is not called `full`.
TEST_F(EvalTest, TiersThatEvictAreCalledByTheirScorer) {
  const std::string grid = model_.File("names.json");
  std::ofstream(grid) << R"({"settings": [{}, {"t0": "50%"}, {"t0": "50%", "evict": "20%"},
    {"t0": "50%", "evict": "20%", "scorer": "h2o"}, {"t0": "50%", "t2": "20%"}]})";
  const ProgramEnd end =
      RunEbb("ebb-lab eval -n 8 --quiet --problems 1 -m " + model_.path() + " --task " + task_ +
             ":gsm8k --out " + Out("names") + " --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  std::vector<std::string> policies;
  for (const json& setting : SettingsOf("names")) policies.push_back(setting["policy"]);
  EXPECT_THAT(policies, testing::ElementsAre("full", "full", "lag_kv", "h2o", "attention"));
}

TEST_F(EvalTest, SettingsThatDifferInOneOptionAreCountedApart) {
  const std::string grid = model_.File("windows.json");
  std::ofstream(grid) << R"({"policies": ["attention"], "settings": [{"t0": "50%", "evict": "10%",
    "window": 2}, {"t0": "50%", "evict": "10%", "window": 8}]})";
  const std::string common = "ebb-lab eval -n 12 --quiet -m " + model_.path() + " --task " + task_ +
                             ":gsm8k --sinks 1 --interval 4 --out ";
  const ProgramEnd end = RunEbb(common + Out("windows") + " --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const size_t num_lines = Lines(Out("windows") + "/results.jsonl").size();
  const json summary = SettingsOf("windows");
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0]["options"], "sinks=1 window=2 interval=4");
  EXPECT_EQ(summary[1]["options"], "sinks=1 window=8 interval=4");
  for (const json& record : summary) EXPECT_EQ(record["n"], num_lines / 2);
}

TEST_F(EvalTest, BadInputIsRefusedBeforeAnythingIsWritten) {
  const std::string grid = model_.File("grid.json");
  const std::string start =
      "ebb-lab eval --quiet -m " + model_.path() + " --out " + Out("bad") + " ";
  const auto refuses = [&](const std::string& arguments, const std::string& words) {
    const ProgramEnd end = RunEbb(start + arguments);
    EXPECT_EQ(end.exit_code, 2) << arguments << ": " << end.err;
    EXPECT_THAT(end.err, HasSubstr(words)) << arguments;
    EXPECT_FALSE(std::filesystem::exists(Out("bad"))) << arguments;
  };
  const std::string task = "--task " + task_ + ":gsm8k ";
  refuses(task + "--policies nonsense", "nonsense");
  refuses(task + "--policies streaming --budgets 3q", "3q");
  refuses(task + "--policies streaming --budgets 2 --sinks 4", "streaming at 2");
  refuses(task + "--batch 6", "multiple of 4");
  refuses(task + "--batch 4 --kv-cap 8MiB", "caps");
  refuses(task + "--batch 4 --lossless", "lossless");
  refuses(task + "--shard 4/4", "--shard");
  refuses(task + "--shard 1", "--shard");
  refuses(task + "--samples 3", "--temp");
  refuses(task + "--top-k -1", "--top-k: expected ");
  refuses(task + "--top-k many", "found \"many\"");
  refuses(task + "--top-p 1.5", "--top-p: expected ");
  refuses(task + "--min-p 1.5", "--min-p: expected ");
  refuses(task + "--min-p -0.1", "--min-p: expected ");
  refuses(task + "--evict 10% --policies attention --budgets 50%",
          "both say how many rows are evicted");
  refuses("--task pebble --problems 0", "no end");
  refuses("--task pebble --prompt-preset dms", "one way only");
  refuses(task + "--prompt-preset nonsense", "nonsense");
  refuses(task + "--policy h2o", "--policies");
  refuses(task + "--policies h2o --budget 25%", "--budgets");
  refuses("--task " + task_ + ":nonsense", "nonsense");
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"[", "no JSON"},
           {"[]", "one object"},
           {R"({"polices": []})", "polices"},
           {R"({"policies": "full"})", "list of texts"},
           {R"({"seeds": [-1]})", "numbers from 0"},
           {R"({"settings": [{"colour": "red"}]})", "colour"},
           {R"({"settings": [{"policy": "random"}]})", "lists outside"},
           {R"({"settings": [{"budget": "5%"}]})", "lists outside"},
           {R"({"settings": [{"t0": "much"}]})", "t0"}}) {
    std::ofstream(grid) << text;
    refuses(task + "--grid " + grid, words);
  }
}

TEST_F(EvalTest, ErrorsAloneAreNoResult) {
  const ProgramEnd end = Eval("errors", "--context 8");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.err, HasSubstr("all 18 answers ended in an error; the first: "));
  const auto lines = Lines(Out("errors") + "/results.jsonl");
  EXPECT_EQ(lines.size(), 18U);
  EXPECT_TRUE(lines[0].contains("error"));
}

TEST_F(EvalTest, AFileThatIsNotThereIsNamed) {
  const ProgramEnd end = RunEbb("ebb-lab eval --quiet -m " + model_.path() +
                                " --task nowhere.jsonl:gsm8k --out " + Out("x"));
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("nowhere.jsonl"));
}

// Lossless answers are the full cache's, and repeat to the last byte, counts of rows read among
// them.
TEST_F(EvalTest, LosslessSettingsAnswerAsTheFullCacheDoes) {
  const std::string grid = model_.File("lossless.json");
  std::ofstream(grid) << R"({"policies": ["streaming"], "settings": [{},
      {"lossless": true, "t1": "none"}, {"lossless": true, "t1": "none", "verify": "fast"}]})";
  const std::string common = "ebb-lab eval -n 24 --temp 0.8 --quiet --threads 1 -m " +
                             model_.path() + " --task " + task_ + ":gsm8k --sinks 2 --window 4 ";
  for (const char* out : {"one", "other"}) {
    const ProgramEnd end = RunEbb(common + "--grid " + grid + " --out " + Out(out));
    ASSERT_EQ(end.exit_code, 0) << end.err;
  }
  ExpectSame("one", "other");
  ASSERT_EQ(RunEbb(common + "--policies full --out " + Out("full")).exit_code, 0);
  std::vector<std::vector<json>> answers(3);
  for (const json& line : Lines(Out("one") + "/results.jsonl")) {
    answers[line["setting"]].push_back({line["extracted"], line["generated_tokens"]});
  }
  std::vector<json> full;
  for (const json& line : Lines(Out("full") + "/results.jsonl")) {
    full.push_back({line["extracted"], line["generated_tokens"]});
  }
  EXPECT_EQ(Lines(Out("one") + "/results.jsonl")[6]["tiers"], "t1=none lossless=exact drafts=8");
  EXPECT_EQ(answers[1], full);
  EXPECT_NE(answers[0], full);
  EXPECT_EQ(answers[2].size(), full.size());
  // Every row lies in the store, and the window's once more in the draft.
  ASSERT_EQ(
      RunEbb(common + "--policies streaming --lossless --t1 host --out " + Out("host")).exit_code,
      0);
  const auto of_full = Lines(Out("full") + "/results.jsonl");
  const auto of_host = Lines(Out("host") + "/results.jsonl");
  ASSERT_EQ(of_host.size(), of_full.size());
  for (size_t i = 0; i < of_full.size(); ++i) {
    EXPECT_GE(of_host[i]["peak_tokens"], of_full[i]["peak_tokens"].get<double>() + 6) << i;
    EXPECT_LE(of_host[i]["peak_tokens"], of_full[i]["peak_tokens"].get<double>() + 6 + 2 * 8) << i;
    EXPECT_GT(of_host[i]["peak_kv_bytes"], of_full[i]["peak_kv_bytes"]) << i;
    // A verifying step brings one token and those of its draft that were right.
    EXPECT_FALSE(of_full[i].contains("drafted"));
    const int tokens = of_host[i]["generated_tokens"];
    const int accepted = of_host[i]["accepted"];
    const int decoded = accepted + of_host[i]["verify_steps"].get<int>();
    EXPECT_GE(decoded, tokens - 1) << i;
    EXPECT_LE(decoded, tokens) << i;
    EXPECT_GT(of_host[i]["drafted"], 0) << i;
    EXPECT_LE(accepted, of_host[i]["drafted"]) << i;
    EXPECT_GE(of_host[i]["bytes_read_per_token"], 0) << i;
  }
  const ProgramEnd named = RunEbb(common + "--lossless --draft h2o --out " + Out("named"));
  EXPECT_THAT(named.err, HasSubstr("name them by --policies"));
  const ProgramEnd varying = RunEbb(common + "--lossless --draft-min 2 --out " + Out("varying"));
  EXPECT_THAT(varying.err, HasSubstr("the same number"));
}

}  // namespace
}  // namespace ebb
