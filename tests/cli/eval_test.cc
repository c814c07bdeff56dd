#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<json> Lines(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

class EvalTest : public testing::Test {
 protected:
  EvalTest() {
    std::ofstream file(task_);
    for (int i = 0; i < 6; ++i) {
      file << json{{"question", "What is " + std::to_string(i) + " + 1?"},
                   {"answer", "One more.\n#### " + std::to_string(i + 1)}}
                  .dump()
           << "\n";
    }
  }

  [[nodiscard]] std::string Out(const std::string& name) const { return model_.File(name); }
  ProgramEnd Eval(const std::string& out, const std::string& more = "") {
    return RunEbb("eval -n 24 --quiet -m " + model_.path() + " --task " + task_ +
                  ":gsm8k --policies full,streaming,random --budgets 50% --sinks 2 --window 4 "
                  "--out " +
                  Out(out) + " " + more);
  }
  // Byte for byte; times apart.
  void ExpectSame(const std::string& one, const std::string& other) {
    for (const char* name : {"/results.jsonl", "/summary.json", "/summary.md", "/grid.json"})
      EXPECT_EQ(ReadFile(Out(one) + name), ReadFile(Out(other) + name)) << name;
  }

  TinyModel model_;
  std::string task_ = model_.File("task.jsonl");
};

TEST_F(EvalTest, EveryGridOfThePapersOpens) {
  int num_grids = 0;
  for (const auto& entry : std::filesystem::directory_iterator(EBB_SOURCE_DIR "/grids")) {
    if (entry.path().extension() != ".json") continue;
    ++num_grids;
    const ProgramEnd end =
        RunEbb("eval --task pebble --problems 1 -n 1 --quiet --grid " + entry.path().string() +
               " --out " + Out(entry.path().stem().string()));
    EXPECT_EQ(end.exit_code, 0) << entry.path() << end.err;
  }
  EXPECT_GE(num_grids, 15);
}

TEST_F(EvalTest, PebbleNeedsNoModelFile) {
  const ProgramEnd end = RunEbb(
      {.arguments = Words("eval --task pebble --problems 2 -n 8 --quiet --out " + Out("pebble")),
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

TEST_F(EvalTest, WritesALineForEveryAnswerAndARecordForEverySetting) {
  const ProgramEnd end = Eval("run", "--json");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::vector<json> lines = Lines(Out("run") + "/results.jsonl");
  ASSERT_EQ(lines.size(), 18u);
  for (const char* key :
       {"problem", "policy", "budget", "seed", "correct", "extracted", "generated_tokens",
        "finish_reason", "peak_kv_bytes", "peak_tokens", "kv_reads"})
    EXPECT_TRUE(lines[0].contains(key)) << key;
  EXPECT_EQ(lines[0]["policy"], "full");
  EXPECT_EQ(lines[6]["policy"], "streaming");
  EXPECT_EQ(lines[6]["budget"], "50%");
  EXPECT_LT(lines[6]["peak_tokens"].get<double>(), lines[0]["peak_tokens"].get<double>());
  const json summary = json::parse(ReadFile(Out("run") + "/summary.json"));
  ASSERT_EQ(summary.size(), 3u);
  EXPECT_EQ(summary[2]["policy"], "random");
  EXPECT_EQ(summary[2]["n"], 6);
  EXPECT_EQ(summary[2]["ci_low"], 0);
  // What is printed knows the times too.
  json printed = json::parse(end.out);
  for (json& record : printed) {
    for (const char* name : {"seconds", "tokens_per_s", "overhead"}) {
      EXPECT_EQ(record.erase(name), 1u) << name;
    }
  }
  EXPECT_EQ(printed, summary);
  const std::string page = ReadFile(Out("run") + "/report.html");
  EXPECT_THAT(page, HasSubstr("\"policy\":\"streaming\""));
  EXPECT_THAT(page, testing::Not(HasSubstr("@EBB_")));
}

TEST_F(EvalTest, IsTheSameHoweverManyWorkAndWhereverItWasKilled) {
  ASSERT_EQ(Eval("one", "--workers 1").exit_code, 0);
  ASSERT_EQ(Eval("three", "--workers 3").exit_code, 0);
  ExpectSame("one", "three");
  const std::string results = ReadFile(Out("one") + "/results.jsonl");
  for (const size_t bytes : {size_t{0}, results.size() / 3, results.size() - 1}) {
    std::filesystem::resize_file(Out("three") + "/results.jsonl", bytes);
    const ProgramEnd end = Eval("three", "--resume");
    ASSERT_EQ(end.exit_code, 0) << end.err;
    ExpectSame("one", "three");
  }
  std::filesystem::resize_file(Out("three") + "/times.jsonl", 100);
  ASSERT_EQ(Eval("three", "--resume").exit_code, 0);
  ExpectSame("one", "three");
  EXPECT_EQ(Lines(Out("three") + "/times.jsonl").size(), 18u);
}

TEST_F(EvalTest, ShardsAreMergedToTheSameBytes) {
  ASSERT_EQ(Eval("whole").exit_code, 0);
  std::string folders;
  for (const int shard : {3, 0, 2, 1}) {
    const std::string name = "shard" + std::to_string(shard);
    ASSERT_EQ(Eval(name, "--shard " + std::to_string(shard) + "/4").exit_code, 0);
    folders += " " + Out(name);
  }
  const ProgramEnd end = RunEbb("report --out " + Out("merged") + folders);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("| streaming 50% |"));
  ExpectSame("whole", "merged");
}

TEST_F(EvalTest, AFolderHoldsOneRun) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  const std::string results = ReadFile(Out("run") + "/results.jsonl");
  ProgramEnd end = Eval("run");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--resume"));
  end = Eval("run", "--resume --seed 3");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("\"seed\" differs"));
  EXPECT_EQ(ReadFile(Out("run") + "/results.jsonl"), results);
}

TEST_F(EvalTest, ReportRefusesAnswersToOtherQuestions) {
  ASSERT_EQ(Eval("one", "--problems 2").exit_code, 0);
  ASSERT_EQ(Eval("other", "--problems 3").exit_code, 0);
  const ProgramEnd end = RunEbb("report --out " + Out("m") + " " + Out("one") + " " + Out("other"));
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("\"problems\" differs"));
  EXPECT_EQ(RunEbb("report --out " + Out("m") + " " + Out("nowhere")).exit_code, 1);
  EXPECT_EQ(RunEbb("report --out " + Out("m")).exit_code, 2);
}

TEST_F(EvalTest, DamagedResultsAreToldByLine) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  std::string results = ReadFile(Out("run") + "/results.jsonl");
  results[results.find('\n') + 1] = 'x';
  std::ofstream(Out("run") + "/results.jsonl") << results;
  const ProgramEnd end = Eval("run", "--resume");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("line 2"));
  EXPECT_EQ(ReadFile(Out("run") + "/results.jsonl"), results);
}

TEST_F(EvalTest, AFullDiskLosesNothingThatWasWritten) {
  ASSERT_EQ(Eval("whole").exit_code, 0);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {.rlim_cur = 2500, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);  // the program's too
  const ProgramEnd end = Eval("cut");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("cannot write"));
  const size_t kept = Lines(Out("cut") + "/results.jsonl").size();
  EXPECT_GT(kept, 2u);
  EXPECT_LT(kept, 18u);
  ASSERT_EQ(Eval("cut", "--resume").exit_code, 0);
  ExpectSame("whole", "cut");
}

TEST_F(EvalTest, ResultsMustBeAFile) {
  std::filesystem::create_directories(Out("run"));
  std::filesystem::create_symlink("/dev/zero", Out("run") + "/results.jsonl");
  const ProgramEnd end = Eval("run");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("no regular file"));
}

TEST_F(EvalTest, AGridFileNamesSettings) {
  const std::string grid = model_.File("grid.json");
  std::ofstream(grid) << R"({"policies": ["attention"], "seeds": [1, 2],
    "settings": [{"t0": "30%"}, {"t0": "70%", "t1": "host", "evict": "20%"}]})";
  const std::string common = "eval -n 30 --quiet -m " + model_.path() + " --task " + task_ +
                             ":gsm8k --sinks 1 --window 2 --interval 4 --out ";
  const ProgramEnd end = RunEbb(common + Out("grid") + " --temp 0.5 --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::vector<json> lines = Lines(Out("grid") + "/results.jsonl");
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[0]["tiers"], "t0=30% evict=0%");
  EXPECT_EQ(lines[6]["seed"], 2);
  EXPECT_EQ(lines[23]["tiers"], "t0=70% evict=20%");
  EXPECT_EQ(lines[0]["rows_evicted"], 0);
  EXPECT_GT(lines[23]["rows_evicted"].get<int>(), 0);
  const json summary = json::parse(ReadFile(Out("grid") + "/summary.json"));
  EXPECT_EQ(summary[0]["samples"], 2);
  EXPECT_TRUE(summary[0].contains("majority"));
}

TEST_F(EvalTest, SettingsThatDifferInOneOptionAreCountedApart) {
  const std::string grid = model_.File("windows.json");
  std::ofstream(grid) << R"({"policies": ["attention"], "settings": [{"t0": "50%", "evict": "10%",
    "window": 2}, {"t0": "50%", "evict": "10%", "window": 8}]})";
  const std::string common = "eval -n 12 --quiet -m " + model_.path() + " --task " + task_ +
                             ":gsm8k --sinks 1 --interval 4 --out ";
  const ProgramEnd end = RunEbb(common + Out("windows") + " --grid " + grid);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const size_t num_lines = Lines(Out("windows") + "/results.jsonl").size();
  const json summary = json::parse(ReadFile(Out("windows") + "/summary.json"));
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0]["options"], "sinks=1 window=2 interval=4");
  EXPECT_EQ(summary[1]["options"], "sinks=1 window=8 interval=4");
  for (const json& record : summary) EXPECT_EQ(record["n"], num_lines / 2);
}

TEST_F(EvalTest, BadInputIsRefusedBeforeAnythingIsWritten) {
  const std::string grid = model_.File("grid.json");
  const std::string start = "eval --quiet -m " + model_.path() + " --out " + Out("bad") + " ";
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
  refuses(task + "--shard 4/4", "--shard");
  refuses(task + "--shard 1", "--shard");
  refuses(task + "--samples 3", "--temp");
  refuses(task + "--t0 50% --policies attention --budgets 50%", "--evict");
  refuses("--task pebble --problems 0", "no end");
  refuses("--task " + task_ + ":nonsense", "nonsense");
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"[", "no JSON"},
           {"[]", "one object"},
           {R"({"polices": []})", "polices"},
           {R"({"policies": "full"})", "list of texts"},
           {R"({"seeds": [-1]})", "numbers from 0"},
           {R"({"settings": [{"colour": "red"}]})", "colour"},
           {R"({"settings": [{"t0": "much"}]})", "t0"}}) {
    std::ofstream(grid) << text;
    refuses(task + "--grid " + grid, words);
  }
}

TEST_F(EvalTest, AFileThatIsNotThereIsNamed) {
  const ProgramEnd end =
      RunEbb("eval --quiet -m " + model_.path() + " --task nowhere.jsonl:gsm8k --out " + Out("x"));
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("nowhere.jsonl"));
}

// Lossless answers are the full cache's, and repeat to the last byte, counts of drafts among them.
TEST_F(EvalTest, LosslessSettingsAnswerAsTheFullCacheDoes) {
  const std::string grid = model_.File("lossless.json");
  std::ofstream(grid) << R"({"policies": ["streaming"], "settings": [{},
      {"lossless": true, "t1": "none"}, {"lossless": true, "t1": "none", "verify": "fast"}]})";
  const std::string common = "eval -n 24 --temp 0.8 --quiet --threads 1 -m " + model_.path() +
                             " --task " + task_ + ":gsm8k --sinks 2 --window 4 ";
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
  EXPECT_EQ(answers[1], full);
  EXPECT_NE(answers[0], full);
  EXPECT_EQ(answers[2].size(), full.size());
  const ProgramEnd named = RunEbb(common + "--lossless --draft h2o --out " + Out("named"));
  EXPECT_THAT(named.err, HasSubstr("name them by --policies"));
  const ProgramEnd varying = RunEbb(common + "--lossless --draft-min 2 --out " + Out("varying"));
  EXPECT_THAT(varying.err, HasSubstr("the same number"));
}

}  // namespace
}  // namespace ebb
