// What a user can get wrong, and what the system can do to a user: each ends with its exit code
// and a message that says what to do.
#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kError = 1;
constexpr int kUsage = 2;
constexpr int kLimit = 3;
constexpr int kInterrupted = 130;

struct Case {
  std::string name;
  // MODEL, TRUNCATED, FOREIGN, TEXT, LONG, FOLDER stand for files that there are, MISSING for one
  // that there is not, "" for an empty argument.
  std::string arguments;
  int exit_code;
  std::vector<std::string> message;  // what it has to contain
};

std::vector<Case> Cases() {
  const std::string run = "run --threads 1 --raw -n 4 -p tide -m MODEL ";
  return {
      {"NoArguments", "", kUsage, {"usage: ebb COMMAND", "ebb docs those of all commands"}},
      {"UnknownCommand", "fly", kUsage, {"unknown command \"fly\"", "run, chat, serve, pull"}},
      {"UnknownBench", "ebb-bench fly", kUsage, {"unknown command \"fly\"", "decode, prefill"}},
      {"MovedCommand", "eval --task pebble", kUsage, {"another program now: ebb-lab eval"}},
      {"MovedReport", "report x", kUsage, {"now: python3 -m ebb.report merge"}},
      {"MovedBench", "bench decode -m MODEL", kUsage, {"another program now: ebb-bench decode"}},
      {"UnknownOption", run + "--fly", kUsage, {"--fly", "ebb run --help"}},
      {"MissingValue", run + "--seed", kUsage, {"--seed"}},
      {"NotANumber", run + "--temp warm", kUsage, {"--temp", "number", "\"warm\""}},
      {"EmptyKeys", "serve -m MODEL --api-keys \"\"", kUsage, {"--api-keys", "empty name"}},
      {"EmptyModel", "run -p tide -m \"\"", kUsage, {"--model", "empty name"}},
      {"NothingBehindAnEqualsSign",
       "run --threads 1 -n 4 -m MODEL -p tide --stop= --raw",
       kUsage,
       {"--stop"}},
      {"NegativeTemperature", run + "--temp -1", kUsage, {"--temp", "from 0 to 100"}},
      {"NotAnInteger", run + "--top-k 1.5", kUsage, {"--top-k", "integer", "\"1.5\""}},
      {"HugeInteger", run + "--context 99999999999", kUsage, {"--context", "integer"}},
      {"BadSeed", run + "--seed -2", kUsage, {"--seed", "from 0 to 2^64 - 1, random or -1"}},
      {"BoundsOfANumber", run + "--top-k 99999999999", kUsage, {"--top-k", "from 0 to 2147483647"}},
      {"NoSizeForT0", run + "--t0 0", kUsage, {"--t0", "neither a share nor a size"}},
      {"NoSizeForT1", run + "--t1 file:/tmp/a,b", kUsage, {"--t1", "file:a,b,"}},
      {"FolderWithACommaForT1", run + "--t1 file:MISSING/a,b,", kUsage, {"MISSING/a,b: "}},
      {"SinksOfH2o", run + "--policy h2o --budget 64 --sinks 2", kUsage, {"write h2o:sinks=2"}},
      {"LittleMemory", run + "--memory 1KiB", kLimit, {"tokens into 1 KiB;"}},
      {"MemoryWithoutAUnit", run + "--memory 8", kUsage, {"--memory: 8 bytes; did you mean 8GiB?"}},
      {"BadThoughts", run + "--thoughts loud", kUsage, {"--thoughts", "show|dim|hide", "loud"}},
      {"BadKvType", run + "--kv-type q5_0", kUsage, {"--kv-type", "f16|bf16|f32", "q5_0"}},
      {"BadPastContext", run + "--past-context go", kUsage, {"--past-context", "refuse|rerotate"}},
      {"BadRopeScaling", run + "--rope-scaling big", kUsage, {"--rope-scaling", "linear|yarn"}},
      {"NoRopeFactor", run + "--rope-scaling yarn", kUsage, {"factor"}},
      {"BadKvCap", run + "--kv-cap much", kUsage, {"--kv-cap", "much"}},
      {"SmallKvCap",
       run + "--kv-cap 1000",
       kUsage,
       {"--kv-cap: 1000 bytes; did you mean 1000MiB?"}},
      {"SmallT0", run + "--t0 50", kUsage, {"T0: 50 bytes; did you mean 50% or 50MiB?"}},
      {"SmallCapOfT0", run + "--t0 50KiB", kUsage, {"T0: a cap", "at least 2 MiB; got 50 KiB"}},
      {"SmallCapOfTheCache",
       run + "--kv-cap 50KiB",
       kUsage,
       {"--kv-cap: expected at least 2 MiB, found 50 KiB"}},
      {"SmallT1", run + "--t1 host,100", kUsage, {"T1: 100 bytes; did you mean 100MiB?"}},
      {"EvictWithoutPercent", run + "--evict 10", kUsage, {"did you mean 10%?"}},
      {"T2WithoutPercent", run + "--t2 25:int8", kUsage, {"did you mean 25%?"}},
      {"KvCapAndTiers",
       run + "--kv-cap 8MiB --t0 50%",
       kUsage,
       {"--kv-cap: cannot be combined with these tiers", "a compressed cache without a T1"}},
      {"SmallDevice", run + "--device ggml-cpu:memory=1", kUsage, {"1 bytes; did you mean 1GiB?"}},
      {"BadGranularity", run + "--granularity row", kUsage, {"--granularity", "token", "row"}},
      {"BadBudget", run + "--policy h2o --budget lots", kUsage, {"--budget", "lots"}},
      {"SmallBudget",
       run + "--policy attention --budget 10 --sinks 4 --window 128",
       kUsage,
       {"budget of 10 rows"}},
      {"UnmarkedRows", run + "--policy dms", kUsage, {"attention.dms.layout"}},
      {"UnknownPolicy", run + "--policy fly", kUsage, {"unknown policy \"fly\"", "streaming"}},
      {"UnknownScorer",
       run + "--policy h2o --budget 64 --scorer fly",
       kUsage,
       {"unknown scorer \"fly\"", "attention"}},
      {"ScorerOfThePolicyFull",
       run + "--scorer h2o",
       kUsage,
       {"scorer \"h2o\" would change nothing", "--scorer: policy \"full\" uses no scores"}},
      {"ScorerOfAPolicyWithoutScores",
       run + "--policy streaming --scorer attention",
       kUsage,
       {"scorer \"attention\" would", "--scorer: policy \"streaming\" uses no scores"}},
      {"ScorerOfAMeasurementWithoutScores",
       "ebb-bench decode --threads 1 -m MODEL --scorer random",
       kUsage,
       {"scorer \"random\" would", "--scorer: policy \"full\" uses no scores"}},
      {"UnknownPolicyParameter", run + "--policy h2o:fly=1", kUsage, {"fly", "heavy"}},
      {"MalformedPolicy", run + "--policy h2o:heavy", kUsage, {"key=value"}},
      {"BadGrammar", run + "--grammar root::=(", kUsage, {"the grammar is refused"}},
      {"UnknownTemplate",
       run + "--chat-template mistral-v7",
       kUsage,
       {"expected chatml or a Jinja text, found \"mistral-v7\""}},
      {"NoTemplateFile", run + "--chat-template-file NONE", kUsage, {"NONE"}},
      {"BadGrammarOfAConversation",
       "chat --threads 1 -m MODEL --grammar root::=(",
       kUsage,
       {"the grammar is refused"}},
      {"EmptyStop", run + "--stop \"\"", kUsage, {"--stop"}},
      {"AGrammarThatIsNoFile",
       run + "--grammar /no/such.gbnf",
       kUsage,
       {"--grammar: expected a file or a GBNF grammar, found \"/no/such.gbnf\""}},
      {"CompressedRowsAndT2",
       run + "--kv-type q4 --t2 25%",
       kUsage,
       {"--kv-type q4 and --t2 both set what T2 holds"}},
      {"T2AndCompressedRows",
       run + "--t2 25% --kv-type q4",
       kUsage,
       {"--t2 and --kv-type q4 both set what T2 holds"}},
      {"CompressedRowsAndT0", run + "--t0 30% --kv-type q4", kUsage, {"both set what T0 holds"}},
      {"CompressedRowsAndCaps",
       run + "--kv-type q4 --evict caps",
       kUsage,
       {"cannot be combined with", "whose number no cap changes"}},
      {"AnOptionBeforeTheCommand",
       "-m pebble -p hi",
       kUsage,
       {"-m stands before a command", "ebb run -m"}},
      {"APolicyInCapitals", run + "--policy H2O", kUsage, {"did you mean h2o?"}},
      {"ABudgetWithoutAPolicy",
       run + "--budget 25%",
       kUsage,
       {"policies that evict take one, such as h2o"}},
      {"ABudgetAsAParameter",
       run + "--policy h2o:budget=25%",
       kUsage,
       {"\"budget\", which is an option of its own"}},
      {"OldRowsAndAShareOfT0", run + "--t2 old --t0 30%", kUsage, {"--t0: a share has no effect"}},
      {"TwoPrompts", run + "-f TEXT", kUsage, {"--prompt and --file both set the prompt"}},
      {"EmptyPrompt", "run --raw -m MODEL -p \"\"", kUsage, {"empty"}},
      {"RawSystem", run + "--system brief", kUsage, {"--system"}},
      {"MissingPromptFile", "run -m MODEL -f MISSING", kUsage, {"MISSING", "No such file"}},
      {"FolderAsPrompt", "run -m MODEL -f FOLDER", kUsage, {"FOLDER", "directory"}},
      {"MissingModel", "run -p tide -m MISSING", kUsage, {"MISSING", "No such file"}},
      {"FolderAsModel", "run -p tide -m FOLDER", kUsage, {"FOLDER"}},
      {"TruncatedModel", "run -p tide -m TRUNCATED", kUsage, {"TRUNCATED"}},
      {"ForeignFamily",
       "run -p tide -m FOREIGN",
       kUsage,
       {"FOREIGN", "mamba", "mamba.context_length"}},
      {"TextAsModel", "run -p tide -m TEXT", kUsage, {"TEXT"}},
      {"NoDefaultModel", "run -p tide", kUsage, {"ebb pull"}},
      {"UnknownModelName", "run -p tide -m qwen", kUsage, {"-m qwen", "qwen2.5-coder-0.5b"}},
      {"ModelNotFetched",
       "ebb-bench decode -m smollm2-135m",
       kUsage,
       {"run \"ebb pull smollm2-135m\""}},
      {"LongPrompt", "run --threads 1 --raw -m MODEL -f LONG", kLimit, {"context of 256 tokens"}},
      {"ContextPastTheTrainedOne",
       run + "--context 600",
       kUsage,
       {"ebb: --context: 600 tokens, and ", " was trained for 256; RoPE scaling by a factor of 3 ",
        "(--rope-scaling yarn --rope-factor X, or --past-context rerotate; leave it out "}},
      {"LongPromptForContext",
       "run --threads 1 --raw -m MODEL --context 8 -f LONG",
       kLimit,
       {"context size of 8 tokens"}},
  };
}

// Returns options and forms of llama.cpp and Ollama, and near misses, each with the line that names
// ebb's own way.
std::vector<Case> ForeignCases() {
  const std::string run = "run --threads 1 --raw -n 4 -p tide -m MODEL ";
  const std::string another = " is an option of another program; here: ";
  return {
      {"GpuLayers", run + "-ngl 99", kUsage, {"-ngl" + another, "--device NAME"}},
      {"GpuLayersLong", run + "--n-gpu-layers=99", kUsage, {"--device NAME"}},
      {"FlashAttentionOff", run + "-fa off", kUsage, {"-fa" + another, "cannot be turned off"}},
      {"CacheTypesThatDiffer", run + "-ctk q8_0 -ctv q4_0", kUsage, {"--kv-type sets one format"}},
      {"OneCacheType",
       run + "-ctk f16",
       kUsage,
       {"-ctk alone: --kv-type sets one format", "--kv-type f16"}},
      {"Numa", run + "--numa distribute", kUsage, {"--numa" + another, "leave it out"}},
      {"Color", run + "--color", kUsage, {"--color" + another, "leave it out"}},
      {"Mlock", run + "--mlock", kUsage, {"--mlock" + another, "leave it out"}},
      {"NoMmap", run + "--no-mmap", kUsage, {"--no-mmap" + another}},
      {"BatchSize", run + "-b 512", kUsage, {"-b" + another, "how a prompt is cut"}},
      {"Ubatch", run + "-ub 512", kUsage, {"-ub" + another}},
      {"ThreadsOfBatches", run + "-tb 4", kUsage, {"--threads N"}},
      {"Keep", run + "--keep 4", kUsage, {"--sinks N"}},
      {"ContextShift", run + "--context-shift", kUsage, {"--past-context rerotate"}},
      {"Interactive", run + "-i", kUsage, {"`ebb chat`"}},
      {"ConversationMode", run + "-cnv", kUsage, {"`ebb chat`"}},
      {"NoConversation", run + "-no-cnv", kUsage, {"`ebb run` answers once"}},
      {"PromptCache", run + "--prompt-cache x", kUsage, {"--session FILE"}},
      {"JsonSchema", run + "-j {}", kUsage, {"--grammar FILE"}},
      {"Lora", run + "--lora x.gguf", kUsage, {"without LoRA"}},
      {"Projector", run + "--mmproj x.gguf", kUsage, {"no pictures"}},
      {"Embeddings", "serve -m MODEL --embeddings", kUsage, {"no embeddings"}},
      {"DraftModel", run + "-md x.gguf", kUsage, {"--draft-model: ", "x.gguf"}},
      {"DraftFromHub", run + "-hfd a/b", kUsage, {"--draft-model hf:ORG/REPO"}},
      {"TensorSplit", run + "-ts 1,1", kUsage, {"on one device"}},
      {"ExpertsOnTheHost", run + "--n-cpu-moe 4", kUsage, {"on one device"}},
      {"RopeBase", run + "--rope-freq-base 1e6", kUsage, {"--rope-scaling"}},
      {"ApiKey", "serve -m MODEL --api-key x", kUsage, {"--api-keys FILE --new-key NAME"}},
      {"Parallel", run + "-np 4", kUsage, {"--max-running, which this command does not take"}},
      {"Think", run + "--think", kUsage, {"--thinking-budget N"}},
      {"Verbose", run + "--verbose", kUsage, {"--json"}},
      {"KeepAlive", "serve -m MODEL --keepalive 5m", kUsage, {"keeps the model loaded"}},
      {"Ps", "ps", kUsage, {"unknown command \"ps\"", "/dashboard"}},
      {"Show", "show pebble", kUsage, {"`ebb fit -m MODEL`"}},
      {"Create", "create x", kUsage, {"-m FILE runs any GGUF file"}},
      {"CommandTypo", "rnu", kUsage, {"did you mean \"ebb run\"?"}},
      {"CommandTypoOfAChild", "device lst", kUsage, {"did you mean \"ebb device list\"?"}},
      {"PromptAsACommand", "\"why is it blue\"", kUsage, {"unknown command"}},
      {"OptionTypo", run + "--promt x", kUsage, {"--promt", "did you mean --prompt?"}},
      {"OptionOfAnotherCommand", "list --temp 1", kUsage, {"it is an option of `ebb run`"}},
      {"BarePrompt", "run -m MODEL why", kUsage, {"why: a prompt follows -p"}},
      {"PromptForAServer", "serve pebble hello", kUsage, {"`ebb run MODEL PROMPT`"}},
      {"TwoPromptsOfWords", "run pebble hello -p x", kUsage, {"by -p or -f already"}},
      {"ModelNearlyNamed", "run -p tide -m smollm2", kUsage, {"did you mean smollm2-135m?"}},
      {"ReasonerNearlyNamed",
       "run -p tide -m qwen3:8b",
       kUsage,
       {"did you mean hf:Qwen/Qwen3-8B-GGUF:Q4_K_M?"}},
      {"PullNearlyNamed", "pull qwen3-8b", kUsage, {"did you mean hf:Qwen/Qwen3-8B-GGUF:Q4_K_M?"}},
  };
}

class BadInputTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    model_ = std::make_unique<TinyModel>();
    std::filesystem::copy_file(model_->path(), Path("TRUNCATED"));
    std::filesystem::resize_file(Path("TRUNCATED"), std::filesystem::file_size(model_->path()) / 2);
    Result<GgufEdit> edit = GgufEdit::Open(model_->path());
    ASSERT_TRUE(edit.ok()) << edit.status().ToString();
    gguf_set_val_str(edit->metadata(), "general.architecture", "mamba");
    ASSERT_TRUE(edit->Save(Path("FOREIGN")).ok());
    std::ofstream(Path("TEXT")) << "no model at all\n";
    std::ofstream(Path("LONG")) << std::string(300, '.');
    std::filesystem::create_directory(Path("FOLDER"));
  }
  static void TearDownTestSuite() { model_.reset(); }

  static std::string Path(const std::string& name) {
    return name == "MODEL" ? model_->path() : model_->File(name);
  }
  static ProgramEnd Run(const std::string& arguments) {
    ProgramRun run = {.arguments = Words(arguments),
                      .environment = {{"XDG_CACHE_HOME", model_->File("no-cache")}}};
    for (std::string& argument : run.arguments) {
      const bool is_file =
          argument.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
      if (is_file) argument = Path(argument);
      if (argument == "\"\"") argument = "";
    }
    return RunEbb(run);
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> BadInputTest::model_;

TEST_P(BadInputTest, EndsWithItsCodeAndAMessage) {
  const Case& c = GetParam();
  const ProgramEnd end = Run(c.arguments);
  EXPECT_EQ(end.exit_code, c.exit_code) << end.err;
  EXPECT_EQ(end.out, "");
  if (c.name != "NoArguments") {
    EXPECT_THAT(end.err, HasSubstr("ebb: "));
  }
  for (const std::string& part : c.message) EXPECT_THAT(end.err, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(All, BadInputTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class HardTimesTest : public BadInputTest {};

TEST_F(HardTimesTest, TheEndOfTheContextEndsTheTextWithItsCode) {
  const ProgramEnd end = Run(
      "run --threads 1 --raw --temp 0 -n 100 --ignore-eos --context 16 --json -p tide -m MODEL");
  EXPECT_EQ(end.exit_code, kLimit);
  EXPECT_THAT(end.err, StartsWith("ebb: the context of 16 tokens is full"));
  const json record = json::parse(LastLine(end.err));
  EXPECT_EQ(record["finish_reason"], "context");
  EXPECT_EQ(record["prompt_tokens"].get<int>() + record["generated_tokens"].get<int>(), 17);
  EXPECT_NE(end.out, "");
}

TEST_F(HardTimesTest, ACapReachedInMidGenerationEndsTheTextWithItsCode) {
  // 2 MiB are room for about 500 tokens of 4 KiB; the prompt takes most of them.
  const std::string cap =
      "run --threads 1 --raw --temp 0 -n 2000 --ignore-eos --json --rope-scaling linear "
      "--rope-factor 16 --kv-type f32 --kv-cap 2MiB -f LONG -m MODEL";
  const ProgramEnd end = Run(cap);
  EXPECT_EQ(end.exit_code, kLimit) << end.err;
  EXPECT_THAT(end.err, HasSubstr("cap of 2 MiB"));
  EXPECT_EQ(json::parse(LastLine(end.err))["finish_reason"], "cap");
  EXPECT_NE(end.out, "");
}

TEST_F(HardTimesTest, AClosedStdoutStopsTheProgram) {
  ProgramRun run = {.arguments = Words("run --threads 1 --raw --temp 0 --ignore-eos --json -p tide "
                                       "--rope-scaling linear --rope-factor 1000 -m " +
                                       model_->path()),
                    .close_stdout_after = 10};
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, kError);
  EXPECT_THAT(end.err, StartsWith("ebb: stdout was closed; stopped\n"));
  EXPECT_EQ(json::parse(LastLine(end.err))["finish_reason"], "error");
}

// The shell's own redirection is what is tested, so it is a shell that runs the program.
TEST_F(HardTimesTest, AnOutputThatCannotBeWrittenStopsTheProgram) {
  if (!std::filesystem::exists("/dev/full"))
    EBB_SKIP_WITHOUT("dev_full") << "there is no /dev/full here";
  const std::vector<std::pair<std::string, std::string>> outputs = {
      {"> /dev/full", "No space left on device"}, {">&-", "Bad file descriptor"}};
  for (const auto& [output, reason] : outputs) {
    const std::string command = std::string(EBB_BINARY_PATH) +
                                " run --threads 1 --raw --json --ignore-eos -n 4 -p tide -m " +
                                model_->path() + " " + output + " 2> " + model_->File("err");
    const int state = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(state), kError);
    std::ifstream file(model_->File("err"));
    std::string message, record;
    std::getline(file, message);
    std::getline(file, record);
    EXPECT_EQ(message, "ebb: cannot write to stdout: " + reason);
    EXPECT_EQ(json::parse(record)["finish_reason"], "error");
  }
}

// Words that nobody can read end nothing, and change no exit code.
TEST_F(HardTimesTest, AStderrThatCannotBeWrittenEndsNothing) {
  const std::string run = " run --threads 1 --raw --temp 0 -n 4 -p tide -m ";
  std::vector<std::string> silent = {"2>&-"};
  if (std::filesystem::exists("/dev/full")) silent.push_back("2> /dev/full");
  for (const std::string& output : silent) {
    const std::string to = " > " + model_->File("out") + " " + output;
    int state = std::system((std::string(EBB_BINARY_PATH) + run + model_->path() + to).c_str());
    EXPECT_EQ(WEXITSTATUS(state), 0) << output;
    EXPECT_GT(std::filesystem::file_size(model_->File("out")), 0u) << output;
    state = std::system((std::string(EBB_BINARY_PATH) + run + "/nonexistent" + to).c_str());
    EXPECT_EQ(WEXITSTATUS(state), kUsage) << output;
  }
}

// A program that asked for JSON waits for it.
TEST_F(HardTimesTest, AnObjectOfJsonThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full"))
    EBB_SKIP_WITHOUT("dev_full") << "there is no /dev/full here";
  const std::string run = std::string(EBB_BINARY_PATH) +
                          " run --threads 1 --raw --temp 0 -n 4 -p tide --json -m " +
                          model_->path() + " > " + model_->File("out");
  for (const std::string rest :
       {" 2> /dev/full", " 2>&-", " --memory 1GiB 2> /dev/full", " --seed random 2> /dev/full",
        " --ignore-eos -n 60 --t0 50% --t1 host --evict 50% --window 2 --interval 2 2> "
        "/dev/full"}) {
    EXPECT_EQ(WEXITSTATUS(std::system((run + rest).c_str())), kError) << rest;
  }
  const std::string pull =
      std::string(EBB_BINARY_PATH) + " pull --list --json > /dev/full 2> " + model_->File("err");
  EXPECT_EQ(WEXITSTATUS(std::system(pull.c_str())), kError);
}

TEST_F(HardTimesTest, ASeedThatIsDrawnIsToldAndGivesTheTextAgain) {
  const std::string run =
      "run --threads 1 --raw --temp 3 --ignore-eos -n 30 --json -p tide -m MODEL";
  for (const std::string word : {"random", "-1"}) {
    const ProgramEnd drawn = Run(run + " --seed " + word);
    EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
    const std::string seed = json::parse(LastLine(drawn.err))["seed"].dump();
    const json told = json::parse(drawn.err.substr(0, drawn.err.find('\n')));
    EXPECT_EQ(told["announcement"], "seed");
    EXPECT_THAT(told["sentence"].get<std::string>(), HasSubstr("--seed " + seed));
    EXPECT_EQ(Run(run + " --seed " + seed).out, drawn.out);
    EXPECT_NE(Run(run + " --seed " + word).out, drawn.out);
  }
  EXPECT_EQ(json::parse(LastLine(Run(run).err))["seed"], 0);
  EXPECT_THAT(Run("run --threads 1 --raw -n 1 -p tide -m MODEL --seed random").err,
              StartsWith("ebb: --seed "));
}

TEST_F(HardTimesTest, ALineEndOfAPromptIsNoPartOfIt) {
  const auto tokens = [](const std::string& text) {
    std::ofstream(model_->File("prompt"), std::ios::binary) << text;
    const std::string run = "run --threads 1 -n 1 --json -m " + model_->path();
    const ProgramEnd file = RunEbb(run + " -f " + model_->File("prompt"));
    const ProgramEnd input = RunEbb({.arguments = Words(run), .input = text});
    const json count = json::parse(LastLine(file.err))["prompt_tokens"];
    EXPECT_EQ(count, json::parse(LastLine(input.err))["prompt_tokens"]);
    return count.get<int>();
  };
  EXPECT_EQ(tokens("tide\r\n"), tokens("tide"));
  EXPECT_EQ(tokens("tide\n"), tokens("tide"));
  EXPECT_EQ(tokens("tide\n\n"), tokens("tide") + 1);
}

TEST_F(HardTimesTest, CtrlCEndsTheTextAndStillReports) {
  ProgramRun run = {.arguments = Words("run --threads 1 --raw --temp 0 --ignore-eos --json -p tide "
                                       "--rope-scaling linear --rope-factor 1000 -m " +
                                       model_->path()),
                    .interrupt_after = 10};
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, kInterrupted);
  EXPECT_THAT(end.err, StartsWith("ebb: interrupted\n"));
  EXPECT_EQ(json::parse(LastLine(end.err))["finish_reason"], "cancelled");
}

INSTANTIATE_TEST_SUITE_P(Foreign, BadInputTest, testing::ValuesIn(ForeignCases()),
                         [](const auto& one) { return one.param.name; });

TEST_F(HardTimesTest, OptionsOfTheSameMeaningAreTaken) {
  const std::string ours = "run --threads 1 --raw -n 4 --temp 0 -m MODEL -p tide ";
  const std::string text = Run(ours).out;
  ASSERT_NE(text, "");
  for (const std::string theirs :
       {"run -t 1 --raw --predict 4 --temperature 0 -m MODEL -p tide -c 128 -s 0",
        "run --threads 1 --raw -n 4 --temp 0 MODEL tide --jinja -fa on --no-context-shift -ngl 0",
        "run --threads 1 --raw --n-predict=4 --temp=0 --ctx-size=128 MODEL tide",
        "run --threads 1 --raw -n 4 --temp 0 -m MODEL -p tide -ctk f16 -ctv f16 --hidethinking"}) {
    const ProgramEnd end = Run(theirs);
    EXPECT_EQ(end.exit_code, 0) << theirs << end.err;
    EXPECT_EQ(end.out, text) << theirs << end.err;
  }
  for (const std::string theirs : {"--kv-type q8_0", "-ctk q8_0 -ctv q8_0"}) {
    const ProgramEnd end = Run(ours + theirs);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(end.out, Run(ours + "--kv-type q8").out) << theirs;
  }
  // After an option that takes a value, such words are its value.
  EXPECT_EQ(Run("run --threads 1 --raw -n 4 --temp 0 -m MODEL -p -c").exit_code, 0);
}

TEST_F(HardTimesTest, HelpOfACommandIsItsHelp) {
  const ProgramEnd help = Run("help run");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.out, Run("run --help").out);
  EXPECT_EQ(Run("help").out, Run("--help").out);
  EXPECT_EQ(Run("-v").out, Run("--version").out);
}

}  // namespace
}  // namespace ebb
