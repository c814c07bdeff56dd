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

// Its grid lacks what could not be chosen then, or what its model's fingerprint tells.
TEST_F(EvalTest, ARunOfAnOlderVersionIsTakenUpAgain) {
  ASSERT_EQ(Eval("run").exit_code, 0);
  auto grid = nlohmann::ordered_json::parse(ReadFile(Out("run") + "/grid.json"));
  for (const char* key : {"top_k", "min_p", "model_compression", "model_window", "model_shift",
                          "answer_tokens", "batch"}) {
    EXPECT_EQ(grid.erase(key), 1u) << key;
  }
  std::ofstream(Out("run") + "/grid.json") << grid;
  std::filesystem::resize_file(Out("run") + "/results.jsonl", 100);
  const ProgramEnd end = Eval("run", "--resume");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const ProgramEnd other = Eval("run", "--resume --min-p 0");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("\"min_p\" differs"));
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
