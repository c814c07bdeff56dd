#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::Not;

class ChatTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  // Every answer is "yes".
  static ProgramEnd Talk(const std::string& path, const std::string& input,
                         const std::string& more = "") {
    ProgramRun run = {.arguments = Words("chat --temp 0 --threads 1 -m " + path + " " + more),
                      .input = input};
    run.arguments.insert(run.arguments.end(), {"--grammar", "root ::= \"yes\""});
    return RunEbb(run);
  }
  static std::vector<Token> Tokens(const std::string& text) {
    const auto model = Model::Load({.path = model_->thinking_path()});
    const auto tokens =
        (*model)->Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse);
    EXPECT_TRUE(tokens.ok());
    return *tokens;
  }
  // How many tokens each turn that /stats was asked about has read.
  static std::vector<size_t> TokensRead(const std::string& err) {
    std::vector<size_t> counts;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) {
      size_t count = 0;
      if (std::sscanf(line.c_str(), "[%zu tokens read", &count) == 1) counts.push_back(count);
    }
    return counts;
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> ChatTest::model_;

TEST_F(ChatTest, AnswersEveryTurnOnALineOfItsOwn) {
  const ProgramEnd end = Talk(model_->path(), "one\n\ntwo\n");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "yes\nyes\n");
}

TEST_F(ChatTest, LaterTurnsReadOnlyWhatIsNew) {
  const ProgramEnd end = Talk(model_->path(), "a b c d e f\n/stats\ng\n/stats\ng\n/stats\n");
  // "<|im_end|>\n" of the answer, then a turn of "g": the same each time.
  const std::vector<size_t> read = TokensRead(end.err);
  ASSERT_EQ(read.size(), 3u) << end.err;
  EXPECT_LT(read[1], read[0]);
  EXPECT_EQ(read[1], read[2]);
}

TEST_F(ChatTest, AThoughtThatTheTemplateDropsIsForgottenAndTheRestReadAgain) {
  const ProgramEnd end = Talk(model_->thinking_path(), "one\n/stats\none\n/stats\n",
                              "--thinking-budget 20 --thoughts hide");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "yes\nyes\n");
  const std::vector<size_t> read = TokensRead(end.err);
  ASSERT_EQ(read.size(), 2u) << end.err;
  const std::vector<Token> first = Tokens("[U]one[A]<think>\n");
  const std::vector<Token> second = Tokens("[U]one[A]yes<|im_end|>[U]one[A]<think>\n");
  const auto differ = std::mismatch(first.begin(), first.end(), second.begin());
  const auto kept = static_cast<size_t>(differ.first - first.begin());
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(read[0], first.size());
  EXPECT_EQ(read[1], second.size() - kept);
}

TEST_F(ChatTest, ResetForgetsTheConversation) {
  const ProgramEnd end = Talk(model_->path(), "one\n/stats\n/reset\n/stats\none\n/stats\n");
  const std::vector<size_t> read = TokensRead(end.err);
  ASSERT_EQ(read.size(), 2u) << end.err;
  EXPECT_EQ(read[0], read[1]);
  EXPECT_THAT(end.err, HasSubstr("nothing was said yet"));
}

TEST_F(ChatTest, ExitEndsTheConversation) {
  const ProgramEnd end = Talk(model_->path(), "one\n/exit\ntwo\n");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.out, "yes\n");
}

TEST_F(ChatTest, AnUnknownCommandIsNamed) {
  const ProgramEnd end = Talk(model_->path(), "/fly\n");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("unknown command /fly; expected /exit, /reset or /stats"));
}

TEST_F(ChatTest, ASystemMessageIsRead) {
  const auto plain = TokensRead(Talk(model_->path(), "one\n/stats\n").err);
  const auto system = TokensRead(Talk(model_->path(), "one\n/stats\n", "--system brief").err);
  ASSERT_EQ(plain.size(), 1u);
  ASSERT_EQ(system.size(), 1u);
  EXPECT_GT(system[0], plain[0]);
}

TEST_F(ChatTest, AFullContextIsSaidAndCanBeLeftByReset) {
  const std::string long_line(300, '.');
  const ProgramEnd end = Talk(model_->path(), long_line + "\n/reset\none\n");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("ebb: the context of 256 tokens is full"));
  EXPECT_EQ(end.out, "yes\n");
  EXPECT_EQ(Talk(model_->path(), long_line + "\n").exit_code, 3);
}

TEST_F(ChatTest, CtrlCEndsTheAnswerAndNotTheConversation) {
  ProgramRun run = {.arguments = Words("chat --temp 0 --threads 1 --ignore-eos --rope-scaling "
                                       "linear --rope-factor 1000 -m " +
                                       model_->path()),
                    .input = "one\n/stats\n/exit\n",
                    .interrupt_after = 10};
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.err, HasSubstr("ebb: interrupted\n"));
  EXPECT_THAT(end.err, HasSubstr("ended by: cancelled"));
  EXPECT_THAT(end.err, Not(HasSubstr("error")));
}

}  // namespace
}  // namespace ebb
