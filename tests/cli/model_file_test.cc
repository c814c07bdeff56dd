// What other programs do to a model's file while it is mapped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/random_gguf.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class ModelFileTest : public testing::Test {
 protected:
  // Large enough for weights that lie in pages of their own.
  void SetUp() override {
    ASSERT_TRUE(WriteRandomGguf({.context = 4000}, tiny_.File("original.gguf")).ok());
    Restore();
  }
  void Restore() const {
    fs::copy_file(tiny_.File("original.gguf"), File(), fs::copy_options::overwrite_existing);
  }
  [[nodiscard]] std::string File() const { return tiny_.File("model.gguf"); }
  [[nodiscard]] std::string Session() const { return tiny_.File("talk"); }
  void Truncate() const { fs::resize_file(File(), 4096); }
  void Overwrite() const {
    std::fstream file(File(), std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(fs::file_size(File()), '\0');
  }
  // Runs until `change` was made in the middle of the answer, and on.
  [[nodiscard]] ProgramEnd RunWhile(const std::string& more,
                                    const std::function<void()>& change) const {
    return RunEbb({.arguments = Words("run --raw --temp 0 --threads 1 --ignore-eos -p tide -m " +
                                      File() + " " + more),
                   .interrupt_after = 10,
                   .interfere = change});
  }

  TinyModel tiny_;
};

TEST_F(ModelFileTest, AFileThatIsTruncatedInUseEndsTheAnswerWithAnError) {
  for (const std::string more : {"", "--dequantize", "--lossless --t1 host"}) {
    Restore();
    const ProgramEnd end = RunWhile(more, [this] { Truncate(); });
    EXPECT_EQ(end.exit_code, 1) << more << end.err;
    EXPECT_THAT(end.err, HasSubstr("ebb: the model file model.gguf changed while it was in use"));
  }
}

TEST_F(ModelFileTest, AFileThatChangesWhileItIsLoadedMayBeWholeTheNextTime) {
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    auto time = fs::last_write_time(File());
    while (!ends) fs::last_write_time(File(), time += std::chrono::microseconds(1));
  });
  const ProgramEnd end = RunEbb("run --raw --threads 1 -n 1 -p tide -m " + File());
  ends = true;
  writer.join();
  EXPECT_EQ(end.exit_code, 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("ebb: the model file model.gguf changed while it was in use"));
}

TEST_F(ModelFileTest, AFileThatIsOverwrittenInUseEndsTheAnswerWithAnError) {
  const ProgramEnd end = RunWhile("", [this] { Overwrite(); });
  EXPECT_EQ(end.exit_code, 1) << end.err;
  EXPECT_THAT(end.err,
              HasSubstr("ebb: the model file model.gguf changed while it was in use: it was "
                        "written to; load the model again"));
}

TEST_F(ModelFileTest, TheSessionKeepsWhatWasSaidBeforeTheChange) {
  const ProgramEnd whole =
      RunEbb("run --raw --temp 0 --threads 1 --ignore-eos -p tide -n 3900 -m " + File());
  for (const bool truncates : {false, true}) {
    fs::remove(Session());
    const ProgramEnd first =
        RunWhile("--session " + Session(), [&] { truncates ? Truncate() : Overwrite(); });
    EXPECT_EQ(first.exit_code, 1) << first.err;
    Restore();
    const ProgramEnd second = RunEbb("run --raw --temp 0 --threads 1 --ignore-eos -n 20 -m " +
                                     File() + " --session " + Session());
    EXPECT_EQ(second.exit_code, 0) << second.err;
    const std::string text = first.out + second.out;
    EXPECT_EQ(text, whole.out.substr(0, text.size()));
  }
}

TEST_F(ModelFileTest, AFileThatAnotherOneReplacesIsUsedToTheEnd) {
  const auto replace = [this] {
    std::ofstream(tiny_.File("other")) << "another model";
    fs::rename(tiny_.File("other"), File());
  };
  const ProgramEnd end = RunWhile("-n 600", replace);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  Restore();
  EXPECT_EQ(end.out, RunWhile("-n 600", [] {}).out);
  const ProgramEnd removed = RunWhile("-n 600", [this] { fs::remove(File()); });
  EXPECT_EQ(removed.out, end.out);
}

}  // namespace
}  // namespace ebb
