// The folder of an evaluation: killed and taken up again, in shards, damaged, on a full disk.
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/cli/eval_fixture.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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

// By SIGKILL, wherever it is: loading or answering.
TEST_F(EvalTest, AKillAtAnyMomentLosesNothing) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(Eval("whole").exit_code, 0);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
  constexpr int kKilled = 128 + SIGKILL;
  int num_killed = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string out = "killed" + std::to_string(i / 20);
    const std::string resume = std::filesystem::exists(Out(out)) ? "--resume" : "";
    const std::string seconds = std::to_string(whole.count() * (i % 20 + 1) / 20);
    const int status = std::system(("timeout -s KILL " + seconds + " " EBB_BINARY_FOLDER "/" +
                                    Arguments(out, resume) + " > /dev/null 2> " + Out("err"))
                                       .c_str());
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_THAT(WEXITSTATUS(status), testing::AnyOf(0, kKilled)) << ReadFile(Out("err"));
    num_killed += WEXITSTATUS(status) == kKilled ? 1 : 0;
  }
  EXPECT_GT(num_killed, 0);
  for (const char* out : {"killed0", "killed1"}) {
    const ProgramEnd end = Eval(out, std::filesystem::exists(Out(out)) ? "--resume" : "");
    ASSERT_EQ(end.exit_code, 0) << end.err;
    ExpectSame("whole", out);
  }
}

// By rounding they may differ from problems that run by themselves, never among themselves.
TEST_F(EvalTest, BatchesAreTheSameWhereverTheyWereKilledAndInShards) {
  ASSERT_EQ(Eval("batches", "--batch 4").exit_code, 0);
  ASSERT_EQ(Eval("other", "--batch 4 --workers 1").exit_code, 0);
  ExpectSame("batches", "other");
  const std::string results = ReadFile(Out("batches") + "/results.jsonl");
  for (const size_t bytes : {results.size() / 3, results.size() - 1}) {
    std::filesystem::resize_file(Out("other") + "/results.jsonl", bytes);
    ASSERT_EQ(Eval("other", "--batch 4 --resume").exit_code, 0);
    ExpectSame("batches", "other");
  }
  const ProgramEnd end = Eval("other", "--batch 8 --resume");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("\"batch\""));
  // Shards are the lines of the whole.
  for (const int shard : {1, 0}) {
    const std::string name = "part" + std::to_string(shard);
    ASSERT_EQ(Eval(name, "--batch 4 --shard " + std::to_string(shard) + "/2").exit_code, 0);
    const auto part = Lines(Out(name) + "/results.jsonl");
    EXPECT_EQ(part.size(), 9u);
    for (const json& line : part) EXPECT_THAT(results, HasSubstr(line["text"].dump())) << name;
  }
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

TEST_F(EvalTest, DamagedResultsAreToldByLine) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  std::string results = ReadFile(Out("run") + "/results.jsonl");
  results[results.find('\n') + 1] = 'x';
  std::ofstream(Out("run") + "/results.jsonl") << results;
  const ProgramEnd end = Eval("run", "--resume");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("line 2"));
  EXPECT_EQ(ReadFile(Out("run") + "/results.jsonl"), results);
}

TEST_F(EvalTest, AFullDiskLosesNothingThatWasWritten) {
  ASSERT_EQ(Eval("whole").exit_code, 0);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {.rlim_cur = 5000, .rlim_max = before.rlim_max};
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

TEST_F(EvalTest, OnlyTheSameRunIsTakenUpAgain) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  const auto refuses = [&](const std::string& more, const std::string& words) {
    const ProgramEnd end = Eval("run", "--resume " + more);
    EXPECT_EQ(end.exit_code, 2) << more;
    EXPECT_THAT(end.err, HasSubstr(words)) << more;
  };
  refuses("--context 200", "\"context\" differs");
  refuses("--rope-scaling linear --rope-factor 4", "\"rope_scaling\" differs");
  refuses("--kv-cap 64MiB", "\"kv_cap_bytes\" differs");
  refuses("--top-k 0", "\"top_k\" differs");
  refuses("--top-p 1", "\"top_p\" differs");
  refuses("--min-p 0", "\"min_p\" differs");
  // Only the path of the file of problems is another one: the run is the same.
  const std::string elsewhere = model_.File("elsewhere.jsonl");
  std::filesystem::rename(task_, elsewhere);
  task_ = elsewhere;
  EXPECT_EQ(Eval("run", "--resume").exit_code, 0);
  std::string task = ReadFile(task_);
  task.replace(task.find("#### 2"), 6, "#### 3");
  std::ofstream(task_) << task;
  refuses("", "\"task_fingerprint\" differs");
}

TEST_F(EvalTest, ARunNamesItsMachineAndAnotherVersionIsRefused) {
  ASSERT_EQ(Eval("run", "--workers 2").exit_code, 0);
  nlohmann::ordered_json grid = Grid("run");
  ASSERT_EQ(grid["made_by"].size(), 1u);
  nlohmann::ordered_json& machine = grid["made_by"][0];
  EXPECT_EQ(machine["threads"], 2);
  EXPECT_THAT(machine["instructions"].get<std::string>(), testing::StartsWith("cpu:"));
  EXPECT_THAT(machine["date"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
  for (const char* key : {"version", "cpu"}) EXPECT_NE(machine[key], "") << key;
  const auto rewrite = [&] { std::ofstream(Out("run") + "/grid.json") << grid; };
  machine["cpu"] = "another one";
  rewrite();
  std::filesystem::resize_file(Out("run") + "/results.jsonl", 100);
  const ProgramEnd there = Eval("run", "--resume");
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_THAT(there.err, HasSubstr("cpu another one, here it is "));
  EXPECT_EQ(Grid("run")["made_by"].size(), 2u);
  machine["version"] = "0.1.0";
  rewrite();
  const ProgramEnd refused = Eval("run", "--resume");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("version 0.1.0, here it is "));
  EXPECT_EQ(Eval("run", "--resume --any-version").exit_code, 0);
  grid["format"] = 2;
  rewrite();
  EXPECT_THAT(Eval("run", "--resume").err, HasSubstr("another version of ebb began"));
  grid["format"] = 3;
  grid.erase("made_by");
  rewrite();
  EXPECT_THAT(Eval("run", "--resume").err, HasSubstr("made_by"));
}

// Each grid has the same setting twice, and another one that differs in one field.
TEST_F(EvalTest, SettingsThatDifferInOneFieldAreTwo) {
  const std::string tiers = R"("t0": "50%", "t1": "host")";
  const std::string evicting = R"("t0": "50%", "t1": "host", "evict": "20%", "interval": 2)";
  const std::string lossless = R"("lossless": true, "t1": "none")";
  const std::pair<std::string, std::string> pairs[] = {
      {R"("kv-type": "f16")", R"("kv-type": "f32")"},
      {R"("kv-type": "q4")", R"("kv-type": "q3")"},
      {"", R"("context": 64)"},
      {"", R"("kv-cap": "8MiB")"},
      {tiers, R"("t0": "60%", "t1": "host")"},
      {tiers, R"("t0": "50%", "t1": "none")"},
      {tiers, R"("t0": "50%", "t1": "host,8MiB")"},
      {R"("t0": "4MiB")", R"("t0": "8MiB")"},
      {tiers, tiers + R"(, "t1-read": "select:mass=0.5")"},
      {tiers + R"(, "t1-read": "select:mass=0.5")", tiers + R"(, "t1-read": "select:mass=0.9")"},
      {tiers + R"(, "t1-read": "select:mass=0.5")",
       tiers + R"(, "t1-read": "select:mass=0.5,rows=512")"},
      {tiers + R"(, "t1-read": "select:mass=0.5")",
       tiers + R"(, "t1-read": "select:mass=0.5,reuse=0.5")"},
      {tiers + R"(, "t2": "20%")", tiers + R"(, "t2": "30%")"},
      {tiers + R"(, "t2": "20%:int8")", tiers + R"(, "t2": "20%:int8_naive")"},
      {R"("t1": "none", "t2": "old:int8")", R"("t1": "none", "t2": "old:int4")"},
      {evicting, tiers + R"(, "evict": "10%", "interval": 2)"},
      {evicting, evicting + R"(, "evict-of": "alive")"},
      {evicting, evicting + R"(, "scorer": "random")"},
      {evicting, evicting + R"(, "sinks": 7)"},
      {evicting, evicting + R"(, "granularity": "layer")"},
      {evicting, tiers + R"(, "evict": "20%", "interval": 3)"},
      {lossless, lossless + R"(, "verify": "fast")"},
      {lossless, lossless + R"(, "draft-min": 4, "draft-max": 4)"},
      {lossless, R"("lossless": true, "t1": "host")"},
  };
  const std::string file = model_.File("pair.json");
  const std::string command = "ebb-lab eval -n 8 --quiet --problems 2 -m " + model_.path() +
                              " --task " + task_ + ":gsm8k --grid " + file + " --out ";
  int number = 0;
  for (const auto& [one, other] : pairs) {
    const std::string what = one + " | " + other;
    const std::string out = "pair" + std::to_string(number++);
    const auto write = [&](const std::string& settings) {
      std::ofstream(file) << R"({"settings": [)" << settings << "]}";
    };
    write("{" + one + "}, {" + one + "}, {" + other + "}");
    const ProgramEnd end = RunEbb(command + Out(out));
    ASSERT_EQ(end.exit_code, 0) << what << end.err;
    EXPECT_EQ(Grid(out)["settings"].size(), 2u) << what;
    EXPECT_EQ(Lines(Out(out) + "/results.jsonl").size(), 4u) << what;
    EXPECT_EQ(SettingsOf(out).size(), 2u) << what;
    // A run of one of them is not continued with the other.
    write("{" + one + "}");
    ASSERT_EQ(RunEbb(command + Out(out + "one")).exit_code, 0) << what;
    EXPECT_EQ(RunEbb(command + Out(out + "one") + " --resume").exit_code, 0) << what;
    write("{" + other + "}");
    const ProgramEnd refused = RunEbb(command + Out(out + "one") + " --resume");
    EXPECT_EQ(refused.exit_code, 2) << what;
    EXPECT_THAT(refused.err, HasSubstr("\"settings\" differs")) << what;
  }
  EXPECT_GE(number, 20);
}

TEST_F(EvalTest, WhatIsTakenUpAgainAreAnswersToItsGrid) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  const std::string path = Out("run") + "/results.jsonl";
  const std::string results = ReadFile(path);
  const auto refuses = [&](const std::string& changed, const std::string& words) {
    std::ofstream(path) << changed;
    const ProgramEnd end = Eval("run", "--resume");
    EXPECT_EQ(end.exit_code, 2) << words;
    EXPECT_THAT(end.err, HasSubstr(words));
    EXPECT_EQ(ReadFile(path), changed);
  };
  const std::string first = results.substr(0, results.find('\n') + 1);
  refuses(first + R"({"setting":0,"problem":5})" + "\n", "line 2: \"policy\" is missing");
  std::string changed = first;
  changed.replace(changed.find("\"problem\":0"), 11, "\"problem\":9");
  refuses(changed, "line 1: no answer to this run's grid");
  changed = first;
  changed.replace(changed.find("\"kv_reads\":"), 12, "\"kv_reads\":\"x\",\"o\":");
  refuses(changed, "line 1: \"kv_reads\"");
  // A gap.
  std::ofstream(path) << results.substr(first.size());
  EXPECT_THAT(Eval("run", "--resume").err, HasSubstr("line 1: expected the answer to problem 0"));
}

TEST_F(EvalTest, TwoProcessesDoNotShareAFolder) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  const std::string path = Out("run") + "/results.jsonl";
  std::FILE* const file = std::fopen(path.c_str(), "r+");
  ASSERT_EQ(flock(fileno(file), LOCK_EX), 0);
  const ProgramEnd end = Eval("run", "--resume");
  std::fclose(file);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("another process writes"));
  EXPECT_EQ(Eval("run", "--resume").exit_code, 0);
}

}  // namespace
}  // namespace ebb
