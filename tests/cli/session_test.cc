#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/session_file.h"
#include "ebb/state.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/gguf_edit.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }
  void SetUp() override { std::filesystem::remove(File()); }

  static std::string File() { return model_->File("talk"); }
  static ProgramEnd Ebb(const std::string& arguments, const std::vector<std::string>& more = {},
                        const std::string& input = "") {
    ProgramRun run = {.arguments = Words(arguments + " --threads 1 -m " + model_->path()),
                      .input = input};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    return RunEbb(run);
  }
  static ProgramEnd InSession(const std::string& arguments,
                              const std::vector<std::string>& more = {},
                              const std::string& input = "") {
    return Ebb(arguments + " --session " + File(), more, input);
  }
  static std::string Hash(const ProgramEnd& end) {
    const json record = json::parse(LastLine(end.err), nullptr, false);
    EXPECT_TRUE(record.is_object()) << end.err;
    return record.is_object() ? record["logits_hash"].get<std::string>() : "";
  }
  static std::string Content() {
    std::ifstream file(File(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> SessionTest::model_;

// One run of 90 tokens, and the same in three processes.
TEST_F(SessionTest, AnAnswerInPartsIsTheAnswerInOne) {
  for (const std::string sampling :
       {"--temp 0", "--temp 1.2 --seed 7", "--temp 0 --repeat-penalty 1.7",
        "--temp 0.9 --seed 3 --repeat-penalty 1.3 --policy h2o --budget 40",
        "--temp 0 --t0 40% --t1 host --t2 40%:int4 --window 4 --interval 4"}) {
    for (const std::string kind : {"", " --raw"}) {
      std::filesystem::remove(File());
      const std::string common = "run --ignore-eos --json " + sampling + kind;
      const ProgramEnd whole = Ebb(common + " -n 90 -p hello");
      ASSERT_EQ(whole.exit_code, 0) << whole.err;
      std::string text;
      ProgramEnd part = InSession(common + " -n 25 -p hello");
      text += part.out;
      for (const std::string tokens : {"40", "25"}) {
        ASSERT_EQ(part.exit_code, 0) << part.err;
        part = InSession(common + " -n " + tokens);
        text += part.out;
      }
      EXPECT_EQ(text, whole.out) << common;
      EXPECT_EQ(Hash(part), Hash(whole)) << common;
    }
  }
}

TEST_F(SessionTest, AnAnswerUnderAGrammarGoesOnInIt) {
  const std::vector<std::string> grammar = {"--grammar", "root ::= \"one two three four\""};
  const ProgramEnd first = InSession("run --temp 0 -n 5 -p hello", grammar);
  const ProgramEnd second = InSession("run --temp 0 -n 200", grammar);
  EXPECT_EQ(first.out + second.out, "one two three four") << first.err << second.err;
  const ProgramEnd third = InSession("run --temp 0 -n 200", grammar);
  EXPECT_EQ(third.exit_code, 2);
  EXPECT_THAT(third.err, HasSubstr("the session's last answer is over"));
}

TEST_F(SessionTest, TheNextPromptIsTheNextTurn) {
  const std::vector<std::string> yes = {"--grammar", "root ::= \"yes\""};
  const std::string common = "--temp 0";
  const ProgramEnd chat = Ebb("chat " + common, yes, "one\ntwo\n/stats\n");
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  (void)InSession("run " + common + " -p one", yes);
  const ProgramEnd second = InSession("run " + common + " -p two", yes);
  EXPECT_EQ(second.out, "yes") << second.err;
  const std::string read = LastLine(second.err.substr(0, second.err.find(" tokens read")));
  EXPECT_THAT(chat.err, HasSubstr(read + " tokens read"));
}

TEST_F(SessionTest, AChatGoesOnWhereItEnded) {
  const std::vector<std::string> yes = {"--grammar", "root ::= \"yes\""};
  const ProgramEnd whole = Ebb("chat --temp 0", yes, "one\ntwo\nthree\n/stats\n");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(InSession("chat --temp 0", yes, "one\ntwo\n").out, "yes\nyes\n");
  const ProgramEnd rest = InSession("chat --temp 0", yes, "three\n/stats\n");
  EXPECT_EQ(rest.out, "yes\n");
  EXPECT_THAT(rest.err, HasSubstr("tokens resumed from " + File()));
  const auto tokens_read = [](const std::string& err) {
    const size_t end = err.rfind(" tokens read");
    return err.substr(err.rfind('[', end), end - err.rfind('[', end));
  };
  EXPECT_EQ(tokens_read(rest.err), tokens_read(whole.err));
}

TEST_F(SessionTest, ResetBeginsANewConversationInTheSameFile) {
  const std::vector<std::string> yes = {"--grammar", "root ::= \"yes\""};
  (void)InSession("chat --temp 0", yes, "one\ntwo\n");
  const std::string longer = Content();
  EXPECT_EQ(InSession("chat --temp 0", yes, "/reset\none\n").exit_code, 0);
  EXPECT_LT(Content().size(), longer.size());
  EXPECT_EQ(InSession("chat --temp 0", yes, "/reset\n").exit_code, 0);
  const ProgramEnd end = InSession("chat --temp 0", yes, "/exit\n");
  EXPECT_THAT(end.err, HasSubstr("[session: 0 tokens resumed from"));
}

TEST_F(SessionTest, ASignalSavesWhatWasSaid) {
  const std::string common = "run --temp 0 --ignore-eos --threads 1 -m " + model_->path() +
                             " --rope-scaling linear --rope-factor 900";
  const struct {
    int signal;
    int exit_code;
  } cases[] = {{SIGINT, 130}, {SIGTERM, 130}, {SIGHUP, 129}};
  for (const auto& [signal, exit_code] : cases) {
    std::filesystem::remove(File());
    const ProgramEnd first = RunEbb({.arguments = Words(common + " -p hello --session " + File()),
                                     .interrupt_after = 10,
                                     .signal = signal});
    EXPECT_EQ(first.exit_code, exit_code);
    const ProgramEnd second = RunEbb(common + " -n 20 --json --session " + File());
    ASSERT_EQ(second.exit_code, 0) << second.err;
    const json record = json::parse(LastLine(second.err));
    EXPECT_EQ(record["generated_tokens"], 20);
    const ProgramEnd whole = RunEbb({.arguments = Words(common + " -n 4000 -p hello"),
                                     .close_stdout_after = (first.out + second.out).size()});
    EXPECT_EQ(whole.out.substr(0, first.out.size() + second.out.size()), first.out + second.out);
  }
}

TEST_F(SessionTest, AHangUpDuringAnAnswerSavesAndEndsTheConversation) {
  ProgramRun run = {
      .arguments = Words("chat --temp 0 --ignore-eos --threads 1 -m " + model_->path() +
                         " --rope-scaling linear --rope-factor 900" + " --session " + File()),
      .input = "one\ntwo\nthree\n",
      .interrupt_after = 10,
      .signal = SIGHUP};
  const ProgramEnd first = RunEbb(run);
  EXPECT_EQ(first.exit_code, 129);
  run.interrupt_after.reset();
  run.input = "/exit\n";
  EXPECT_THAT(RunEbb(run).err, HasSubstr(" tokens resumed from " + File()));
}

TEST_F(SessionTest, ASecondProcessOnTheFileIsRefusedBeforeAnythingIsGenerated) {
  const std::string rope = " --rope-scaling linear --rope-factor 900";
  std::filesystem::create_symlink("talk", model_->File("link"));
  std::vector<ProgramEnd> others;
  // While it answers the first process has another one beside it, by the file's name and by a link.
  const ProgramEnd first =
      RunEbb({.arguments = Words("run --temp 0 --ignore-eos --threads 1 -n 9000 -p hello -m " +
                                 model_->path() + rope + " --session " + File()),
              .interrupt_after = 10,
              .interfere = [&] {
                others.push_back(InSession("run --temp 0 -n 3 -p other" + rope));
                others.push_back(
                    Ebb("chat --temp 0 --session " + model_->File("link") + rope, {}, "one\n"));
              }});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(others.size(), 2u);
  for (const ProgramEnd& other : others) {
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_EQ(other.out, "");
    EXPECT_THAT(other.err,
                HasSubstr("ebb: the session could not be saved: another process is using "));
  }
  EXPECT_FALSE(std::filesystem::exists(File() + ".lock"));
  const ProgramEnd next = InSession("run --temp 0 --ignore-eos -n 3" + rope);
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.err, HasSubstr(" tokens resumed from "));
  std::filesystem::remove(model_->File("link"));
}

TEST_F(SessionTest, AConversationHoldsTheFileOverItsSaves) {
  const std::vector<std::string> yes = {"--grammar", "root ::= \"yes\""};
  ProgramRun chat = {
      .arguments = Words("chat --temp 0 --threads 1 -m " + model_->path() + " --session " + File()),
      .input = "one\ntwo\nthree\n"};
  chat.arguments.insert(chat.arguments.end(), yes.begin(), yes.end());
  ProgramEnd other;
  chat.interrupt_after = std::string("yes\nyes\ny").size();  // two turns are saved
  chat.interfere = [&] { other = InSession("run --temp 0 -n 3 -p other"); };
  EXPECT_EQ(RunEbb(chat).out, "yes\nyes\nyes\n");
  // The third turn may be over before the other process starts.
  if (other.exit_code != 0) {
    EXPECT_THAT(other.err, HasSubstr("another process is using "));
  }
  const auto lock = LockSessionFile(File());
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  EXPECT_THAT(InSession("run --temp 0 -n 3 -p other").err, HasSubstr("another process is using "));
}

TEST_F(SessionTest, AFullContextCanBeLeftWithALargerOne) {
  const ProgramEnd full = InSession("run --temp 0 --ignore-eos --context 60 -p hello");
  EXPECT_EQ(full.exit_code, 3);
  const ProgramEnd more = InSession("run --temp 0 --ignore-eos --context 120 -n 20");
  EXPECT_EQ(more.exit_code, 0) << more.err;
  const ProgramEnd whole = Ebb("run --temp 0 --ignore-eos --context 120 -n 200 -p hello");
  EXPECT_EQ(whole.out.substr(0, full.out.size() + more.out.size()), full.out + more.out);
}

TEST_F(SessionTest, AnotherSettingIsRefusedByNameAndTheFileStays) {
  const std::string rest = " --window 4 --interval 4";
  const std::string made = "--t0 50% --t1 host --t2 25%" + rest;
  EXPECT_EQ(InSession("run --temp 0 -n 30 --ignore-eos -p hello " + made).exit_code, 0);
  const std::string content = Content();
  const struct {
    std::string options;
    std::string message;
  } cases[] = {
      {"", "a session of another policy: expected \"full\", found \"attention\""},
      {made + " --policy h2o", "a session of another policy: expected \"h2o\""},
      {"--t0 50% --t1 host --t2 30%" + rest,
       "a session of another placement of rows in tiers: expected \"hierarchy(t0=50%,t2=30%"},
      {"--t0 50% --t1 none --t2 25%" + rest,
       "a session of another placement of rows in tiers: expected \"hierarchy(t0=100%,t1=none"},
      {made + " --granularity head", "a session of another granularity: expected \"head\""},
      {made + " --kv-type f32", "a session of another number format of rows: expected \"f32\""},
      {made + " --rope-scaling linear --rope-factor 2", "a session of another rope scaling"},
      {made + " --dequantize --raw", "the session is a conversation; leave --raw out"},
      {made + " --system brief", "the session has no system message; leave --system out"},
  };
  for (const auto& [options, message] : cases) {
    const ProgramEnd end = InSession("run --temp 0 -n 5 -p more " + options);
    EXPECT_EQ(end.exit_code, 2) << options;
    EXPECT_THAT(end.err, HasSubstr("ebb: " + File() + ": ")) << options;
    EXPECT_THAT(end.err, HasSubstr(message)) << options;
    EXPECT_EQ(end.out, "");
    EXPECT_EQ(Content(), content) << options;
  }
  EXPECT_EQ(InSession("run --temp 0 -n 5 -p more " + made).exit_code, 0);
  const std::string other = "run -n 5 --threads 1 -p more -m " + model_->thinking_path() +
                            " --session " + File() + " " + made;
  EXPECT_THAT(RunEbb(other).err, HasSubstr("a session of another model: expected \""));
}

TEST_F(SessionTest, ADamagedFileIsRefusedAndStays) {
  EXPECT_EQ(InSession("run --temp 0 -n 30 -p hello").exit_code, 0);
  std::string content = Content();
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
  std::ofstream(File(), std::ios::binary) << content;
  const ProgramEnd end = InSession("run --temp 0 -n 5 -p more");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("is damaged, at offset "));
  EXPECT_EQ(Content(), content);
  EXPECT_EQ(InSession("chat", {}, "one\n").exit_code, 2);
  std::ofstream(File(), std::ios::binary) << "a letter to somebody";
  EXPECT_THAT(InSession("run -n 5 -p more").err, HasSubstr("not a session"));
  EXPECT_EQ(Content(), "a letter to somebody");
}

TEST_F(SessionTest, ASaveThatFailsIsSaidAfterTheAnswer) {
  const std::vector<std::string> yes = {"--grammar", "root ::= \"yes\""};
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);  // the program's too
  const ProgramEnd run = InSession("run --temp 0 -p one", yes);
  const ProgramEnd chat = InSession("chat --temp 0", yes, "one\ntwo\n");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, "yes");
  EXPECT_THAT(run.err, HasSubstr("ebb: the session was not saved: cannot write "));
  EXPECT_EQ(chat.exit_code, 1);
  EXPECT_EQ(chat.out, "yes\nyes\n");
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_FALSE(std::filesystem::exists(File() + ".part"));
}

TEST_F(SessionTest, APlaceWhereNothingCanBeSavedIsRefusedBeforeTheAnswer) {
  for (const std::string& place : {model_->File("no/folder/talk"), model_->File("")}) {
    for (const std::string command : {"run -p one", "chat"}) {
      const ProgramEnd end = Ebb(command + " --temp 0 -n 5 --session " + place, {}, "one\n");
      EXPECT_EQ(end.out, "");
      EXPECT_NE(end.exit_code, 0);
      EXPECT_THAT(end.err, HasSubstr("ebb: the session could not be saved: "));
    }
  }
}

TEST_F(SessionTest, AnEmptyNameIsNoSession) {
  const ProgramEnd end = Ebb("run --temp 0 -n 5 -p one", {"--session", ""});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("--session"));
}

TEST_F(SessionTest, AMadeUpConversationIsRefusedOrGoesOn) {
  const auto model = Model::Load({.path = model_->path()});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto engine = Engine::Create(*model, {.threads = 1});
  const auto session = (*engine)->OpenSession({});
  ASSERT_TRUE((*session)->Prefill(std::vector<Token>{5, 6, 7}).ok());
  for (const int begin : {0, 3, 1000, std::numeric_limits<int>::max()}) {
    for (const std::vector<Token>& tokens : {std::vector<Token>{}, {6}, {-1, 1 << 30}}) {
      StateWriter to;
      to.Number<uint32_t>(1);
      to.Number<uint8_t>(1);  // a text
      to.Number<uint8_t>(0);
      to.Number<uint64_t>(1);
      to.Number<uint64_t>(0);
      to.Number<int32_t>(begin);
      to.Number<uint64_t>(0);
      to.Numbers<Token>(tokens);
      to.Text("");
      ASSERT_TRUE(SaveSession(**session, File(), to.text()).ok());
      const std::string before = Content();
      for (const std::string prompt : {"", " -p more"}) {
        const ProgramEnd end = InSession("run --raw --temp 0 -n 3" + prompt);
        EXPECT_TRUE(end.exit_code >= 0 && end.exit_code <= 2) << end.exit_code << end.err;
        EXPECT_TRUE(end.exit_code == 0 || Content() == before);
        ASSERT_TRUE(SaveSession(**session, File(), to.text()).ok());
      }
    }
  }
}

// A template that leaves the thought out where the budget is 0.
TEST_F(SessionTest, AnAnswerWithoutAThoughtGoesOnAsAnAnswer) {
  auto edit = GgufEdit::Open(model_->path());
  ASSERT_TRUE(edit.ok()) << edit.status().ToString();
  gguf_set_val_str(
      edit->metadata(), "tokenizer.chat_template",
      "{% for message in messages %}{% set content = message['content'] %}"
      "{% if message['role'] == 'assistant' %}{% if '</think>' in content %}"
      "{% set content = content.split('</think>')[-1] %}{% endif %}"
      "{{ '[A]' + content + '<|im_end|>' }}{% else %}{{ '[U]' + content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '[A]<think>\\n' }}"
      "{% if enable_thinking is defined and enable_thinking is false %}"
      "{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}");
  ASSERT_TRUE(edit->Save(model_->File("choice.gguf")).ok());
  const auto run = [&](const std::string& rest) {
    return RunEbb("run --temp 0 --ignore-eos --json --threads 1 -m " + model_->File("choice.gguf") +
                  " --session " + File() + " " + rest);
  };
  const auto thoughts = [](const ProgramEnd& end) {
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(LastLine(end.err))["thought_tokens"].get<int>();
  };
  EXPECT_EQ(thoughts(run("-n 9 --thinking-budget 0 -p hello")), 0);
  EXPECT_EQ(thoughts(run("-n 9")), 0);
  std::filesystem::remove(File());
  EXPECT_EQ(thoughts(run("-n 9 -p hello")), 9);
  const ProgramEnd closed = run("-n 40 --thinking-budget 0 --thoughts show");
  EXPECT_EQ(thoughts(closed), 0);
  EXPECT_TRUE(closed.out.starts_with("</think>")) << closed.out;
}

// What is given at the next turn may find what the answer has already.
TEST_F(SessionTest, AStopStringThatTheAnswerHasAlreadyLosesNothing) {
  const std::string common = "run --temp 0 --ignore-eos ";
  const std::string whole = Ebb(common + "-n 40 -p hello").out;
  const ProgramEnd first = InSession(common + "-n 20 -p hello");
  ASSERT_GT(first.out.size(), 6u);
  const ProgramEnd stopped = InSession(common + "-n 20", {"--stop", first.out.substr(3, 2)});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "");
  const ProgramEnd rest = InSession(common + "-n 20");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(first.out + rest.out, whole);
}

TEST_F(SessionTest, GoingOnWithNothingIsRefused) {
  EXPECT_EQ(InSession("run -n 5").exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(File()));
}

}  // namespace
}  // namespace ebb
