// Systems that lack what a usual one has: no HOME, no /proc, no place for files, little memory. The
// program runs, or says in a sentence what is missing and which option or variable helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "src/base/sanitizers.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using testing::Not;

class BareSystemTest : public testing::Test {
 protected:
  // What a shell makes of the command, in which EBB is the program.
  [[nodiscard]] ProgramEnd Shell(std::string command) const {
    constexpr std::string_view kName = "EBB";
    for (size_t at = 0; (at = command.find(kName, at)) != std::string::npos;) {
      command.replace(at, kName.size(), EBB_BINARY_PATH);
      at += std::string_view(EBB_BINARY_PATH).size();
    }
    const int state = std::system(
        ("(" + command + ") > " + tiny_.File("out") + " 2> " + tiny_.File("err") + " < /dev/null")
            .c_str());
    return {.exit_code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state),
            .out = Content(tiny_.File("out")),
            .err = Content(tiny_.File("err"))};
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TinyModel tiny_;
};

TEST_F(BareSystemTest, WithoutAHomeTheModelsAreListed) {
  const ProgramEnd end = Shell("env -i EBB pull --list");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("smollm2-135m"));
  EXPECT_THAT(end.out, HasSubstr("has no place: neither XDG_CACHE_HOME nor HOME is set"));
  EXPECT_EQ(Shell("env -i EBB pull --list --json").exit_code, 0);
}

TEST_F(BareSystemTest, WithoutAHomeTheReasonIsNamed) {
  const std::string reason = "neither XDG_CACHE_HOME nor HOME is set; set one of them";
  for (const std::string arguments : {"run -p hi -n 1", "run -p hi -n 1 -m smollm2-135m", "pull"}) {
    const ProgramEnd end = Shell("env -i EBB " + arguments);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr(reason)) << arguments;
  }
  EXPECT_THAT(Shell("env -i EBB run -p hi -n 1").err, HasSubstr("-m FILE"));
}

TEST_F(BareSystemTest, AHomeThatCannotBeSearchedIsNamedWithItsReason) {
  fs::create_symlink("loop", tiny_.File("loop"));
  const ProgramEnd end = Shell("env -i HOME=" + tiny_.File("loop") + " EBB run -p hi -n 1");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("cannot look for the default model at " + tiny_.File("loop")));
  EXPECT_THAT(end.err, HasSubstr("symbolic links"));
  const ProgramEnd empty = Shell("env -i HOME=/nonexistent EBB run -p hi -n 1");
  EXPECT_THAT(empty.err, HasSubstr("there is no default model at /nonexistent/.cache/ebb/"));
}

TEST_F(BareSystemTest, ThePebbleNeedsNeitherProcNorFiles) {
  const std::string run = "EBB run -m pebble --threads 1 --temp 0 --quiet -p a -n 3";
  const std::string text = Shell(run).out;
  EXPECT_NE(text, "");
  EXPECT_EQ(Shell("(ulimit -f 0; " + run + ") | cat").out, text);
  const std::string bare = "unshare -rm sh -c 'mount -t tmpfs x /proc && ";
  if (Shell(bare + "true'").exit_code != 0) EBB_SKIP_WITHOUT("namespaces") << "no mounts here";
  const ProgramEnd end = Shell(bare + run + "'");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, text);
}

TEST_F(BareSystemTest, WithoutAPlaceForPagesTheOptionAndTheVariableAreNamed) {
  for (const std::string folder : {"/nonexistent", "/proc"}) {
    const ProgramEnd end = Shell("TMPDIR=" + folder + " EBB run -m pebble -p a -n 3 --t0 20%");
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr("in " + folder + ": "));
    EXPECT_THAT(end.err, AllOf(HasSubstr("--t1 file:FOLDER: "),
                               HasSubstr("choose another folder, or set TMPDIR")));
  }
}

TEST_F(BareSystemTest, APipeAsAModelIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(tiny_.File("pipe").c_str(), 0600), 0);
  const ProgramEnd end = Shell("timeout 20 EBB run -p hi -m " + tiny_.File("pipe"));
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("expected a regular file, found a named pipe"));
}

TEST_F(BareSystemTest, APipeTakesLogProbabilities) {
  ASSERT_EQ(mkfifo(tiny_.File("pipe").c_str(), 0600), 0);
  const std::string pipe = tiny_.File("pipe");
  const ProgramEnd end =
      Shell("timeout 20 cat " + pipe + " > " + tiny_.File("lines") +
            " & timeout 20 EBB run --raw -n 4 --ignore-eos --threads 1 -p tide -m " + tiny_.path() +
            " --logprobs " + pipe + " && wait");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string lines = Content(tiny_.File("lines"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
}

TEST_F(BareSystemTest, WhereMemoryEndsASentenceSaysSo) {
  if (kShadowMemory) {
    EBB_SKIP_WITHOUT("small_address_space") << "a sanitizer takes terabytes of addresses";
  }
  int refused = 0;
  for (int mib = 36; mib <= 120; mib += 2) {
    const ProgramEnd end = Shell("ulimit -v " + std::to_string(mib * 1024) +
                                 "; EBB run -m pebble --threads 1 -p a -n 2");
    // ggml ends the process itself where it gets no memory for a context of a few KiB.
    if (end.err.find("GGML_ASSERT(ctx->mem_buffer != NULL)") != std::string::npos) continue;
    // 127: the system could not load the program's libraries.
    EXPECT_THAT(end.exit_code, AnyOf(Eq(0), Eq(1), Eq(3), Eq(127))) << mib << end.err;
    EXPECT_THAT(end.err, Not(HasSubstr("bad_alloc"))) << mib;
    refused += end.exit_code == 1 || end.exit_code == 3 ? 1 : 0;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace ebb
