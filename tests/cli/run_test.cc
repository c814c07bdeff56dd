#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/generate.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class RunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  // `more` may hold arguments with blanks.
  static ProgramRun Raw(const std::string& arguments, const std::vector<std::string>& more = {}) {
    return With("run --raw --temp 0 --threads 1 -m " + model_->path() + " " + arguments, more);
  }
  static ProgramRun Chat(const std::string& path, const std::string& arguments,
                         const std::vector<std::string>& more = {}) {
    return With("run --temp 0 --threads 1 -m " + path + " " + arguments, more);
  }
  static ProgramRun With(const std::string& arguments, const std::vector<std::string>& more) {
    ProgramRun run = {.arguments = Words(arguments)};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    return run;
  }
  static json Record(const ProgramEnd& end) {
    json record = json::parse(LastLine(end.err), nullptr, false);
    EXPECT_TRUE(record.is_object()) << end.err;
    return record;
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> RunTest::model_;

TEST_F(RunTest, StdoutGetsTheTextOfTheLibraryAndNothingElse) {
  Result<std::shared_ptr<const Model>> model = Model::Load({.path = model_->path()});
  ASSERT_TRUE(model.ok());
  Result<std::unique_ptr<Engine>> engine = Engine::Create(*model, {.threads = 1});
  ASSERT_TRUE(engine.ok());
  Result<std::unique_ptr<Session>> session = (*engine)->OpenSession({});
  ASSERT_TRUE(session.ok());
  const auto tokens =
      (*model)->Tokenize("a tide", Model::AddBos::kAsModelSays, Model::Specials::kParse);
  ASSERT_TRUE(tokens.ok() && (*session)->Prefill(*tokens).ok());
  Result<std::unique_ptr<Sampler>> sampler = Sampler::Create(**model, {.temperature = 0});
  ASSERT_TRUE(sampler.ok());
  GenerateOptions options;
  options.max_tokens = 30;
  options.on_end = GenerateOptions::OnEnd::kIgnore;
  const GenerateResult expected = Generate(**session, **sampler, options);

  const ProgramEnd end = RunEbb(Raw("-n 30 --ignore-eos --json -p", {"a tide"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, expected.text);
  const json record = Record(end);
  EXPECT_EQ(record["prompt_tokens"], tokens->size());
  EXPECT_EQ(record["generated_tokens"], 30);
  EXPECT_EQ(record["finish_reason"], "length");
  EXPECT_EQ(record["logits_hash"].get<std::string>().size(), 16u);
}

TEST_F(RunTest, TheRecordIsOneLineWithEveryFigure) {
  const ProgramEnd end = RunEbb(Raw("-n 10 --ignore-eos --json -p tide"));
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  const json record = Record(end);
  for (const char* name :
       {"prompt_tokens", "generated_tokens", "tokens_per_s", "prompt_tokens_per_s",
        "time_to_first_token_s", "kv_bytes", "peak_rss_bytes", "rows_kept"}) {
    ASSERT_TRUE(record.contains(name)) << name;
    EXPECT_GT(record[name].get<double>(), 0) << name;
  }
  EXPECT_EQ(record["policy"], "full");
  EXPECT_EQ(record["rows_evicted"], 0);
  // 2 layers, 2 kv heads; the last token is not in the cache.
  const int rows = record["prompt_tokens"].get<int>() + 9;
  EXPECT_EQ(record["rows_kept"], rows * 4);
}

TEST_F(RunTest, TheSummarySaysWhereTheTokensLieAndWhatAFullCacheWouldTake) {
  const std::string more = " --window 2 --interval 2 --sinks 0";
  const ProgramEnd tiers =
      RunEbb(Raw("-n 60 --ignore-eos -p tide --t0 50% --t1 file --t2 50% --evict 30%" + more));
  EXPECT_THAT(tiers.err,
              ContainsRegex(
                  "memory: 6[0-9] of 256 tokens; T0 [0-9]+ tokens, [0-9.]+ [KM]iB; T1 [0-9]+ "
                  "tokens, [0-9.]+ [KM]iB in a file; T2 [0-9]+ tokens, [0-9.]+ [KM]iB compressed; "
                  "[0-9]+ tokens evicted; a full cache would take [0-9.]+ [KM]iB( \\([0-9]+ % of "
                  "it saved\\))?\\]"));
  const ProgramEnd policy = RunEbb(Raw("-n 4 --ignore-eos -p tide --policy h2o"));
  EXPECT_THAT(policy.err, HasSubstr("--policy h2o has no budget, so nothing is evicted"));
}

TEST_F(RunTest, TheSummaryIsForPeopleAndCanBeSilenced) {
  const ProgramEnd loud = RunEbb(Raw("-n 4 --ignore-eos -p tide"));
  EXPECT_THAT(loud.err, HasSubstr("4 generated at "));
  EXPECT_THAT(loud.err, HasSubstr("ended by: length"));
  EXPECT_THAT(
      loud.err,
      ContainsRegex(
          "memory: [0-9]+ of 256 tokens; T0 [0-9]+ tokens, [0-9.]+ [KM]iB, the full cache\\]"));
  const ProgramEnd quiet = RunEbb(Raw("-n 4 --ignore-eos --quiet -p tide"));
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, loud.out);
}

TEST_F(RunTest, ThePromptMayComeFromAFileOrStdin) {
  const ProgramEnd direct = RunEbb(Raw("-n 20 --ignore-eos --json -p", {"two words\nmore"}));
  const std::string path = model_->File("prompt.txt");
  std::ofstream(path) << "two words\nmore\n";
  const ProgramEnd file = RunEbb(Raw("-n 20 --ignore-eos --json -f " + path));
  ProgramRun piped = Raw("-n 20 --ignore-eos --json");
  piped.input = "two words\nmore\n";
  const ProgramEnd input = RunEbb(piped);
  EXPECT_EQ(file.out, direct.out);
  EXPECT_EQ(input.out, direct.out);
  EXPECT_EQ(Record(file)["logits_hash"], Record(direct)["logits_hash"]);
  EXPECT_EQ(Record(input)["logits_hash"], Record(direct)["logits_hash"]);
}

TEST_F(RunTest, TheTemplateIsAppliedUnlessRaw) {
  const ProgramEnd raw = RunEbb(Raw("-n 1 --json -p tide"));
  const ProgramEnd chat = RunEbb(Chat(model_->path(), "-n 1 --json -p tide"));
  const ProgramEnd system = RunEbb(Chat(model_->path(), "-n 1 --json --system brief -p tide"));
  EXPECT_LT(Record(raw)["prompt_tokens"], Record(chat)["prompt_tokens"]);
  EXPECT_LT(Record(chat)["prompt_tokens"], Record(system)["prompt_tokens"]);
}

TEST_F(RunTest, AGrammarMayBeTextOrAFile) {
  const ProgramEnd text = RunEbb(Raw("--json -p x --grammar", {"root ::= \"only this\""}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, "only this");
  EXPECT_EQ(Record(text)["finish_reason"], "stop");
  const std::string path = model_->File("grammar.gbnf");
  std::ofstream(path) << "root ::= \"that\"\n";
  EXPECT_EQ(RunEbb(Raw("-p x --grammar " + path)).out, "that");
}

TEST_F(RunTest, StopStringsEndTheText) {
  const ProgramEnd end =
      RunEbb(Raw("--json -p x --stop zzz --stop", {"this", "--grammar", "root ::= \"only this\""}));
  EXPECT_EQ(end.out, "only ");
  EXPECT_EQ(Record(end)["finish_reason"], "stop_string");
}

TEST_F(RunTest, TheSeedDecidesWhatIsSampled) {
  const auto sample = [&](const std::string& seed) {
    return RunEbb(Raw("-n 30 --ignore-eos --temp 2 --quiet -p tide --seed " + seed)).out;
  };
  EXPECT_EQ(sample("1"), sample("1"));
  EXPECT_NE(sample("1"), sample("2"));
}

TEST_F(RunTest, TheBitsOfTheLogitsDoNotDependOnThreads) {
  const ProgramEnd one = RunEbb(Raw("-n 30 --ignore-eos --json -p tide --threads 1"));
  const ProgramEnd two = RunEbb(Raw("-n 30 --ignore-eos --json -p tide --threads 2"));
  EXPECT_EQ(Record(one)["logits_hash"], Record(two)["logits_hash"]);
  EXPECT_EQ(one.out, two.out);
}

TEST_F(RunTest, APolicyFreesRows) {
  const ProgramEnd end =
      RunEbb(Raw("-n 100 --ignore-eos --json -p tide --policy streaming --sinks 4 --window 28"));
  const json record = Record(end);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(record["policy"], "streaming");
  EXPECT_EQ(record["rows_kept"], 32 * 4);
  EXPECT_GT(record["rows_evicted"], 0);
}

TEST_F(RunTest, ReRotationGoesPastTheContext) {
  const ProgramEnd end =
      RunEbb(Raw("-n 400 --ignore-eos --json -p tide --policy streaming --sinks 4 --window 28 "
                 "--past-context rerotate"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Record(end)["generated_tokens"], 400);
}

TEST_F(RunTest, ScaledRopeMakesTheContextLonger) {
  const ProgramEnd end =
      RunEbb(Raw("-n 300 --ignore-eos --json -p tide --rope-scaling yarn --rope-factor 2"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Record(end)["generated_tokens"], 300);
}

class ThoughtsTest : public RunTest {
 protected:
  // A thought of 5 tokens, forced to an end, and the answer "yes".
  static ProgramEnd Think(const std::string& arguments) {
    return RunEbb(Chat(model_->thinking_path(), "-p x --json --thinking-budget 5 " + arguments,
                       {"--grammar", "root ::= \"yes\""}));
  }
};

TEST_F(ThoughtsTest, AreShownUnlessHidden) {
  const ProgramEnd shown = Think("--thoughts show");
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, EndsWith("</think>yes"));
  EXPECT_EQ(Record(shown)["thought_tokens"], 5);
  const ProgramEnd hidden = Think("--thoughts hide");
  EXPECT_EQ(hidden.out, "yes");
  EXPECT_EQ(Record(hidden)["logits_hash"], Record(shown)["logits_hash"]);
}

TEST_F(ThoughtsTest, AreNotDimmedInAPipe) {
  const ProgramEnd dim = Think("--thoughts dim");
  EXPECT_THAT(dim.out, Not(HasSubstr("\033")));
  EXPECT_EQ(dim.out, Think("--thoughts show").out);
}

TEST(ListPoliciesTest, NeedsNoModel) {
  const ProgramEnd end = RunEbb({.arguments = Words("run --list-policies"),
                                 .environment = {{"XDG_CACHE_HOME", "/nonexistent"}}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  for (const char* name : {"full", "streaming", "h2o", "attention", "random", "scorers"}) {
    EXPECT_THAT(end.out, HasSubstr(name));
  }
  for (const char* reads :
       {"reads nothing", "reads attention\n", "reads attention, values\n", "reads hidden states\n",
        "reads marks of the model\n", "reads the attention of steps to come\n"}) {
    EXPECT_THAT(end.out, HasSubstr(reads));
  }
  const std::string line = "\n" + std::string(22, ' ');
  EXPECT_THAT(end.out, HasSubstr("scorer recency, parameters none" + line + "takes no options\n"));
  EXPECT_THAT(end.out, HasSubstr("scorer attention, parameters none" + line +
                                 "takes --budget, --sinks, --window, --interval\n"));
  // Those of a policy and those of its scorer.
  EXPECT_THAT(end.out, HasSubstr("scorer lazy_eviction, parameters alpha=X,"));
}

TEST(HelpTest, IsForEveryCommand) {
  EXPECT_THAT(RunEbb("--help").out, HasSubstr("run "));
  EXPECT_THAT(RunEbb("device --help").out, HasSubstr("device list"));
  EXPECT_THAT(RunEbb("ebb-bench --help").out, HasSubstr("decode "));
  for (const char* command : {"run", "chat", "pull", "ebb-lab fidelity", "ebb-bench decode"}) {
    const ProgramEnd end = RunEbb(std::string(command) + " --help");
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_THAT(end.out, HasSubstr(std::string(command) + ": "));
  }
  EXPECT_THAT(RunEbb("run --help-all").out, HasSubstr("--past-context refuse|rerotate"));
  const std::string usual = RunEbb("run --help").out;
  EXPECT_THAT(usual, Not(HasSubstr("--past-context")));
  EXPECT_THAT(usual, ContainsRegex("ebb run --help-all shows [0-9]+ more options"));
  std::istringstream lines(RunEbb("run --help-all").out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_THAT(RunEbb("--version").out, StartsWith("ebb "));
}

TEST_F(RunTest, WhatTheTiersDoForTheFirstTimeIsAnnouncedOnce) {
  const std::string tiers =
      "-n 60 --ignore-eos -p tide --t0 50% --t1 host --t2 50%:int4 --evict 30% --window 2 "
      "--interval 2 ";
  const ProgramEnd end = RunEbb(Raw(tiers));
  for (const char* option : {"(--t2 50%:int4)", "(--evict 30%)"}) {
    const size_t first = end.err.find(option);
    EXPECT_NE(first, std::string::npos) << option << end.err;
    EXPECT_EQ(end.err.find(option, first + 1), std::string::npos) << option;
  }
  EXPECT_EQ(RunEbb(Raw(tiers + "--quiet")).err, "");
  const ProgramEnd programs = RunEbb(Raw(tiers + "--json"));
  EXPECT_EQ(json::parse(programs.err.substr(0, programs.err.find('\n')))["announcement"], "t2");
  EXPECT_TRUE(Record(programs).contains("moves"));
}

TEST_F(RunTest, LiveIsPlainTextWhereNobodyLooks) {
  const ProgramEnd plain = RunEbb(Raw("-n 20 --ignore-eos --quiet -p tide"));
  const ProgramEnd live = RunEbb(Raw("-n 20 --ignore-eos --quiet --live -p tide"));
  EXPECT_EQ(live.exit_code, 0);
  EXPECT_EQ(live.out, plain.out);
  EXPECT_EQ(live.err, "");
}

}  // namespace
}  // namespace ebb
