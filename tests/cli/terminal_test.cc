// The program on a terminal: a pseudo-terminal is all three of its streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

// What is typed once the screen shows the text before it.
using Typing = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kPrompt = "> ";

// Whether whole lines are read: not while a line is edited at a prompt, which begins a little after
// the prompt is shown.
bool ReadsLines(int terminal) {
  termios settings = {};
  return tcgetattr(terminal, &settings) == 0 && (settings.c_lflag & ICANON) != 0;
}

struct Terminal {
  std::string cache;  // XDG_CACHE_HOME; empty: a folder of the test program's own
  winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  std::string kind = "xterm";
  std::string no_color;
};

// So wide that no message is broken into lines.
Terminal Wide() {
  return {.cache = "", .size = {.ws_row = 24, .ws_col = 300, .ws_xpixel = 0, .ws_ypixel = 0}};
}

// Everything that came to the screen, and the exit code.
ProgramEnd RunOnTerminal(const std::vector<std::string>& arguments, const Typing& typing = {},
                         const Terminal& asked = {}) {
  static const TempFolder own_cache;
  const std::string cache = asked.cache.empty() ? own_cache.File("") : asked.cache;
  int terminal = -1;
  winsize size = asked.size;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", asked.kind.c_str(), 1);
    setenv("NO_COLOR", asked.no_color.c_str(), 1);
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    std::vector<char*> raw = {const_cast<char*>(EBB_BINARY_PATH)};
    for (const std::string& one : arguments) raw.push_back(const_cast<char*>(one.c_str()));
    raw.push_back(nullptr);
    execv(EBB_BINARY_PATH, raw.data());
    _exit(127);
  }
  ProgramEnd end;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
  size_t typed = 0;
  size_t seen = 0;
  while (true) {
    if (Clock::now() > deadline) kill(child, SIGKILL);
    pollfd file = {terminal, POLLIN, 0};
    poll(&file, 1, 100);
    char buffer[4096];
    const ssize_t count = file.revents != 0 ? read(terminal, buffer, sizeof(buffer)) : 0;
    if (count < 0 || (file.revents != 0 && count == 0)) break;  // EIO: the program has ended
    end.out.append(buffer, static_cast<size_t>(count));
    if (typed == typing.size()) continue;
    const size_t at = end.out.find(typing[typed].first, seen);
    if (at == std::string::npos) continue;
    if (typing[typed].first == kPrompt && ReadsLines(terminal)) continue;
    seen = at + typing[typed].first.size();
    const std::string& keys = typing[typed++].second;
    EXPECT_EQ(write(terminal, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  int state = 0;
  waitpid(child, &state, 0);
  close(terminal);
  end.exit_code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
  return end;
}

class TerminalTest : public testing::Test {
 protected:
  static std::vector<std::string> With(const std::string& words,
                                       const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Words(words);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // Its answer is "yes".
  std::vector<std::string> Run(const std::string& path, const std::string& more) {
    return With("run --temp 0 --threads 1 -p x -m " + path + " " + more,
                {"--grammar", "root ::= \"yes\""});
  }
  std::vector<std::string> Chat() {
    return With("chat --temp 0 --threads 1 -m " + model_.path(), {"--grammar", "root ::= \"yes\""});
  }

  TinyModel model_;
};

TEST_F(TerminalTest, TheTextEndsItsLine) {
  const ProgramEnd end = RunOnTerminal(Run(model_.path(), "--quiet"));
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.out, "yes\r\n");
}

TEST_F(TerminalTest, ThoughtsAreDimmedWhenAsked) {
  const ProgramEnd end =
      RunOnTerminal(Run(model_.thinking_path(), "--quiet --thinking-budget 3 --thoughts dim"));
  EXPECT_EQ(end.out.substr(0, 4), "\033[2m");
  EXPECT_THAT(end.out, EndsWith("</think>\033[0myes\r\n"));
}

TEST_F(TerminalTest, AModelCannotDriveTheTerminal) {
  const std::string hostile =
      R"(root ::= "\x1b]0;pwned\x07\x1b[2J\x08\u009b2J\u202ehi\r!\r\n\t\x7f")";
  const std::string shown = "^[]0;pwned^G^[[2J^H<U+009B>2J<U+202E>hi^M!\r\n\t^?";
  const std::string words = " --temp 0 --threads 1 -m " + model_.path();
  const ProgramEnd run =
      RunOnTerminal(With("run --raw --quiet -p x" + words, {"--grammar", hostile}));
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_EQ(run.out, shown + "\r\n");
  const ProgramEnd chat = RunOnTerminal(With("chat" + words, {"--grammar", hostile}),
                                        {{kPrompt, "x\n"}, {"!", ""}, {kPrompt, "/exit\n"}});
  EXPECT_EQ(chat.exit_code, 0) << chat.out;
  EXPECT_THAT(chat.out, HasSubstr(shown));
  // A pipe gets the bytes.
  const ProgramEnd piped =
      RunEbb({.arguments = With("run --raw --quiet -p x" + words, {"--grammar", hostile})});
  EXPECT_EQ(piped.out, "\033]0;pwned\a\033[2J\b\u009b2J\u202ehi\r!\r\n\t\x7f");
}

TEST_F(TerminalTest, LiveTextCannotDriveTheTerminal) {
  const ProgramEnd end =
      RunOnTerminal(With("run --live --quiet --temp 0 --threads 1 -p x -m " + model_.path(),
                         {"--grammar", R"(root ::= "a\x1b]0;pwned\x07\u009b2J\u202eb")"}));
  EXPECT_EQ(end.exit_code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("a\uFFFD]0;pwned\uFFFD\uFFFD2J\uFFFDb"));
  for (const char* driving : {"\033]", "\u009b", "\u202e", "\a"}) {
    EXPECT_THAT(end.out, Not(HasSubstr(driving)));
  }
}

TEST_F(TerminalTest, ANameInAnErrorCannotDriveTheTerminal) {
  const std::string name = "/no/\033[2J\u009b\u202e.gguf";
  const std::string shown = "/no/^[[2J<U+009B><U+202E>.gguf: cannot open";
  EXPECT_THAT(RunOnTerminal({"run", "-p", "x", "-m", name}).out, HasSubstr(shown));
  // Into a file too, which may be read on a terminal later.
  EXPECT_THAT(RunEbb({.arguments = {"run", "-p", "x", "-m", name}}).err, HasSubstr(shown));
  EXPECT_THAT(RunEbb("fly\033[2J").err, HasSubstr("\"fly^[[2J\""));
}

TEST_F(TerminalTest, ThoughtsAreNotDimmedWhereEscapesOrColoursAreNotWanted) {
  const std::vector<std::string> arguments =
      Run(model_.thinking_path(), "--quiet --thinking-budget 3 --thoughts dim");
  for (const Terminal& terminal : {Terminal{.kind = "dumb"}, Terminal{.no_color = "1"}}) {
    const ProgramEnd end = RunOnTerminal(arguments, {}, terminal);
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_THAT(end.out, Not(HasSubstr("\033"))) << terminal.kind;
    EXPECT_THAT(end.out, EndsWith("</think>yes\r\n"));
  }
}

// How many answers a conversation gave: each is "yes".
int NumAnswers(const std::string& out) {
  int count = 0;
  for (size_t at = 0; (at = out.find("yes\r\n", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_F(TerminalTest, APasteOfSeveralLinesIsOneTurn) {
  const ProgramEnd end = RunOnTerminal(
      Chat(), {{kPrompt, "\033[200~What is this?\rdef f(x):\r  return \u6F6E\r\033[201~\n"},
               {"yes", ""},
               {kPrompt, "/stats\n"},
               {"tokens read", ""},
               {kPrompt, "/exit\n"}});
  EXPECT_EQ(end.exit_code, 0) << end.out;
  EXPECT_EQ(NumAnswers(end.out), 1) << end.out;
  EXPECT_THAT(end.out, HasSubstr("\033[?2004h"));
  EXPECT_GT(end.out.rfind("\033[?2004l"), end.out.rfind("\033[?2004h"));
  // As many tokens as the same lines in quotes.
  const ProgramEnd quoted =
      RunEbb({.arguments = Chat(),
              .input = "\"\"\"What is this?\ndef f(x):\n  return \u6F6E\"\"\"\n/stats\n"});
  const std::string read = quoted.err.substr(0, quoted.err.find(" tokens read"));
  EXPECT_THAT(end.out, HasSubstr(read + " tokens read"));
}

TEST_F(TerminalTest, ATerminalWithoutEscapesIsNotAskedToMarkPastes) {
  const ProgramEnd end = RunOnTerminal(Chat(), {{kPrompt, "/exit\n"}}, {.kind = "dumb"});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, Not(HasSubstr("\033[?2004")));
}

TEST_F(TerminalTest, LinesOfAConversationCanBeEdited) {
  const std::string rubout = "\x7f";
  const ProgramEnd end =
      RunOnTerminal(Chat(), {{kPrompt, "/sta" + rubout + rubout + rubout + "stats\n"},
                             {"yet", ""},
                             {kPrompt, "hi\n"},
                             {"yes", ""},
                             {kPrompt, "/exit\n"}});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, HasSubstr("nothing was said yet"));
  EXPECT_THAT(end.out, HasSubstr("yes\r\n"));
}

TEST_F(TerminalTest, CtrlCAtThePromptClearsTheLineAndTheSecondOnAnEmptyOneLeaves) {
  const ProgramEnd end = RunOnTerminal(Chat(), {{kPrompt, "half typed"},
                                                {"half typed", "\x03"},
                                                {kPrompt, "hi\n"},
                                                {"yes", ""},
                                                {kPrompt, "\x03"},
                                                {"ends the conversation", ""},
                                                {kPrompt, "\x03"}});
  EXPECT_EQ(end.exit_code, 130) << end.out;
  EXPECT_EQ(NumAnswers(end.out), 1) << end.out;
  EXPECT_THAT(end.out, HasSubstr("ebb: interrupted"));
  EXPECT_GT(end.out.rfind("\033[?2004l"), end.out.rfind("\033[?2004h"));
}

// The file takes seconds to read; the conversation goes on behind it.
TEST_F(TerminalTest, CtrlCWhileAQuestionIsReadTakesItBack) {
  const TempFolder folder;
  const std::string path = folder.File("slow.gguf"), text = folder.File("long.txt");
  ASSERT_TRUE(WriteRandomGguf({.num_layers = 4,
                               .embed_dim = 512,
                               .num_q_heads = 8,
                               .feed_forward_dim = 2048,
                               .context = 32768},
                              path)
                  .ok());
  std::ofstream file(text);
  for (int i = 0; i < 2000; ++i) file << "line " << i << '\n';
  file.close();
  const ProgramEnd end =
      RunOnTerminal(With("chat --temp 0 --threads 1 -m " + path, {"--grammar", "root ::= \"yes\""}),
                    {{kPrompt, "/read " + text + "\n"},
                     {kPrompt, "what does it say?\n"},
                     {"reading the prompt", "\x03"},
                     {"is taken back", ""},
                     {kPrompt, "/reset\n"},
                     {kPrompt, "hi\n"},
                     {"tokens/s]", ""},
                     {kPrompt, "/exit\n"}});
  EXPECT_EQ(end.exit_code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("stopping when the tokens that are being read are done"));
  EXPECT_THAT(end.out, HasSubstr("the question was not read to its end and is taken back"));
}

TEST_F(TerminalTest, AConversationSaysWhatItRunsAndWhatEachAnswerTook) {
  const ProgramEnd end =
      RunOnTerminal(Chat(), {{kPrompt, "hi\n"}, {"tokens/s]", ""}, {kPrompt, "/exit\n"}}, Wide());
  EXPECT_THAT(end.out, ContainsRegex("256 tokens of context, full cache in f16; /help shows"));
  EXPECT_THAT(end.out, ContainsRegex("\\[[0-9]+ of 256 tokens; [0-9.]+ tokens/s\\]"));
}

TEST_F(TerminalTest, TabCompletesCommandsAndFiles) {
  std::ofstream(model_.File("story.txt")) << "once\n";
  // Control-U removes the line.
  const ProgramEnd end =
      RunOnTerminal(Chat(), {{kPrompt, "/sys\t"},
                             {"tem ", "\x15/read " + model_.File("sto") + "\t\n"},
                             {"5 bytes of ", ""},
                             {kPrompt, "/s\t"},
                             {"/system   /set   /save   /stats", "\x15/exit\n"}});
  EXPECT_EQ(end.exit_code, 0) << end.out;
  EXPECT_THAT(end.out, HasSubstr("story.txt go before the next question"));
}

TEST_F(TerminalTest, TurnsOfEarlierRunsAreRecalledWithAllTheirLines) {
  const Terminal terminal = {.cache = model_.File("history")};
  ASSERT_EQ(
      RunOnTerminal(
          Chat(),
          {{kPrompt, "\"\"\"one\n"}, {". ", "two\"\"\"\n"}, {"yes", ""}, {kPrompt, "/exit\n"}},
          terminal)
          .exit_code,
      0);
  const std::string up = "\033[A";
  const ProgramEnd end = RunOnTerminal(Chat(),
                                       {{kPrompt, up + up + "\n"},
                                        {"yes", ""},
                                        {kPrompt, "/stats\n"},
                                        {"tokens read", ""},
                                        {kPrompt, "/exit\n"}},
                                       terminal);
  EXPECT_EQ(NumAnswers(end.out), 1) << end.out;
  const ProgramEnd typed = RunEbb({.arguments = Chat(), .input = "\"\"\"one\ntwo\"\"\"\n/stats\n"});
  const std::string read = typed.err.substr(0, typed.err.find(" tokens read"));
  EXPECT_THAT(end.out, HasSubstr(read + " tokens read"));
  const auto mode = std::filesystem::status(terminal.cache + "/ebb/chat_history").permissions();
  EXPECT_EQ(mode & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(TerminalTest, CtrlDAtThePromptEndsTheConversation) {
  EXPECT_EQ(RunOnTerminal(Chat(), {{kPrompt, "\x04"}}).exit_code, 0);
}

TEST_F(TerminalTest, ThePromptIsAskedForAndEndsWithCtrlD) {
  const ProgramEnd end = RunOnTerminal(With("run --temp 0 --threads 1 --quiet -m " + model_.path(),
                                            {"--grammar", "root ::= \"yes\""}),
                                       {{"Ctrl-D ends it", "hello\n\x04"}});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, EndsWith("yes\r\n"));
}

constexpr const char* kEnter = "\033[?1049h";
constexpr const char* kLeave = "\033[?1049l";

// Rows go to all four tiers.
constexpr const char* kTiers = " --t0 50% --t1 host --t2 50% --evict 30% --window 2 --interval 2";

class LiveTest : public TerminalTest {
 protected:
  std::vector<std::string> Live(const std::string& more) {
    return Words("run --raw --live --temp 0 --threads 1 --ignore-eos -p tide -m " + model_.path() +
                 " " + more);
  }
  static std::string WithoutEscapes(const std::string& out) {
    return std::regex_replace(out, std::regex("\033\\[[?0-9;]*[A-Za-z]"), "");
  }
  static std::string AfterTheScreen(const std::string& out) {
    return out.substr(out.rfind(kLeave) + std::string(kLeave).size());
  }
};

TEST_F(LiveTest, TokensShowTheirTiersAndTheScreenComesBack) {
  const ProgramEnd end = RunOnTerminal(Live("-n 60" + std::string(kTiers)), {}, Wide());
  EXPECT_EQ(end.exit_code, 0) << end.out;
  EXPECT_LT(end.out.find(kEnter), end.out.find(kLeave));
  const std::string after = AfterTheScreen(end.out);
  for (const char* style : {"\033[32m", "\033[36m", "\033[33m", "\033[9;90m"}) {
    EXPECT_THAT(after, HasSubstr(style));
  }
  EXPECT_THAT(after, HasSubstr("60 generated at "));
  EXPECT_THAT(after, HasSubstr("the first rows were evicted, for good (--evict 30%)"));
  EXPECT_THAT(after, HasSubstr("(--t2 50%:int8)"));
}

TEST_F(LiveTest, WithoutColoursTiersDifferByAttributes) {
  const ProgramEnd end =
      RunOnTerminal(Live("-n 60 --quiet" + std::string(kTiers)), {}, {.no_color = "1"});
  EXPECT_THAT(end.out, Not(ContainsRegex("\033\\[([0-9]*;)*[39][0-7]m")));
  for (const char* style : {"\033[4m", "\033[3m", "\033[9m"}) {
    EXPECT_THAT(AfterTheScreen(end.out), HasSubstr(style));
  }
}

TEST_F(LiveTest, ATerminalThatCannotMoveItsCursorGetsPlainText) {
  const ProgramEnd end = RunOnTerminal(Live("-n 20 --quiet"), {}, {.kind = "dumb"});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, Not(HasSubstr("\033")));
}

TEST_F(LiveTest, CtrlCGivesTheScreenBackAndKeepsTheText) {
  const ProgramEnd end =
      RunOnTerminal(Live("--policy streaming --window 16 --past-context rerotate"),
                    {{kEnter, ""}, {"tokens/s", "\x03"}});
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(AfterTheScreen(end.out), HasSubstr("ebb: interrupted"));
  EXPECT_THAT(end.out, HasSubstr("\033[?25h"));
}

TEST_F(LiveTest, ASignalThatEndsTheProgramAtOnceGivesTheScreenBackFirst) {
  const ProgramEnd end =
      RunOnTerminal(Live("--policy streaming --window 16 --past-context rerotate"),
                    {{kEnter, ""}, {"tokens/s", "\x1c"}});  // Ctrl-backslash
  EXPECT_EQ(end.exit_code, 128 + SIGQUIT);
  EXPECT_THAT(end.out, HasSubstr("\033[?25h\033[?1049l"));
}

// The answer's last token is not in the saved session, but was shown.
TEST_F(LiveTest, AnAnswerThatGoesOnIsShownWhole) {
  const std::string more = " --quiet --live --session " + model_.File("session");
  const std::vector<std::string> grammar = {"--grammar", "root ::= \"q7x\""};
  const std::string words = "run --temp 0 --threads 1 -n 1 -m " + model_.path() + more;
  ASSERT_EQ(RunOnTerminal(With(words + " -p tide", grammar)).exit_code, 0);
  const ProgramEnd end = RunOnTerminal(With(words, grammar));
  EXPECT_EQ(end.exit_code, 0) << end.out;
  const std::string shown = WithoutEscapes(end.out.substr(0, end.out.rfind(kLeave)));
  EXPECT_THAT(shown, HasSubstr("assistant\r\r\nq"));
}

TEST_F(LiveTest, AnAnswerThatEndsItsLineGetsNoEmptyOne) {
  const ProgramEnd end =
      RunOnTerminal(With("run --live --quiet --temp 0 --threads 1 -p x -m " + model_.path(),
                         {"--grammar", "root ::= \"yes\\n\""}));
  EXPECT_EQ(WithoutEscapes(AfterTheScreen(end.out)), "yes\r\n");
}

TEST_F(LiveTest, AScreenOfOneLineIsEnough) {
  const ProgramEnd end = RunOnTerminal(Live("-n 30 --quiet" + std::string(kTiers)), {},
                                       {.size = {.ws_row = 1, .ws_col = 1}});
  EXPECT_EQ(end.exit_code, 0) << end.out;
}

// Beside the text, which shows verified words alone. The text is long enough for many frames.
TEST_F(LiveTest, WhatIsDraftedIsShownOnALineOfItsOwn) {
  const std::string path = model_.File("long.gguf");
  ASSERT_TRUE(WriteRandomGguf({}, path).ok());
  std::vector<std::string> arguments = Words(
      "run --raw --live --quiet --ignore-eos --threads 1 -p tide -n 1500 --lossless --t1 host "
      "--draft "
      "full --draft-min 16 --draft-max 16 --no-draft-lookup -m " +
      path + " --grammar");
  arguments.emplace_back(R"(root ::= (("ebb" | "flow" | "tide" | "moon" | "shore") " ")+)");
  const ProgramEnd end = RunOnTerminal(arguments, {}, {.size = {.ws_row = 60, .ws_col = 100}});
  EXPECT_EQ(end.exit_code, 0) << end.out;
  const std::string text = WithoutEscapes(AfterTheScreen(end.out));
  const std::string shown = WithoutEscapes(end.out);
  const std::regex drafted("drafted: ([a-z ]{3,})");
  int found = 0;
  for (std::sregex_iterator it(shown.begin(), shown.end(), drafted), none; it != none; ++it) {
    EXPECT_THAT(text, HasSubstr((*it)[1].str()));
    ++found;
  }
  EXPECT_GT(found, 0) << shown;
  EXPECT_THAT(RunOnTerminal(Live("-n 20 --quiet")).out, Not(HasSubstr("drafted: ")));
}

TEST_F(LiveTest, AConversationIsShownTurnByTurn) {
  std::vector<std::string> arguments = Chat();
  arguments.push_back("--live");
  const ProgramEnd end = RunOnTerminal(
      arguments,
      {{kPrompt, "hi\n"}, {kLeave, ""}, {kPrompt, "ho\n"}, {kLeave, ""}, {kPrompt, "/exit\n"}});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, HasSubstr("yes"));
}

}  // namespace
}  // namespace ebb
