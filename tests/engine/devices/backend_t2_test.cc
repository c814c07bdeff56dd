// Tests T2 on a backend's device. Compressed rows lie in its memory where ebb's own nodes read them
// ("auto"), or as rows of ggml's quantised types, which its operations read ("flash", "eager").
// The CPU attends to compressed rows in the host's memory where a model's heads are no multiple of
// 32 channels ("host").
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "ebb/session_file.h"
#include "src/session/session_impl.h"
#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/device/sim_backend.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it opens devices of its own");

class BackendT2Test : public testing::TestWithParam<const char*> {
 public:
  static const std::string& device() { return device_; }
  // Small, with heads that the kind of T2 is for.
  static RandomGgufOptions Shape(RandomGgufOptions shape = SmallModelOptions()) {
    if (is_on_host_) shape.head_dim = 16;
    return shape;
  }
  static std::shared_ptr<const Model> T2Model() {
    static std::shared_ptr<const Model> models[2];
    auto& model = models[is_on_host_ ? 1 : 0];
    if (model == nullptr) model = ForDevice(Shape());
    return model;
  }
  static bool IsOnHost() { return is_on_host_; }
  // Records of the CPU's formats.
  static bool IsPacked() {
    const bool has_own_nodes = !device_.starts_with("vulkan") && !device_.starts_with("rpc");
    return is_on_host_ || (has_own_nodes && device_ == TestDevice("attention=auto"));
  }

 protected:
  void SetUp() override {
    is_on_host_ = std::string(GetParam()) == "host";
    device_ = TestDevice(std::string("attention=") + (is_on_host_ ? "flash" : GetParam()));
  }
  void TearDown() override {
    is_on_host_ = false;
    device_ = TestDevice("attention=auto");
  }

 private:
  inline static std::string device_ = TestDevice("attention=auto");
  inline static bool is_on_host_ = false;
};
INSTANTIATE_TEST_SUITE_P(Attention, BackendT2Test,
                         testing::Values("auto", "flash", "eager", "host"), ByAttention::Name);

TieredOptions WithT2(CompressedType type = CompressedType::kInt8, T1Place t1 = T1Place::kHost) {
  TieredOptions options = {{.threads = 2, .device = *ParseDevice(BackendT2Test::device())}};
  options.Set(
      {.engine = {.t1 = t1, .t2_type = type}, .shares = {.t0_share = 0.5, .t2_share = 0.4}});
  return options;
}

EngineOptions OnHost(EngineOptions options) {
  options.device = {};
  return options;
}

// At random, so that rounding changes no decision.
PolicySpec AtRandom(const TieredOptions& options, Granularity granularity = Granularity::kHead) {
  PolicySpec policy = Tiered(options, granularity);
  policy.scorer = "random";
  policy.seed = 5;
  return policy;
}

std::unique_ptr<Engine> T2Engine(const EngineOptions& options = WithT2()) {
  return MakeEngineOf(BackendT2Test::T2Model(), options);
}

// Between the logits of two sessions that read and decode the same tokens.
double LargestDifferenceOf(Session& a, Session& b) {
  for (Session* session : {&a, &b}) Read(*session);
  double largest = LargestDifference(Logits(a), Logits(b));
  for (int i = 0; i < kDecodeTokens; ++i) {
    for (Session* session : {&a, &b}) Decode(*session, i, i + 1);
    largest = std::max(largest, LargestDifference(Logits(a), Logits(b)));
  }
  return largest;
}

// What joins the host's column needs concat, and a step of one sequence does not otherwise.
TEST(BackendOperations, ThatABackendLacksAreNamedWhenAnEngineOpensThatNeedsThem) {
  const auto engine_of = [](EngineOptions options, const char* device) {
    options.device = *ParseDevice(device);
    return Engine::Create(DeviceModel(), options).status();
  };
  EngineOptions in_place = WithT2();
  in_place.tiers->t2_type.reset();
  EngineOptions streams = in_place;
  in_place.t1_mode = T1Mode::kCompute;
  SetSimBackendLacks(GGML_OP_CONCAT);
  ExpectOk(engine_of({.threads = 1}, "ggml-sim:attention=flash"));
  ExpectOk(engine_of(streams, "ggml-sim:attention=flash"));
  ExpectOk(engine_of(WithT2(), "ggml-sim"));
  for (const EngineOptions& options : {EngineOptions(WithT2()), in_place}) {
    const Status status = engine_of(options, "ggml-sim:attention=flash");
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("cannot compute CONCAT"), std::string::npos)
        << status.ToString();
    EXPECT_NE(status.message().find("on the host"), std::string::npos) << status.ToString();
  }
  // Streaming is left where there is a choice.
  streams.allow_inexact = true;
  ExpectOk(engine_of(streams, "ggml-sim:attention=flash"));
  for (const ggml_op lacks : {GGML_OP_RMS_NORM, GGML_OP_SUM_ROWS}) {
    SetSimBackendLacks(lacks);
    const Status status = engine_of({.threads = 1}, "ggml-sim");
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find(ggml_op_name(lacks)), std::string::npos) << status.ToString();
  }
  SetSimBackendLacks(GGML_OP_NONE);
  ExpectOk(engine_of({.threads = 1}, "ggml-sim"));
}

TEST_P(BackendT2Test, IsTheProcessorUpToRounding) {
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4}) {
    for (const Granularity granularity :
         {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
      const TieredOptions options = WithT2(type);
      auto device = T2Engine(options),
           host = MakeEngineOf(BackendT2Test::T2Model(), OnHost(options));
      const PolicySpec policy = AtRandom(options, granularity);
      auto session = Open(*device, policy), expected = Open(*host, policy);
      if (!IsPacked()) {
        // Flash and eager attention read the same records.
        EngineOptions others = options;
        others.device = *ParseDevice(TestDevice("attention=flash"));
        auto flash = MakeEngineOf(BackendT2Test::T2Model(), others);
        auto one = Open(*device, policy), other = Open(*flash, policy);
        EXPECT_LT(LargestDifferenceOf(*one, *other), 1.5 * kFlashError)
            << CompressedTypeName(type) << ' ' << GranularityName(granularity);
        // Formats of their own: each is compared with the full cache.
        auto full = Open(*host, PolicySpec()), also_full = Open(*host, PolicySpec());
        const double of_blocks = LargestDifferenceOf(*session, *full);
        const double of_cpu = LargestDifferenceOf(*expected, *also_full);
        EXPECT_LT(of_blocks, 2 * of_cpu + kFlashError)
            << CompressedTypeName(type) << ' ' << GranularityName(granularity);
        EXPECT_EQ(RowsIn(*session, Tier::kT2), RowsIn(*expected, Tier::kT2));
        ExpectOk(Internals::SequenceOf(*session).cache().Validate());
        continue;
      }
      // A row that differs in its last bits may have other codes in T2, which adds to the error,
      // and the processor rounds the queries of int4 to 8 bits.
      const double allowed = type == CompressedType::kInt4 ? 2.5 : 1.5;
      EXPECT_LT(LargestDifferenceOf(*session, *expected), allowed * kFlashError)
          << CompressedTypeName(type) << ' ' << GranularityName(granularity);
      for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
        EXPECT_EQ(RowsIn(*session, tier), RowsIn(*expected, tier));
        EXPECT_GT(RowsIn(*session, tier), 100);
      }
      ExpectOk(Internals::SequenceOf(*session).cache().Validate());
    }
  }
}

// What is in T2 follows from the text alone; where the other rows lie changes no bit.
TEST_P(BackendT2Test, RowsInT1ChangeNoBit) {
  std::vector<uint64_t> hashes;
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    for (const double t0_share : {1.0, 0.3, 0.0}) {
      TieredOptions options = WithT2(CompressedType::kInt8, t1);
      options.shares->t0_share = t0_share;
      auto engine = T2Engine(options);
      auto session = Open(*engine, Tiered(options, Granularity::kToken));
      Read(*session);
      Decode(*session, 0, kDecodeTokens);
      EXPECT_GT(RowsIn(*session, Tier::kT2), 100);
      EXPECT_EQ(RowsIn(*session, Tier::kT1) > 0, t0_share < 1);
      hashes.push_back(session->logits_hash());
    }
  }
  for (const uint64_t hash : hashes) EXPECT_EQ(hash, hashes[0]);
}

TEST_P(BackendT2Test, StaysBesideRowsOfT1ThatTheHostAttendsTo) {
  TieredOptions options = WithT2(), computes = options;
  computes.t1_mode = T1Mode::kCompute;
  auto streams = T2Engine(options), engine = T2Engine(computes);
  auto session = Open(*engine, AtRandom(options)), expected = Open(*streams, AtRandom(options));
  const double largest = LargestDifferenceOf(*session, *expected);
  EXPECT_EQ(engine->device_report().t1_mode, T1Mode::kCompute);
  EXPECT_EQ(streams->device_report().t1_mode, T1Mode::kStream);
  // A difference of one rounding may give a row another code in T2.
  EXPECT_LT(largest, std::string(GetParam()) == "auto" ? 1e-2 : kFlashError);
  EXPECT_GT(largest, 0);
}

// After a roll-back groups may have as many rows in T0 but not in T2.
TEST_P(BackendT2Test, GroupsMayHaveOtherNumbersOfRowsThere) {
  TieredOptions options = WithT2(), computes = options;
  options.shares->t0_share = computes.shares->t0_share = 0;
  computes.t1_mode = T1Mode::kCompute;
  auto streams = T2Engine(options), engine = T2Engine(computes);
  auto session = Open(*engine, AtRandom(options)), expected = Open(*streams, AtRandom(options));
  for (Session* each : {session.get(), expected.get()}) {
    Read(*each);
    Decode(*each, 0, 200);
    ExpectOk(each->TruncateTo(kPromptTokens + 130));
  }
  const RowViews& views = Internals::SequenceOf(*session).cache().views();
  std::set<size_t> counts;
  for (int layer = 0; layer < 2; ++layer) {
    for (int head = 0; head < 2; ++head) counts.insert(views.Compressed(layer, head).size());
  }
  EXPECT_GT(counts.size(), 1u);
  for (int i = 130; i < 150; ++i) {
    for (Session* each : {session.get(), expected.get()}) Decode(*each, i, i + 1);
    EXPECT_LT(LargestDifference(Logits(*session), Logits(*expected)), kFlashError) << i;
  }
}

TEST_P(BackendT2Test, PromptsAreReadBesideIt) {
  const TieredOptions options = WithT2();
  auto device = T2Engine(options), host = MakeEngineOf(BackendT2Test::T2Model(), OnHost(options));
  auto session = Open(*device, AtRandom(options)), expected = Open(*host, AtRandom(options));
  for (Session* each : {session.get(), expected.get()}) {
    Read(*each);
    Decode(*each, 0, 120);
    ASSERT_GT(RowsIn(*each, Tier::kT2), 0);
    ExpectOk(each->Prefill(SomeTokens(50, 7)));
  }
  EXPECT_LT(LargestDifference(Logits(*session), Logits(*expected)), kFlashError);
  // In pieces, beside a session that decodes.
  auto other = Open(*device, PolicySpec());
  Read(*other);
  const std::vector<Token> prompt = SomeTokens(40, 9);
  ExpectOk(session->BeginPrompt(prompt));
  for (int i = 0; session->prompt_left() > 0; ++i) {
    std::vector<SessionStep> batch = {{.session = other.get(), .token = Text()[kPromptTokens + i]},
                                      {.session = session.get(), .most_prompt_tokens = 7}};
    ExpectOk(device->Step(batch));
  }
  ExpectOk(expected->Prefill(prompt));
  EXPECT_LT(LargestDifference(Logits(*session), Logits(*expected)), kFlashError);
}

// Layers with windows, and with other numbers of kv heads.
TEST_P(BackendT2Test, LayersThatDifferHaveIt) {
  RandomGgufOptions windows = SmallModelOptions(), mixed = SmallModelOptions();
  windows.head_dim = mixed.head_dim = Shape().head_dim;
  windows.family = "gemma3";
  windows.num_layers = 4;
  windows.sliding_window = 48;
  windows.window_pattern = 2;
  mixed.family = "deci";
  mixed.num_layers = 3;
  mixed.kv_heads_by_layer = {1, 3, 2};
  for (const RandomGgufOptions& shape : {windows, mixed}) {
    const auto model = ForDevice(shape);
    const TieredOptions options = WithT2();
    auto device = MakeEngineOf(model, options), host = MakeEngineOf(model, OnHost(options));
    for (const Granularity granularity : {Granularity::kLayer, Granularity::kHead}) {
      auto session = Open(*device, AtRandom(options, granularity));
      auto expected = Open(*host, AtRandom(options, granularity));
      for (Session* each : {session.get(), expected.get()}) {
        Read(*each);
        Decode(*each, 0, 150);
        EXPECT_GT(RowsIn(*each, Tier::kT2), 20);
        ExpectOk(each->Prefill(SomeTokens(60, 7)));
      }
      EXPECT_EQ(RowsIn(*session, Tier::kT2), RowsIn(*expected, Tier::kT2));
      EXPECT_LT(LargestDifference(Logits(*session), Logits(*expected)), 1.5 * kFlashError)
          << shape.family << ' ' << GranularityName(granularity);
    }
  }
}

// Many in one step, each with mass of its own and eight query heads for a kv head.
TEST_P(BackendT2Test, ManySequencesStepTogether) {
  RandomGgufOptions shape = Shape();
  shape.num_q_heads = 16;
  const auto model = ForDevice(shape);
  const TieredOptions options = WithT2();
  auto engine = MakeEngineOf(model, options);
  PolicySpec policy = Tiered(options, Granularity::kHead);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(sessions.emplace_back(Open(*engine, policy)).get());
    ExpectOk(all.back()->Prefill(RandomTokens(shape, 20 + i, i)));
  }
  for (int step = 0; step < 60; ++step) {
    const std::vector<Token> tokens(all.size(), step + 3);
    ExpectOk(engine->DecodeBatch(all, tokens));
  }
  for (Session* session : all) EXPECT_GT(RowsIn(*session, Tier::kT2), 0);
}

// A cap on T0 that a prompt exceeds: rows are compressed while it is read.
TEST_P(BackendT2Test, APromptThatT0DoesNotHoldIsRead) {
  RandomGgufOptions shape = Shape(SixteenStreamsOptions());
  // Rows of all streams take as many bytes.
  if (IsOnHost()) shape.num_q_heads = shape.num_kv_heads = 16;
  const auto model = ForDevice(shape);
  TieredOptions options = WithT2();
  // 512 rows of each (layer, kv head) pair.
  options.Set({.engine = {.t0_cap_bytes = size_t{2} << 20,
                          .t1 = T1Place::kHost,
                          .t2_type = CompressedType::kInt8},
               .shares = {.t2_share = 0.4}});
  auto device = MakeEngineOf(model, options), host = MakeEngineOf(model, OnHost(options));
  const std::vector<Token> prompt = RandomTokens(shape, 700, 3);
  const PolicySpec policy = AtRandom(options, Granularity::kToken);
  auto session = Open(*device, policy), expected = Open(*host, policy);
  for (Session* each : {session.get(), expected.get()}) {
    ExpectOk(each->Prefill(std::span(prompt).first(300)));
    for (int i = 0; i < 200; ++i) ExpectOk(each->Decode(i));
    ExpectOk(each->Prefill(std::span(prompt).subspan(300)));
    EXPECT_GT(RowsIn(*each, Tier::kT1), 1000);
    EXPECT_GT(RowsIn(*each, Tier::kT2), 1000);
  }
  EXPECT_LE(device->arena_accounting(Tier::kT0).peak_bytes, size_t{2} << 20);
  EXPECT_LT(LargestDifference(Logits(*session), Logits(*expected)), kFlashError);
}

TEST_P(BackendT2Test, MassIsTheProcessors) {
  for (const T1Mode mode : {T1Mode::kStream, T1Mode::kCompute}) {
    for (const MassNeed need : {MassNeed::kSummed, MassNeed::kPerKvHead, MassNeed::kPerQueryHead}) {
      TieredOptions options = WithT2();
      options.t1_mode = mode;
      EngineOptions on_host = OnHost(options);
      on_host.t1_mode = T1Mode::kAuto;
      std::vector<std::vector<float>> masses;
      for (const EngineOptions& each : {EngineOptions(options), on_host}) {
        auto engine = MakeEngineOf(BackendT2Test::T2Model(), each);
        SessionOptions wanted = WithPolicy(AtRandom(options, Granularity::kLayer));
        KeepMass(need, &wanted, &masses.emplace_back());
        auto session = Open(*engine, wanted);
        Read(*session);
        Decode(*session, 0, 100);
        EXPECT_GT(RowsIn(*session, Tier::kT2), 0);
      }
      ASSERT_GT(masses[0].size(), 1000u);
      ASSERT_EQ(masses[0].size(), masses[1].size());
      float largest = 0, most = 0;
      for (size_t i = 0; i < masses[0].size(); ++i) {
        largest = std::max(largest, std::abs(masses[0][i] - masses[1][i]));
        most = std::max(most, masses[1][i]);
      }
      EXPECT_LT(largest, 2e-2);
      EXPECT_GT(most, 0.1);
    }
  }
}

TEST_P(BackendT2Test, ASessionIsSavedForkedAndTakenBack) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  const TieredOptions options = WithT2();
  const PolicySpec policy = Tiered(options, Granularity::kHead);
  auto engine = T2Engine(options);
  auto session = Open(*engine, policy);
  Read(*session);
  Decode(*session, 0, 120);
  ASSERT_GT(RowsIn(*session, Tier::kT2), 0);
  ExpectOk(SaveSession(*session, path));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  auto resumed = ResumeSession(*engine, path, WithPolicy(policy));
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  auto host = MakeEngineOf(BackendT2Test::T2Model(), OnHost(options));
  auto on_host = ResumeSession(*host, path, WithPolicy(policy));
  Decode(*session, 120, 121);
  if (IsPacked()) {
    ASSERT_TRUE(on_host.ok()) << on_host.status().ToString();
    Decode(*on_host->session, 120, 121);
    EXPECT_LT(LargestDifference(Logits(*session), Logits(*on_host->session)), kFlashError);
  } else {
    EXPECT_THAT(on_host.status().message(), testing::HasSubstr("in blocks of ggml's types"));
  }
  Decode(*session, 121, 160);
  for (Session* each : {fork->get(), resumed->session.get()}) {
    Decode(*each, 120, 160);
    EXPECT_EQ(each->logits_hash(), session->logits_hash());
  }
  ExpectOk(session->TruncateTo(kPromptTokens + 60));
  ExpectOk(Internals::SequenceOf(*session).cache().Validate());
  Decode(*session, 60, 100);
}

// What the device has no memory for is tried in smaller parts, or later; no row is lost.
TEST_P(BackendT2Test, MemoryThatIsNotThereLosesNothing) {
  if (!IsSimulated()) GTEST_SKIP() << "no faults can be asked for";
  const TieredOptions options = WithT2();
  auto engine = T2Engine(options);
  auto session = Open(*engine, AtRandom(options));
  Read(*session);
  int failed = 0;
  SetSimBackendFaults([&, n = 0](SimBackendWork work) mutable {
    const bool fails = work == SimBackendWork::kAllocate && ++n % 3 == 0;
    failed += fails ? 1 : 0;
    return fails;
  });
  int refused = 0;
  Status status;
  while (session->next_position() < kPromptTokens + kDecodeTokens) {
    status = session->Decode(Text()[session->next_position()]).status;
    if (status.ok()) continue;
    ASSERT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
    ASSERT_LT(++refused, 1000);
  }
  SetSimBackendFaults({});
  EXPECT_GT(failed, 0);
  ExpectOk(Internals::SequenceOf(*session).cache().Validate());
  EXPECT_GT(RowsIn(*session, Tier::kT2), 100);
  session.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0U);
  }
}

TieredOptions WithOldRows(CompressedType type,
                          const std::string& device = BackendT2Test::device()) {
  TieredOptions options = {{.threads = 2, .device = *ParseDevice(device)}};
  options.Set(
      {.engine = {.t1 = T1Place::kHost, .t2_type = type}, .shares = {.t2_rows = T2Rows::kOld}});
  return options;
}

PolicySpec Compressing(const TieredOptions& options) {
  PolicySpec policy;
  policy.tiers = options.shares;
  return policy;
}

TEST_P(BackendT2Test, LiesOnTheDeviceWhereItCanBeReadThere) {
  const TieredOptions options = WithT2();
  auto engine = T2Engine(options);
  auto session = Open(*engine, AtRandom(options));
  Read(*session);
  Decode(*session, 0, 120);
  ASSERT_GT(RowsIn(*session, Tier::kT2), 0);
  const SequenceCache& cache = Internals::SequenceOf(*session).cache();
  EXPECT_EQ(cache.views().CompressedOnDevice(), !IsOnHost());
  EXPECT_EQ(Internals::SequenceOf(*session).prompt().ReadsTokenByToken(), IsOnHost());
  EXPECT_EQ(cache.layout().compressed_format().in_ggml_blocks, !IsPacked());
}

TEST_P(BackendT2Test, OldRowsAreTheProcessorsUpToRounding) {
  if (IsOnHost()) {
    const TieredOptions options = WithOldRows(CompressedType::kInt4);
    const Status status = T2Engine(options)->OpenSession(WithPolicy(Compressing(options))).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(
        status.message(),
        testing::HasSubstr("a compressed cache of all old rows needs T2 in the memory of device"));
    EXPECT_THAT(status.message(), testing::HasSubstr("of 16 channels"));
    return;
  }
  const std::vector<Token> text = SomeTokens(900, 3);
  for (const CompressedType type :
       {CompressedType::kInt8, CompressedType::kInt4, CompressedType::kInt3}) {
    TieredOptions options = WithOldRows(type);
    options.prefill_chunk = 256;
    auto device = T2Engine(options), host = MakeEngineOf(BackendT2Test::T2Model(), OnHost(options));
    auto session = Open(*device, Compressing(options));
    auto expected = Open(*host, Compressing(options)), full = Open(*host, PolicySpec());
    // Differences: between both, and those of compressing.
    double largest = 0, of_format = 0, of_device = 0;
    const auto compare = [&] {
      largest = std::max(largest, LargestDifference(Logits(*session), Logits(*expected)));
      of_format = std::max(of_format, LargestDifference(Logits(*full), Logits(*expected)));
      of_device = std::max(of_device, LargestDifference(Logits(*full), Logits(*session)));
    };
    for (const auto& [begin, end] : {std::pair(0, 600), std::pair(700, 760)}) {
      for (Session* each : {session.get(), expected.get(), full.get()}) {
        ExpectOk(each->Prefill(std::span(text).subspan(begin, end - begin)));
      }
      compare();
      for (int i = end; i < end + 100; ++i) {
        for (Session* each : {session.get(), expected.get(), full.get()}) {
          ExpectOk(each->Decode(text[i]));
        }
        compare();
      }
    }
    // A row that differs in its last bits may have other codes in T2, which adds to the error, and
    // the processor rounds queries.
    if (IsPacked()) {
      EXPECT_LT(largest, std::max(kFlashError, of_format / 3)) << CompressedTypeName(type);
    }
    EXPECT_LT(of_device, 1.5 * of_format + kFlashError) << CompressedTypeName(type);
    for (const Tier tier : {Tier::kT0, Tier::kT2}) {
      EXPECT_EQ(RowsIn(*session, tier), RowsIn(*expected, tier));
      EXPECT_GT(RowsIn(*session, tier), 100);
    }
    ExpectOk(Internals::SequenceOf(*session).cache().Validate());
  }
}

// Parking, forking, saving, resuming, rolling back and batching change no bit.
TEST_P(BackendT2Test, OldRowsAreTheSameWhereverTheyComeFrom) {
  if (IsOnHost()) return;  // refused
  const std::vector<Token> text = SomeTokens(900, 3);
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4}) {
    const TieredOptions options = WithOldRows(type);
    auto engine = T2Engine(options);
    auto session = Open(*engine, Compressing(options));
    const auto decode = [&](Session& each, int from, int to) {
      for (int i = from; i < to; ++i) ExpectOk(each.Decode(text[i]));
    };
    ExpectOk(session->Prefill(std::span(text).first(600)));
    decode(*session, 600, 650);
    const TempFolder folder;
    const std::string path = folder.File("session");
    ExpectOk(SaveSession(*session, path));
    auto fork = session->Fork();
    ExpectOk(fork.status());
    auto resumed = ResumeSession(*engine, path, WithPolicy(Compressing(options)));
    ExpectOk(resumed.status());
    decode(*session, 650, 800);
    ExpectOk((*fork)->Park());
    EXPECT_EQ(RowsIn(**fork, Tier::kT0), 0);
    for (Session* each : {fork->get(), resumed->session.get()}) {
      decode(*each, 650, 800);
      EXPECT_EQ(each->logits_hash(), session->logits_hash());
      ExpectOk(Internals::SequenceOf(*each).cache().Validate());
    }
    // A batch of all of them, from a point before rows were compressed that are now.
    std::vector<Session*> all = {session.get(), fork->get(), resumed->session.get()};
    for (Session* each : all) {
      ExpectOk(each->TruncateTo(700));
      ExpectOk(Internals::SequenceOf(*each).cache().Validate());
    }
    for (int i = 700; i < 800; ++i) {
      ExpectOk(engine->DecodeBatch(all, std::vector<Token>(all.size(), text[i])));
    }
    EXPECT_EQ(Logits(*all[0]), Logits(*all[1]));
    EXPECT_EQ(Logits(*all[0]), Logits(*all[2]));
  }
}

// A device's memory of three extents has room for 1,536 rows of each of 16 streams in f16. With
// int4 one extent holds the newest 512 rows, and the two others 2,816.
TEST_P(BackendT2Test, OldRowsMakeRoomOnADevice) {
  if (IsOnHost()) return;  // refused
  if (!IsSimulated()) GTEST_SKIP() << "it counts bytes of a device of its own";
  const RandomGgufOptions shape = SixteenStreamsOptions();
  const auto model = ForDevice(shape);
  const std::vector<Token> prompt = RandomTokens(shape, 2500, 3);
  TieredOptions options = WithOldRows(CompressedType::kInt4,
                                      std::string("ggml-sim:memory=6MiB,attention=") + GetParam());
  options.tiers->t1 = T1Place::kNone;
  options.prefill_chunk = 256;
  for (const bool compresses : {true, false}) {
    auto engine = MakeEngineOf(model, options);
    auto session = Open(*engine, compresses ? Compressing(options) : PolicySpec());
    const Status status = session->Prefill(prompt).status;
    EXPECT_EQ(status.code(), compresses ? StatusCode::kOk : StatusCode::kOutOfMemory)
        << status.ToString();
    EXPECT_EQ(session->next_position(), compresses ? 2500 : 1536);
    const uint64_t taken = engine->arena_accounting(Tier::kT0).reserved_bytes +
                           engine->arena_accounting(Tier::kT2).reserved_bytes;
    EXPECT_LE(taken, uint64_t{6} << 20);
    ExpectOk(Internals::SequenceOf(*session).cache().Validate());
  }
}

// The device gives up at its nth piece of work.
TEST_P(BackendT2Test, AFailureHasAClearError) {
  if (!IsSimulated()) GTEST_SKIP() << "no faults can be asked for";
  int64_t works = 0;
  SetSimBackendFaults([&](SimBackendWork work) {
    works += work != SimBackendWork::kAllocate;
    return false;
  });
  const TieredOptions options = WithT2();
  const auto run = [&](Session* session) {
    Status status = session->Prefill(std::span(Text()).first(kPromptTokens)).status;
    for (int i = 0; i < 60 && status.ok(); ++i)
      status = session->Decode(Text()[kPromptTokens + i]).status;
    return status;
  };
  {
    auto engine = T2Engine(options);
    auto session = Open(*engine, AtRandom(options));
    works = 0;
    ExpectOk(run(session.get()));
  }
  for (int64_t n = 1; n < works; n += 1 + works / 50) {
    SetSimBackendFaults({});
    auto engine = T2Engine(options);
    auto session = Open(*engine, AtRandom(options));
    SetSimBackendFaults([left = n](SimBackendWork work) mutable {
      return work != SimBackendWork::kAllocate && --left == 0;
    });
    const Status status = run(session.get());
    SetSimBackendFaults({});
    EXPECT_EQ(status.code(), StatusCode::kInternal) << n << " " << status.ToString();
    EXPECT_FALSE(session->Decode(3).ok());
    session.reset();
    EXPECT_EQ(engine->arena_accounting(Tier::kT2).used_bytes, 0U);
  }
}

}  // namespace
}  // namespace ebb
