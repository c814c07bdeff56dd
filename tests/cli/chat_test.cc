#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using testing::ContainsRegex;
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

  // How many tokens T0 held whenever /stats was asked.
  static std::vector<size_t> TokensKept(const std::string& err) {
    std::vector<size_t> counts;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find("; T0 ");
      size_t count = 0;
      if (at != std::string::npos && std::sscanf(line.c_str() + at, "; T0 %zu", &count) == 1) {
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
  EXPECT_THAT(end.err, HasSubstr("unknown command /fly; expected /help, /exit, /reset, /regen, "
                                 "/read, /system, /set, /save, "
                                 "/load, /stats; write //fly to ask it"));
}

TEST_F(ChatTest, ACommandWithoutItsArgumentOrWithTooMuchSaysSo) {
  const ProgramEnd end =
      Talk(model_->path(), "/save\n/load\n/read\n/exit now\n/help save\n/bye bye\n");
  EXPECT_EQ(end.out, "");
  for (const char* const command : {"/save", "/load", "/read"}) {
    EXPECT_THAT(end.err, HasSubstr(fmt::format("{0} needs a file: {0} FILE\n", command)));
  }
  EXPECT_THAT(end.err, HasSubstr("/exit takes no argument; write //exit now to ask it"));
  EXPECT_THAT(end.err, HasSubstr("/help takes no argument"));
  EXPECT_THAT(end.err, HasSubstr("/bye takes no argument"));
  EXPECT_THAT(end.err, Not(HasSubstr("unknown command")));
}

TEST_F(ChatTest, SystemAloneShowsTheMessageAndNoneRemovesIt) {
  const ProgramEnd end =
      Talk(model_->path(), "/system\n/system brief\n/system\n/system none\n/system\n");
  EXPECT_THAT(end.err,
              ContainsRegex("there is no system message\n(.|\n)*under this system message\n"
                            "(.|\n)*brief\n(.|\n)*no system message from here on\n"
                            "(.|\n)*there is no system message\n"));
}

TEST_F(ChatTest, AFileIsReadBeforeTheNextQuestionAlone) {
  const std::string file = model_->File("notes.txt");
  std::ofstream(file) << "low water\n";
  const ProgramEnd end = Talk(model_->path(), "/read " + file + "\none\n/stats\ntwo\n/stats\n");
  EXPECT_EQ(end.out, "yes\nyes\n") << end.err;
  const ProgramEnd typed =
      Talk(model_->path(), "\"\"\"" + file +
                               ":\n```\nlow water\n```\n\none\"\"\"\n/stats\ntwo\n"
                               "/stats\n");
  EXPECT_EQ(TokensRead(end.err), TokensRead(typed.err)) << end.err;
  EXPECT_THAT(Talk(model_->path(), "/read /no/such/file\n").err, HasSubstr("/no/such/file"));
  EXPECT_THAT(Talk(model_->path(), "/read\n").err, HasSubstr("/read needs a file"));
}

TEST_F(ChatTest, TheLastQuestionIsAnsweredAgainInPlaceOfItsAnswer) {
  const ProgramEnd end = Talk(model_->path(), "/regen\none\n/regen\ntwo\n/stats\n");
  EXPECT_EQ(end.out, "yes\nyes\nyes\n") << end.err;
  EXPECT_THAT(end.err, HasSubstr("nothing was asked yet"));
  EXPECT_EQ(TokensRead(end.err), TokensRead(Talk(model_->path(), "one\ntwo\n/stats\n").err));
  // At a temperature above 0 the second answer uses other random draws.
  const std::string path = model_->path();
  ProgramRun run = {.arguments = Words("chat --temp 5 --threads 1 -n 8 --ignore-eos -m " + path),
                    .input = "one\n/regen\n"};
  std::istringstream lines(RunEbb(run).out);
  std::string first;
  std::string second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_NE(first, second);
}

TEST_F(ChatTest, AConversationIsSavedAndGoesOn) {
  const std::string file = model_->File("talk.session");
  const ProgramEnd end =
      Talk(model_->path(), "one\n/save " + file + "\n/reset\n/load " + file + "\ntwo\n/stats\n");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(TokensRead(end.err), TokensRead(Talk(model_->path(), "one\ntwo\n/stats\n").err));
  EXPECT_THAT(Talk(model_->path(), "/load /no/such/file\n/save /no/such/file\none\n").out, "yes\n");
}

TEST_F(ChatTest, OptionsAndTheSystemMessageAreSetInAConversation) {
  const ProgramEnd end = Talk(model_->path(), "/set\n/set temp 0.5\n/set temp warm\n/set fly 1\n");
  EXPECT_THAT(end.err, HasSubstr("temp 0\n"));
  EXPECT_THAT(end.err, HasSubstr("temp is 0.5 from here on"));
  EXPECT_THAT(end.err, HasSubstr("/set temp: expected a number"));
  EXPECT_THAT(end.err, HasSubstr("/set: there is no sampling option fly; /set alone"));
  const ProgramEnd ollama =
      Talk(model_->path(), "/set temperature 0.2\n/set top_k 20\n/set temp\n/set tpo-k 4\n");
  EXPECT_THAT(ollama.err, HasSubstr("temp is 0.2 from here on"));
  EXPECT_THAT(ollama.err, HasSubstr("top-k is 20 from here on"));
  EXPECT_THAT(ollama.err, HasSubstr("\ntemp 0.2\n"));
  EXPECT_THAT(ollama.err, HasSubstr("no sampling option tpo-k; did you mean top-k?"));
  const auto set = TokensRead(Talk(model_->path(), "/system brief\none\n/stats\n").err);
  const auto given = TokensRead(Talk(model_->path(), "one\n/stats\n", "--system brief").err);
  EXPECT_EQ(set, given);
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
               {"--kv-type f32 --kv-cap 2MiB", "cap of 2 MiB"},
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
    const std::vector<size_t> rows = TokensKept(end.err);
    ASSERT_EQ(rows.size(), 3u) << end.err;
    // The first answer's beginning stays where the template's text begins with it too.
    EXPECT_GE(rows[1], TokensRead(end.err).front()) << limit;
    EXPECT_LE(rows[1], rows[0]) << limit;
    const ProgramEnd without = Talk(model_->path(), "one\n/stats\ntwo\n/stats\n", more);
    EXPECT_EQ(TokensRead(end.err).back(), TokensRead(without.err).back()) << limit;
    EXPECT_EQ(rows[2], TokensKept(without.err).back()) << limit;
  }
}

TEST_F(ChatTest, AnAnswerThatOutgrowsTheContextIsTakenBackWithItsTurn) {
  const ProgramEnd end =
      RunEbb({.arguments = Words("chat --temp 0 --threads 1 --ignore-eos -m " + model_->path()),
              .input = "one\n/stats\none\n/stats\n"});
  EXPECT_EQ(end.exit_code, 3);
  const std::vector<size_t> rows = TokensKept(end.err);
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
