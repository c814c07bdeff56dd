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

  // How many rows were kept whenever /stats was asked.
  static std::vector<size_t> RowsKept(const std::string& err) {
    std::vector<size_t> counts;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find(", ");
      size_t count = 0;
      if (line.starts_with("[cache: ") && std::sscanf(line.c_str() + at, ", %zu", &count) == 1) {
        counts.push_back(count);
      }
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

TEST_F(ChatTest, WhereRowsHaveLeftAWindowAThoughtIsForgottenFromACheckpointOn) {
  const ProgramEnd end = Talk(model_->windows_path(), "one\n/stats\none\n/stats\n",
                              "--thinking-budget 20 --thoughts hide");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "yes\nyes\n");
  const std::vector<size_t> read = TokensRead(end.err);
  ASSERT_EQ(read.size(), 2u) << end.err;
  EXPECT_EQ(read[0], Tokens("[U]one[A]<think>\n").size());
  // The prompt's last checkpoint stands ahead of the thought.
  const size_t all = Tokens("[U]one[A]yes<|im_end|>[U]one[A]<think>\n").size();
  EXPECT_EQ(read[1], all - Tokens("[U]one[A]").size());
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
  EXPECT_THAT(
      end.err,
      HasSubstr(
          "unknown command /fly; expected /exit, /reset, /stats or /help; write //fly to ask it"));
}

TEST_F(ChatTest, LinesMayEndWithACarriageReturn) {
  const ProgramEnd end = Talk(model_->path(), "one\r\n/stats\r\n\r\n/exit\r\ntwo\r\n");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "yes\n");
  EXPECT_EQ(TokensRead(end.err), TokensRead(Talk(model_->path(), "one\n/stats\n").err));
}

TEST_F(ChatTest, AQuestionMayBeginWithASlash) {
  const auto plain = TokensRead(Talk(model_->path(), "?/etc/hosts: what is it for?\n/stats\n").err);
  for (const std::string line : {"/etc/hosts: what is it for??", "//etc/hosts: what is it for??"}) {
    const ProgramEnd end = Talk(model_->path(), line + "\n/stats\n");
    EXPECT_EQ(end.out, "yes\n") << end.err;
    EXPECT_EQ(TokensRead(end.err), plain) << line;
  }
}

TEST_F(ChatTest, QuotesTakeSeveralLinesAsOneTurnAndBlanksAreNone) {
  const ProgramEnd end = Talk(model_->path(), "\"\"\"\none\n/exit\ntwo\n\"\"\"\n  \t\nthree\n");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "yes\nyes\n");
}

TEST_F(ChatTest, HelpTellsHowTurnsAreWritten) {
  const ProgramEnd end = Talk(model_->path(), "/help\n");
  for (const char* part : {"/exit", "/reset", "/stats", "//", "\"\"\""}) {
    EXPECT_THAT(end.err, HasSubstr(part));
  }
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

TEST_F(ChatTest, ATurnThatOutgrowsTheCacheIsTakenBackAndTheConversationGoesOn) {
  const struct {
    std::string limit;
    std::string message;
  } cases[] = {{"--policy attention --budget 400 --sinks 2 --window 8", "ebb: budget of 400 rows"},
               {"--kv-type f32 --kv-cap 2MiB", "cap of 2097152 bytes"},
               {"--context 400", "ebb: the context of 400 tokens is full"}};
  const std::string long_line(1500, '.');
  for (const auto& [limit, message] : cases) {
    const std::string more = limit + " --rope-scaling linear --rope-factor 16";
    const ProgramEnd end =
        Talk(model_->path(), "one\n/stats\n" + long_line + "\n/stats\ntwo\n/stats\n", more);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(end.out, "yes\nyes\n");
    EXPECT_THAT(end.err, HasSubstr(message));
    EXPECT_THAT(end.err, HasSubstr("the turn was taken back"));
    const std::vector<size_t> rows = RowsKept(end.err);
    ASSERT_EQ(rows.size(), 3u) << end.err;
    // 4 rows a token; of the first answer stays what the template's text begins with too.
    EXPECT_GE(rows[1], 4 * TokensRead(end.err).front()) << limit;
    EXPECT_LE(rows[1], rows[0]) << limit;
    const ProgramEnd without = Talk(model_->path(), "one\n/stats\ntwo\n/stats\n", more);
    EXPECT_EQ(TokensRead(end.err).back(), TokensRead(without.err).back()) << limit;
    EXPECT_EQ(rows[2], RowsKept(without.err).back()) << limit;
  }
}

TEST_F(ChatTest, AnAnswerThatOutgrowsTheContextIsTakenBackWithItsTurn) {
  const ProgramEnd end =
      RunEbb({.arguments = Words("chat --temp 0 --threads 1 --ignore-eos -m " + model_->path()),
              .input = "one\n/stats\none\n/stats\n"});
  EXPECT_EQ(end.exit_code, 3);
  const std::vector<size_t> rows = RowsKept(end.err);
  const std::vector<size_t> read = TokensRead(end.err);
  ASSERT_EQ(rows.size(), 2u) << end.err;
  ASSERT_EQ(read.size(), 2u) << end.err;
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_LE(read[1], read[0]);
  EXPECT_THAT(end.err, HasSubstr("ended by: context"));
  EXPECT_THAT(end.err, Not(HasSubstr(", 0 generated")));
}

TEST_F(ChatTest, AClosedStdoutEndsTheConversation) {
  ProgramRun run = {.arguments = Words("chat --temp 0 --threads 1 --ignore-eos --rope-scaling "
                                       "linear --rope-factor 1000 -m " +
                                       model_->path()),
                    .input = "one\n/stats\n",
                    .close_stdout_after = 10};
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("ebb: stdout was closed; stopped\n"));
  EXPECT_THAT(end.err, Not(HasSubstr("tokens read")));
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
