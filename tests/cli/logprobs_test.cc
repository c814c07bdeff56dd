// --logprobs and --top-logprobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
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

class LogprobsFileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  static ProgramEnd Run(const std::string& arguments) {
    return RunEbb("run --raw --threads 1 --ignore-eos -m " + model_->path() + " " + arguments);
  }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::vector<json> Lines(const std::string& path) {
    std::vector<json> lines;
    std::istringstream text(Text(path));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(json::parse(line, nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> LogprobsFileTest::model_;

TEST_F(LogprobsFileTest, GreedyTextTakesTheLikeliest) {
  const std::string file = model_->File("greedy");
  const ProgramEnd end = Run("--temp 0 -n 12 -p tide --top-logprobs 3 --logprobs " + file);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::vector<json> lines = Lines(file);
  ASSERT_EQ(lines.size(), 12U);
  for (const json& line : lines) {
    EXPECT_LT(line["logprob"], 0);
    const json& top = line["top"];
    ASSERT_EQ(top.size(), 3U);
    EXPECT_EQ(top[0]["token"], line["token"]);
    EXPECT_EQ(top[0]["text"], line["text"]);
    EXPECT_EQ(top[0]["logprob"], line["logprob"]);
    EXPECT_LE(top[1]["logprob"], top[0]["logprob"]);
    EXPECT_LE(top[2]["logprob"], top[1]["logprob"]);
  }
}

TEST_F(LogprobsFileTest, SamplingDoesNotChangeThem) {
  const std::string file = model_->File("sampled");
  const std::string grammar = " --grammar root::=[a-b]+ --temp 3 --top-k 2";
  ASSERT_EQ(Run("-n 1 -p tide --logprobs " + file + grammar).exit_code, 0);
  const json chosen = Lines(file).at(0);
  EXPECT_FALSE(chosen.contains("top"));
  ASSERT_EQ(Run("--temp 0 -n 1 -p tide --top-logprobs 100000 --logprobs " + file).exit_code, 0);
  const json free = Lines(file).at(0);
  bool found = false;
  for (const json& likely : free["top"]) {
    if (likely["token"] != chosen["token"]) continue;
    found = true;
    EXPECT_EQ(likely["logprob"], chosen["logprob"]);
  }
  EXPECT_TRUE(found);
}

TEST_F(LogprobsFileTest, LosslessTextHasTheFullCaches) {
  const std::string of_full = model_->File("full"), of_lossless = model_->File("lossless");
  const std::string text = "--temp 0.8 --seed 5 -n 100 -p tide --top-logprobs 2 --logprobs ";
  ASSERT_EQ(Run(text + of_full).exit_code, 0);
  const ProgramEnd end =
      Run(text + of_lossless +
          " --lossless --t1 host --draft streaming:sinks=2,window=9 --draft-min 4");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Lines(of_full).size(), 100U);
  EXPECT_EQ(Text(of_lossless), Text(of_full));
}

TEST_F(LogprobsFileTest, AChatWritesAllItsTurns) {
  const std::string file = model_->File("chat");
  ProgramRun run = {.arguments = Words("chat --temp 0 --threads 1 -n 5 --ignore-eos -m " +
                                       model_->path() + " --logprobs " + file),
                    .input = "one\ntwo\n"};
  const ProgramEnd end = RunEbb(run);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Lines(file).size(), 10U);
}

TEST_F(LogprobsFileTest, AnAnswerThatGoesOnHasThoseOfItsRest) {
  const std::string session = model_->File("session"), file = model_->File("rest");
  ASSERT_EQ(Run("--temp 0 -n 7 -p tide --session " + session).exit_code, 0);
  ASSERT_EQ(Run("--temp 0 -n 4 --session " + session + " --logprobs " + file).exit_code, 0);
  EXPECT_EQ(Lines(file).size(), 4U);
}

TEST_F(LogprobsFileTest, AFileThatCannotBeWrittenIsAnError) {
  const ProgramEnd nowhere = Run("-n 3 -p tide --logprobs /nowhere/file");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_EQ(nowhere.out, "");
  EXPECT_THAT(nowhere.err, HasSubstr("cannot write /nowhere/file"));
  const ProgramEnd full = Run("--temp 0 -n 3 -p tide --logprobs /dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.out, Run("--temp 0 -n 3 -p tide").out);
  EXPECT_THAT(full.err, HasSubstr("cannot write /dev/full"));
  // What fails before the first token leaves what is there.
  const std::string kept = model_->File("kept");
  std::ofstream(kept) << "keep";
  EXPECT_NE(Run("-n 3 -p tide --t0 50 --logprobs " + kept).exit_code, 0);
  EXPECT_EQ(Text(kept), "keep");
  ASSERT_EQ(Run("-n 3 -p tide --logprobs " + kept).exit_code, 0);
  EXPECT_EQ(Lines(kept).size(), 3U);
  const ProgramEnd alone = Run("-n 3 -p tide --top-logprobs 3");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("add --logprobs FILE"));
}

}  // namespace
}  // namespace ebb
