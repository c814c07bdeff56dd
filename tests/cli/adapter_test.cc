// --adapter: a model that marks nothing runs under --policy dms with an adapter's file beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliAdapterTest : public testing::Test {
 protected:
  void SetUp() override {
    RandomGgufOptions options = {.embed_dim = 64,
                                 .head_dim = 16,
                                 .feed_forward_dim = 96,
                                 .context = 256,
                                 .weight_type = "q8_0"};
    ASSERT_TRUE(WriteRandomGguf(options, model_).ok());
    options.eviction_window = 16;
    options.marks = RandomGgufOptions::Marks::kAdapter;
    ASSERT_TRUE(WriteRandomAdapter(options, adapter_).ok());
    options.family = "qwen2";
    ASSERT_TRUE(WriteRandomAdapter(options, of_another_family_).ok());
  }
  [[nodiscard]] ProgramEnd Run(const std::string& command, const std::string& more) const {
    return RunEbb(command + " --threads 1 -m " + model_ + " " + more);
  }
  [[nodiscard]] ProgramEnd Generate(const std::string& more) const {
    return Run("run --raw --temp 0 -n 60 --ignore-eos --json -p abcdefgh", more);
  }
  [[nodiscard]] static json Record(const ProgramEnd& end) {
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(LastLine(end.err));
  }

  TempFolder folder_;
  const std::string model_ = folder_.File("model.gguf");
  const std::string adapter_ = folder_.File("adapter.gguf");
  const std::string of_another_family_ = folder_.File("qwen2.gguf");
};

TEST_F(CliAdapterTest, LetsRowsGoThatItMarksAndChangesNothingElse) {
  const json plain = Record(Generate(""));
  const json full = Record(Generate("--adapter " + adapter_));
  const json dms = Record(Generate("--policy dms --adapter " + adapter_));
  EXPECT_EQ(full["logits_hash"], plain["logits_hash"]);
  EXPECT_EQ(full["rows_evicted"], 0);
  EXPECT_GT(dms["rows_evicted"], 0);
  EXPECT_NE(dms["logits_hash"], plain["logits_hash"]);
}

TEST_F(CliAdapterTest, IsTakenByEveryCommandThatRunsAModel) {
  const std::string adapter = " --policy dms --adapter " + adapter_;
  const ProgramEnd decode =
      Run("ebb-bench decode --quiet --repetitions 1 --tokens 4 --depth 32", adapter);
  EXPECT_EQ(decode.exit_code, 0) << decode.err;
  const ProgramEnd profile =
      Run("ebb-lab profile --json --raw -n 30 --ignore-eos -p abcdefgh", adapter);
  EXPECT_EQ(profile.exit_code, 0) << profile.err;
  EXPECT_THAT(profile.out, HasSubstr(", adapter Marks\""));
  for (const char* command : {"chat", "fit", "ebb-lab fidelity", "ebb-lab eval",
                              "ebb-lab importance", "ebb-bench prefill", "ebb-bench lossless"}) {
    EXPECT_THAT(RunEbb(command + std::string(" --help-all")).out, HasSubstr("--adapter"))
        << command;
  }
}

TEST_F(CliAdapterTest, OneThatDoesNotFitIsRefusedWithItsReason) {
  const auto expect = [&](const std::string& more, const std::string& message) {
    const ProgramEnd end = Generate(more);
    EXPECT_NE(end.exit_code, 0) << more;
    EXPECT_THAT(end.err, HasSubstr(message)) << more;
    EXPECT_EQ(end.out, "") << more;
  };
  expect("--adapter " + of_another_family_,
         "an adapter for models of the family \"qwen2\"; this model is of \"llama\"");
  expect("--adapter " + model_, "expected an adapter's file");
  expect("--adapter " + folder_.File("none.gguf"), "none.gguf: cannot open");
  expect("--policy dms", "this model marks none");
  const ProgramEnd empty = RunEbb({.arguments = {"run", "-m", model_, "-p", "a", "--adapter", ""}});
  EXPECT_THAT(empty.err, HasSubstr("--adapter: expected FILE, found an empty name"));
}

}  // namespace
}  // namespace ebb
