// Models whose graphs libllama builds, one of each kind, on a simulated device, compared
// with the CPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <ostream>
#include <random>

#include "ebb/session_file.h"
#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/device/sim_backend.h"
#include "tests/support/engine/library_models.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it opens devices of its own");

using testing::HasSubstr;

Result<std::shared_ptr<const Model>> LoadForDevice(const LibraryModelOptions& options) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteLibraryModel(options, path));
  return Model::Load({.path = path, .for_device = true});
}

// A mixture of which each token takes all experts: rounding chooses no other ones.
LibraryModelOptions AllExperts(const char* architecture) {
  return {.architecture = architecture, .has_experts = true, .sizes = {{"expert_used_count", 8}}};
}

// Flash attention, which `auto` takes for prompts, adds values up in f16.
constexpr double kFlash = 1e-2, kExact = 1e-3;

struct DeviceKind {
  LibraryModelOptions options;
  const char* attention;
  double most_error = kExact;  // of logits from the processor's
  bool has_state = false;
  bool has_t1 = true;  // heads of the model may lie in T1 on a device
};

std::ostream& operator<<(std::ostream& out, const DeviceKind& kind) {
  return out << NameOf(kind.options) << ", " << kind.attention;
}

// "gpt_oss_flash"
std::string NameOfTest(const testing::TestParamInfo<DeviceKind>& info) {
  std::string name = info.param.options.architecture + "_" + info.param.attention;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class LibraryDevice : public testing::TestWithParam<DeviceKind> {
 protected:
  // One for all tests.
  static std::shared_ptr<const Model> LoadModel() {
    static std::map<std::string, std::shared_ptr<const Model>> models;
    std::shared_ptr<const Model>& model = models[NameOf(GetParam().options)];
    if (model != nullptr) return model;
    auto loaded = LoadForDevice(GetParam().options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return model = *loaded;
  }
  [[nodiscard]] std::vector<Token> Tokens(size_t count, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random() % model_->shape().vocab_size);
    return tokens;
  }
  [[nodiscard]] std::unique_ptr<Engine> OnDevice(EngineOptions options = {.threads = 1}) const {
    options.device = *ParseDevice(TestDevice(std::string("attention=") + GetParam().attention));
    return MakeEngineOf(model_, options);
  }
  [[nodiscard]] std::unique_ptr<Engine> OnHost(const EngineOptions& options = {
                                                   .threads = 1}) const {
    return MakeEngineOf(model_, options);
  }
  // All logits of a session that reads the prompt and decodes the answer.
  [[nodiscard]] std::vector<float> LogitsOf(Engine& engine,
                                            const SessionOptions& options = {}) const {
    return LogitsOf(engine, options, prompt_, answer_);
  }
  static std::vector<float> LogitsOf(Engine& engine, const SessionOptions& options,
                                     const std::vector<Token>& prompt,
                                     const std::vector<Token>& answer) {
    auto session = Open(engine, options);
    ExpectOk(session->Prefill(prompt));
    std::vector<float> all = Logits(*session);
    for (const Token token : answer) {
      ExpectOk(session->Decode(token));
      all.insert(all.end(), session->logits().begin(), session->logits().end());
    }
    return all;
  }
  // A policy that keeps all rows, in their tiers by mass or at random.
  [[nodiscard]] SessionOptions InTiers(const TieredOptions& engine,
                                       const std::string& scorer = "") const {
    SessionOptions options;
    options.policy = {.name = "attention", .window = 16, .interval = 8, .tiers = engine.shares};
    options.policy.scorer = scorer;
    options.policy.seed = 5;
    if (model_->shape().SmallestWindow() > 0) options.policy.granularity = Granularity::kLayer;
    return options;
  }

  const std::shared_ptr<const Model> model_ = LoadModel();
  const std::vector<Token> prompt_ = Tokens(150, 1);
  const std::vector<Token> answer_ = Tokens(40, 2);
};

TEST_P(LibraryDevice, IsTheProcessorUpToRounding) {
  auto device = OnDevice();
  EXPECT_GT(device->device_report().weight_bytes, 0u);
  const std::vector<float> expected = LogitsOf(*OnHost());
  EXPECT_LT(LargestDifference(expected, LogitsOf(*device)), GetParam().most_error);
  EngineOptions in_chunks = {.threads = 1};
  in_chunks.prefill_chunk = 16;
  EXPECT_LT(LargestDifference(expected, LogitsOf(*OnDevice(in_chunks))), GetParam().most_error);
}

// Tokens one by one are attended to by ebb's own nodes (`auto`), which add up in F32.
TEST_P(LibraryDevice, LogitsAndMassOfSingleTokensAreTheProcessors) {
  const bool is_flash = std::string_view(GetParam().attention) == "flash";
  std::vector<std::vector<float>> logits, masses;
  for (const auto& engine : {OnHost(), OnDevice()}) {
    SessionOptions options;
    // With the full cache the processor keeps rows that left their window, for rolling back.
    options.policy = SmallPolicy("random", "200");
    if (model_->shape().SmallestWindow() > 0) options.policy.granularity = Granularity::kLayer;
    KeepMass(MassNeed::kPerQueryHead, &options, &masses.emplace_back());
    logits.push_back(LogitsOf(*engine, options, {prompt_[0]}, answer_));
  }
  EXPECT_LT(LargestDifference(logits[0], logits[1]), is_flash ? kFlash : kExact);
  EXPECT_LT(LargestDifference(masses[0], masses[1]), is_flash ? kFlash : kExact);
  EXPECT_GT(*std::ranges::max_element(masses[0]), 0.1);
}

TEST_P(LibraryDevice, EvictsAndRanksAsTheProcessorDoes) {
  for (const char* name : {"streaming", "h2o", "random"}) {
    SessionOptions options;
    options.policy = SmallPolicy(name, "64");
    options.policy.seed = 3;
    if (model_->shape().SmallestWindow() > 0) options.policy.granularity = Granularity::kLayer;
    // The prompt's rows stay.
    const auto expected = LogitsOf(*OnHost(), options, answer_, prompt_);
    const auto found = LogitsOf(*OnDevice(), options, answer_, prompt_);
    EXPECT_LT(LargestDifference(expected, found), GetParam().most_error) << name;
  }
}

TEST_P(LibraryDevice, RowsInT1ChangeNoBitWhereTheyAreStreamed) {
  if (!GetParam().has_t1) GTEST_SKIP() << "no T1 beside a device";
  const std::vector<float> expected = LogitsOf(*OnDevice());
  for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
    TieredOptions options = {{.threads = 1}};
    options.Set({.engine = {.t1 = place}, .shares = {.t0_share = 0.3}});
    EXPECT_EQ(LogitsOf(*OnDevice(options), InTiers(options)), expected) << T1PlaceName(place);
  }
}

TEST_P(LibraryDevice, TheHostAttendsToRowsOfT1AndT2) {
  if (!GetParam().has_t1) GTEST_SKIP() << "no T1 beside a device";
  for (const double t2_share : {0.0, 0.4}) {
    TieredOptions options = {{.threads = 2}};
    options.Set({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                 .shares = {.t0_share = 0.5, .t2_share = t2_share}});
    auto host = OnHost(options);
    options.t1_mode = T1Mode::kCompute;
    auto device = OnDevice(options);
    // At random, so that rounding changes no decision. A row that differs in its last bits may have
    // other codes in T2.
    const SessionOptions in_tiers = InTiers(options, "random");
    EXPECT_LT(LargestDifference(LogitsOf(*host, in_tiers), LogitsOf(*device, in_tiers)),
              t2_share == 0 ? GetParam().most_error : 5 * GetParam().most_error)
        << t2_share;
    // Rows of windows are streamed.
    const bool has_windows = model_->shape().SmallestWindow() > 0;
    EXPECT_EQ(device->device_report().t1_mode, has_windows ? T1Mode::kStream : T1Mode::kCompute);
  }
}

// Prompt rows too, in the device's memory.
TEST_P(LibraryDevice, ACompressedCacheLosesAboutAsMuchAsTheProcessors) {
  TieredOptions options = {{.threads = 2}};
  options.Set({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4},
               .shares = {.t2_rows = T2Rows::kOld}});
  SessionOptions compressing;
  compressing.policy.tiers = options.shares;
  const std::vector<Token> prompt = Tokens(170, 3), answer = Tokens(80, 4);
  const auto full = LogitsOf(*OnHost(), {}, prompt, answer);
  auto host = OnHost(options), device = OnDevice(options);
  const auto on_host = LogitsOf(*host, compressing, prompt, answer);
  const auto on_device = LogitsOf(*device, compressing, prompt, answer);
  const uint64_t t2_on_host = host->arena_accounting(Tier::kT2).peak_bytes;
  EXPECT_EQ(device->arena_accounting(Tier::kT2).peak_bytes > 0, t2_on_host > 0);
  if (t2_on_host == 0) {
    ASSERT_GT(model_->shape().SmallestWindow(), 0);
    GTEST_SKIP() << "all of its layers have a window, which is shorter";
  }
  const double lost = LargestDifference(full, on_host);
  EXPECT_GT(LargestDifference(full, on_device), 0);
  EXPECT_LT(LargestDifference(full, on_device), 2 * lost + GetParam().most_error) << lost;
}

TEST_P(LibraryDevice, SequencesOfABatchAreThoseAloneUpToRounding) {
  auto device = OnDevice(), host = OnHost();
  auto reader = Open(*device), first = Open(*device), second = Open(*device);
  std::map<Session*, std::vector<Token>> read;
  for (Session* session : {first.get(), second.get()}) {
    read[session] = Tokens(20 + 5 * read.size(), 10 + read.size());
    ExpectOk(session->Prefill(read[session]));
  }
  ExpectOk(reader->BeginPrompt(prompt_));
  for (size_t i = 0; i < answer_.size(); ++i) {
    std::vector<SessionStep> batch;
    if (reader->prompt_left() > 0) {
      batch.push_back({.session = reader.get(), .most_prompt_tokens = 20});
    } else {
      batch.push_back({.session = reader.get(), .token = answer_[i]});
      read[reader.get()].push_back(answer_[i]);
    }
    for (Session* session : {first.get(), second.get()}) {
      if (session == second.get() && i % 3 == 0) continue;
      batch.push_back({.session = session, .token = answer_[i]});
      read[session].push_back(answer_[i]);
    }
    ExpectOk(device->Step(batch));
  }
  for (const auto& [session, tokens] : read) {
    auto alone = Open(*host);
    if (session == reader.get()) ExpectOk(alone->Prefill(prompt_));
    ExpectOk(alone->Prefill(tokens));
    EXPECT_LT(LargestDifference(Logits(*alone), Logits(*session)), GetParam().most_error);
  }
}

TEST_P(LibraryDevice, AForkASavedSessionAndItsSourceGoOnAlike) {
  auto device = OnDevice(), host = OnHost();
  auto session = Open(*device);
  ExpectOk(session->Prefill(prompt_));
  for (size_t i = 0; i < 10; ++i) ExpectOk(session->Decode(answer_[i]));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  const TempFolder folder;
  const std::string path = folder.File("session");
  ExpectOk(SaveSession(*session, path));
  auto resumed = ResumeSession(*device, path, {}), on_host = ResumeSession(*host, path, {});
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  ASSERT_TRUE(on_host.ok()) << on_host.status().ToString();
  for (Session* each :
       {session.get(), fork->get(), resumed->session.get(), on_host->session.get()}) {
    for (size_t i = 10; i < answer_.size(); ++i) ExpectOk(each->Decode(answer_[i]));
  }
  EXPECT_EQ(Logits(**fork), Logits(*session));
  EXPECT_EQ(Logits(*resumed->session), Logits(*session));
  EXPECT_LT(LargestDifference(Logits(*on_host->session), Logits(*session)), GetParam().most_error);
}

// Rolled back to its prompt, which models with recurrent state keep a copy of.
TEST_P(LibraryDevice, ARolledBackAnswerIsReadAgainAlike) {
  if (model_->shape().SmallestWindow() > 0) GTEST_SKIP() << "its windows are shorter";
  auto device = OnDevice();
  auto session = Open(*device);
  ExpectOk(session->Prefill(prompt_));
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  const std::vector<float> expected = Logits(*session);
  ExpectOk(session->TruncateTo(static_cast<Position>(prompt_.size())));
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  EXPECT_EQ(Logits(*session), expected);
  EXPECT_EQ(session->accounting().state_bytes > 0, GetParam().has_state);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LibraryDevice,
    testing::Values(DeviceKind{{"smollm3", false, "f32"}, "auto", kFlash},
                    DeviceKind{{"phi3", false, "f32"}, "flash", kFlash},
                    DeviceKind{{"qwen3moe", true, "f32"}, "auto", kFlash},
                    DeviceKind{{"glm4moe", true, "f32"}, "eager"},
                    DeviceKind{{"gpt-oss", true, "f32"}, "auto", kFlash},
                    DeviceKind{{"gpt-oss", true, "f32"}, "flash", kFlash},
                    DeviceKind{{"gpt-oss", true, "f32"}, "eager"},
                    DeviceKind{{"gemma2", false, "f32"}, "auto", kFlash},
                    DeviceKind{{"gemma2", false, "f32"}, "flash", kFlash},
                    DeviceKind{{"gemma2", false, "f32"}, "eager"},
                    DeviceKind{Gemma4WithSharedRows(), "auto", kFlash},
                    DeviceKind{Gemma4WithSharedRows(), "flash", kFlash},
                    DeviceKind{AllExperts("deepseek2"), "auto", kFlash, false, false},
                    DeviceKind{AllExperts("deepseek2"), "flash", kFlash, false, false},
                    DeviceKind{{"qwen35moe", true, "f32"}, "auto", kFlash, true},
                    DeviceKind{{"lfm2", false, "f32"}, "eager", kExact, true},
                    DeviceKind{{"nemotron_h", false, "f32"}, "flash", kFlash, true}),
    NameOfTest);

// Rows that selectors leave out are hidden in the masks of all attentions that read a layer.
TEST(LibraryDeviceSelectors, SelectForEachAttentionOfALayer) {
  const auto model = LoadForDevice(Gemma4WithSharedRows());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  SessionOptions options;
  options.policy = {.name = "quest", .granularity = Granularity::kLayer};
  options.policy.budget = *ParseBudget("64");
  auto device = MakeEngineOf(*model, {.threads = 1, .device = *ParseDevice("ggml-sim")});
  auto host = MakeEngineOf(*model, {.threads = 1});
  auto session = Open(*device, options), expected = Open(*host, options), full = Open(*host);
  std::mt19937_64 random(4);
  std::vector<double> differences, from_full;
  int64_t unread = 0, expected_unread = 0;
  for (int i = 0; i < 200; ++i) {
    const auto token = static_cast<Token>(random() % (*model)->shape().vocab_size);
    for (Session* each : {session.get(), expected.get(), full.get()}) ExpectOk(each->Decode(token));
    differences.push_back(LargestDifference(Logits(*expected), Logits(*session)));
    from_full.push_back(LargestDifference(Logits(*full), Logits(*session)));
    unread += session->last_step().rows_unread;
    expected_unread += expected->last_step().rows_unread;
  }
  EXPECT_GT(unread, 1000);
  EXPECT_NEAR(unread, expected_unread, 0.05 * expected_unread);
  // A page whose bound is nearly another's may be chosen in its place.
  std::ranges::sort(differences);
  std::ranges::sort(from_full);
  EXPECT_LT(differences[100], kFlash);
  EXPECT_GT(from_full[100], 10 * differences[100]);
}

// ggml's assertion would end the process, or lose the device, at the first step.
TEST(LibraryDeviceOperations, ThatABackendLacksAreNamedWhenAnEngineOpens) {
  const auto model = LoadForDevice({"qwen35moe", true, "f32"});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  for (const ggml_op lacks : {GGML_OP_MUL_MAT_ID, GGML_OP_GATED_DELTA_NET}) {
    SetSimBackendLacks(lacks);
    const Status status =
        Engine::Create(*model, {.threads = 1, .device = *ParseDevice("ggml-sim")}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(ggml_op_name(lacks)));
  }
  SetSimBackendLacks(GGML_OP_NONE);
}

}  // namespace
}  // namespace ebb
