// Beside a simulated device: the two ways of reading T1, what they cost on its clock, and faults.
// That T1 beyond a device changes no bit is in tiers_test.cc.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "ebb/session_file.h"
#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr int kPromptTokens = 40;
constexpr int kDecodeTokens = 200;

const std::vector<Token>& Text() {
  static const std::vector<Token> kText = SomeTokens(kPromptTokens + kDecodeTokens);
  return kText;
}

DeviceSpec Device(const std::string& keys = "") {
  DeviceSpec spec = *ParseDevice(keys.empty() ? "sim" : "sim:" + keys);
  spec.memory_bytes = 256 << 20;
  return spec;
}

EngineOptions Options(T1Mode mode, const DeviceSpec& device = Device()) {
  EngineOptions options = {.threads = 1, .device = device, .t1_mode = mode};
  options.tiers = {.t0_share = 0.3, .t1 = T1Place::kHost};
  return options;
}

PolicySpec PolicyOf(const EngineOptions& options, Granularity granularity = Granularity::kToken) {
  PolicySpec policy = {.name = "attention", .granularity = granularity};
  policy.tiers = options.tiers;
  policy.window = 8;
  policy.interval = 8;
  return policy;
}

void Decode(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[kPromptTokens + i]));
}

void Read(Session& session) { ExpectOk(session.Prefill(std::span(Text()).first(kPromptTokens))); }

int64_t RowsIn(const Session& session, Tier tier) {
  return session.accounting().tiers[static_cast<int>(tier)].rows;
}

class ComputeMode : public testing::TestWithParam<Granularity> {};

TEST_P(ComputeMode, IsTheFullCacheUpToRounding) {
  for (const auto& [t2_share, tolerance] : {std::pair(0.0, 1e-4), {0.3, 1e-2}}) {
    EngineOptions options = Options(T1Mode::kCompute);
    options.kv_type = RowType::kF32;
    options.tiers->t2_share = t2_share;
    EngineOptions streams = options;
    streams.t1_mode = T1Mode::kStream;
    auto engine = MakeEngine(options);
    auto exact_engine = MakeEngine(streams);
    auto session = Open(*engine, PolicyOf(options, GetParam()));
    auto exact = Open(*exact_engine, PolicyOf(options, GetParam()));
    for (Session* s : {session.get(), exact.get()}) Read(*s);
    double largest = 0;
    for (int i = 0; i < kDecodeTokens; ++i) {
      Decode(*session, i, i + 1);
      Decode(*exact, i, i + 1);
      largest = std::max(largest, LargestDifference(Logits(*exact), Logits(*session)));
    }
    EXPECT_GT(RowsIn(*session, Tier::kT1), 0);
    // A difference of one rounding may give a row another code in T2.
    EXPECT_LT(largest, tolerance) << t2_share;
    EXPECT_NE(session->logits_hash(), exact->logits_hash());
    // Tokens of a later turn: few go through the fold, many are streamed.
    for (const int count : {5, 60}) {
      for (Session* s : {session.get(), exact.get()}) ExpectOk(s->Prefill(SomeTokens(count, 3)));
      EXPECT_LT(LargestDifference(Logits(*exact), Logits(*session)), tolerance) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Granularities, ComputeMode,
                         testing::Values(Granularity::kToken, Granularity::kLayer,
                                         Granularity::kHead));

TEST(ComputeModeTest, MassOfEveryRowIsThatOfStreaming) {
  std::map<T1Mode, std::vector<float>> masses;
  for (const T1Mode mode : {T1Mode::kCompute, T1Mode::kStream}) {
    const EngineOptions options = Options(mode);
    auto engine = MakeEngine(options);
    auto session = Open(*engine, PolicyOf(options));
    Read(*session);
    Decode(*session, 0, 100);
    ASSERT_GT(RowsIn(*session, Tier::kT1), 0);
    auto& signals = Insides::SequenceOf(*session).signals();
    const GroupSignals group = signals.Group(0);
    masses[mode].assign(group.mass.begin(), group.mass.end());
  }
  const std::vector<float>& streamed = masses[T1Mode::kStream];
  const std::vector<float>& computed = masses[T1Mode::kCompute];
  ASSERT_EQ(computed.size(), streamed.size());
  ASSERT_GT(computed.size(), 100u);
  double sum = 0;
  for (size_t row = 0; row < computed.size(); ++row) {
    EXPECT_NEAR(computed[row], streamed[row], 1e-4) << row;
    sum += computed[row];
  }
  EXPECT_NEAR(sum, 2 * 6, 1e-3);  // of two layers' six query heads
}

TEST(ComputeModeTest, ThreadsChangeNoBit) {
  uint64_t hashes[2] = {};
  for (const int threads : {1, 2}) {
    EngineOptions options = Options(T1Mode::kCompute);
    options.threads = threads;
    auto engine = MakeEngine(options);
    auto session = Open(*engine, PolicyOf(options));
    Read(*session);
    Decode(*session, 0, 60);
    ASSERT_GT(RowsIn(*session, Tier::kT1), 0);
    hashes[threads - 1] = session->logits_hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// Bound by copies, by the device's computing, by the host's; the last as issue and paper have it.
class CriticalPath : public testing::TestWithParam<std::tuple<T1Mode, std::string>> {};

TEST_P(CriticalPath, IsWhatASimulatedStepTakes) {
  const auto& [mode, keys] = GetParam();
  const EngineOptions options = Options(mode, Device(keys));
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  Decode(*session, 0, kDecodeTokens);
  const DeviceReport report = engine->device_report();
  EXPECT_EQ(report.name, "sim");
  EXPECT_EQ(report.t1_mode, mode);
  EXPECT_EQ(report.decode_steps, kDecodeTokens);
  EXPECT_GT(report.critical_path_seconds, 0);
  EXPECT_NEAR(report.decode_seconds, report.critical_path_seconds,
              0.05 * report.critical_path_seconds);
  EXPECT_GT(session->accounting().moves.seconds, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, CriticalPath,
                         testing::Combine(testing::Values(T1Mode::kStream, T1Mode::kCompute),
                                          testing::Values("h2d=25GBps,d2h=25GBps,latency=10us",
                                                          "h2d=1GBps,latency=1us,layer=2us",
                                                          "h2d=25GBps,latency=1us,layer=90us",
                                                          "host=1GBps,latency=30us,layer=5us")));

// Which pieces of work overlap: the shape that the timeline is there to show.
nlohmann::json TraceOf(T1Mode mode, const std::string& keys) {
  EngineOptions options = Options(mode, Device(keys));
  options.keep_timeline = true;
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  Decode(*session, 0, 100);
  return nlohmann::json::parse(engine->TimelineJson())["traceEvents"];
}

double Overlap(const nlohmann::json& trace, const std::string& one, const std::string& other) {
  double sum = 0;
  for (const auto& a : trace) {
    if (a["name"] != one) continue;
    for (const auto& b : trace) {
      if (b["name"] != other) continue;
      const double begin = std::max(a["ts"].get<double>(), b["ts"].get<double>());
      const double a_end = a["ts"].get<double>() + a["dur"].get<double>();
      const double b_end = b["ts"].get<double>() + b["dur"].get<double>();
      sum += std::max(0.0, std::min(a_end, b_end) - begin);
    }
  }
  return sum;
}

double Total(const nlohmann::json& trace, const std::string& name) {
  double sum = 0;
  for (const auto& entry : trace) {
    if (entry["name"] == name) sum += entry["dur"].get<double>();
  }
  return sum;
}

TEST(TimelineTest, StreamingHidesCopiesBehindTheRestOfTheLayers) {
  const auto trace = TraceOf(T1Mode::kStream, "latency=10us,layer=20us");
  EXPECT_GT(Total(trace, "T1 pages"), 0);
  EXPECT_GT(Overlap(trace, "T1 pages", "rest of the layer"), 0.8 * Total(trace, "T1 pages"));
}

TEST(TimelineTest, NoPageIsCopiedIntoABufferThatALayerReads) {
  const auto trace = TraceOf(T1Mode::kStream, "device=1GBps,latency=1us,layer=1us");
  // A copy of a layer may begin when the layer two before it was attended to: of the same step, or
  // of the step before where the step had just begun.
  double attended[2] = {};
  int checked = 0;
  for (const auto& entry : trace) {
    if (!entry.contains("ts")) continue;
    const int layer = entry["args"]["layer"];
    if (entry["name"] == "attend") {
      attended[layer % 2] = entry["ts"].get<double>() + entry["dur"].get<double>();
    }
    if (entry["name"] == "T1 pages") {
      EXPECT_GE(entry["ts"].get<double>(), attended[layer % 2] - 1e-3);
      ++checked;
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(TimelineTest, TheHostAttendsWhileTheDeviceDoes) {
  const auto trace = TraceOf(T1Mode::kCompute, "latency=1us,device=1GBps,host=1GBps");
  EXPECT_GT(Overlap(trace, "attend to T1", "attend"), 0.5 * Total(trace, "attend to T1"));
  EXPECT_GT(Total(trace, "queries"), 0);
  EXPECT_GT(Total(trace, "states"), 0);
  EXPECT_EQ(Total(trace, "T1 pages"), 0);
}

T1Mode Chosen(EngineOptions options) {
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  Decode(*session, 0, 60);
  EXPECT_GT(RowsIn(*session, Tier::kT1), 0);
  return engine->device_report().t1_mode;
}

TEST(AutoMode, TakesTheFasterWayWhereRoundingIsAllowedAndNeverElse) {
  const std::string slow_link = "h2d=100MBps,latency=1us,layer=1us";
  EngineOptions options = Options(T1Mode::kAuto, Device(slow_link));
  EXPECT_EQ(Chosen(options), T1Mode::kStream);
  options.allow_inexact = true;
  EXPECT_EQ(Chosen(options), T1Mode::kCompute);
  options.device = Device("h2d=25GBps,latency=10us,layer=50us");
  EXPECT_EQ(Chosen(options), T1Mode::kStream);
}

TEST(DeviceOptions, WhatMakesNoSenseIsRefused) {
  const EngineOptions options = Options(T1Mode::kCompute, {});
  EXPECT_EQ(Engine::Create(SmallModel(), options).status().code(), StatusCode::kInvalidArgument);
}

TEST(DeviceMemory, IsAHardCap) {
  EngineOptions options = Options(T1Mode::kStream);
  options.device.memory_bytes = kDeviceMemoryStep;
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  Status status;
  for (int i = 0; i < 1500 && status.ok(); ++i) status = session->Decode(1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("2097152 of its 2097152 are in use"), std::string::npos)
      << status.message();
}

// Rows that rest in a file come back to wherever their tier lies.
TEST(DeviceSession, IsSavedAndResumedThereAndOnOneMemory) {
  const TempFolder folder;
  const std::string path = folder.File("device.session");
  EngineOptions options = Options(T1Mode::kStream);
  options.tiers->t2_share = 0.2;
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  Decode(*session, 0, 100);
  ASSERT_GT(RowsIn(*session, Tier::kT1), 0);
  ASSERT_GT(RowsIn(*session, Tier::kT2), 0);
  ExpectOk(SaveSession(*session, path));
  Decode(*session, 100, 160);
  EngineOptions one_memory = options;
  one_memory.device = {};
  for (const EngineOptions& elsewhere : {options, one_memory}) {
    auto other = MakeEngine(elsewhere);
    SessionOptions wanted;
    wanted.policy = PolicyOf(options);
    auto resumed = ResumeSession(*other, path, wanted);
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    ExpectOk(Insides::SequenceOf(*resumed->session).cache().Validate());
    Decode(*resumed->session, 100, 160);
    EXPECT_EQ(resumed->session->logits_hash(), session->logits_hash());
  }
}

// Pages of a file go through the host's memory.
class DeviceFile : public testing::TestWithParam<std::string> {};

TEST_P(DeviceFile, RowsInAFileChangeNoBit) {
  EngineOptions options = Options(T1Mode::kStream, Device(GetParam()));
  options.tiers->t1 = T1Place::kFile;
  options.tiers->t2_share = 0.2;
  EngineOptions one_memory = options;
  one_memory.device = {};
  uint64_t hashes[2] = {};
  for (const bool on_device : {false, true}) {
    auto engine = MakeEngine(on_device ? options : one_memory);
    auto session = Open(*engine, PolicyOf(options, Granularity::kHead));
    Read(*session);
    Decode(*session, 0, 120);
    ExpectOk(session->SetT0Share(0.6));
    Decode(*session, 120, 160);
    EXPECT_GT(RowsIn(*session, Tier::kT1), 0);
    hashes[on_device] = session->logits_hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

INSTANTIATE_TEST_SUITE_P(Arrivals, DeviceFile,
                         testing::Values("copies=late", "copies=once", "copies=thread"),
                         [](const auto& test) { return test.param.substr(7); });

TEST(DeviceFileTest, CannotBeAttendedToOnTheHost) {
  EngineOptions options = Options(T1Mode::kCompute);
  options.tiers->t1 = T1Place::kFile;
  const Status status = Engine::Create(SmallModel(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  EXPECT_NE(status.message().find("T1 mode compute"), std::string::npos) << status.ToString();
}

using DeviceMemoryDeathTest = testing::Test;

TEST(DeviceMemoryDeathTest, ARowOfT0IsOutOfTheHostsReach) {
  const EngineOptions options = Options(T1Mode::kStream);
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  Read(*session);
  const std::byte* key = Insides::SequenceOf(*session).cache().Row(0, 0, 0).key;
  EXPECT_DEATH({ *static_cast<const volatile std::byte*>(key); }, "");
}

// Of a copy to the device in a step, which is undone: the session goes on.
TEST(DeviceFaults, AStepWhoseCopyFailsChangesNothing) {
  const EngineOptions options = Options(T1Mode::kStream);
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  auto other = Open(*engine, PolicyOf(options));
  auto unharmed_engine = MakeEngine(options);
  auto unharmed = Open(*unharmed_engine, PolicyOf(options));
  for (Session* s : {session.get(), other.get(), unharmed.get()}) {
    Read(*s);
    Decode(*s, 0, 100);
  }
  SimDevice* device = Insides::Of(*engine).stores.sim();
  int failed = 0;
  device->SetFaults([&](const DeviceRequest& request) -> DeviceFault {
    const bool fails = request.call == DeviceRequest::Call::kCopy && ++failed > 0;
    return {.kind = fails ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  const Status status = session->Decode(Text()[kPromptTokens + 100]);
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_GT(failed, 0);
  EXPECT_EQ(session->next_position(), kPromptTokens + 100);
  device->SetFaults({});
  for (Session* s : {session.get(), other.get(), unharmed.get()}) Decode(*s, 100, 150);
  EXPECT_EQ(session->logits_hash(), unharmed->logits_hash());
  EXPECT_EQ(other->logits_hash(), unharmed->logits_hash());
}

// Of a move: its rows are lost, and the session says so from then on.
TEST(DeviceFaults, AMoveThatFailsEndsItsOwnRequestAlone) {
  const EngineOptions options = Options(T1Mode::kStream);
  auto engine = MakeEngine(options);
  auto session = Open(*engine, PolicyOf(options));
  auto other = Open(*engine, PolicyOf(options));
  auto unharmed_engine = MakeEngine(options);
  auto unharmed = Open(*unharmed_engine, PolicyOf(options));
  for (Session* s : {session.get(), other.get(), unharmed.get()}) {
    Read(*s);
    Decode(*s, 0, 100);
  }
  SimDevice* device = Insides::Of(*engine).stores.sim();
  device->SetFaults([](const DeviceRequest& request) -> DeviceFault {
    const bool fails =
        request.call == DeviceRequest::Call::kCopy && request.queue == DeviceQueue::kToHost;
    return {.kind = fails ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  Status status;
  for (int i = 100; i < 150 && status.ok(); ++i) status = session->Decode(Text()[i]);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("the device failed to copy"), std::string::npos);
  device->SetFaults({});
  EXPECT_EQ(session->Decode(1).ToString(), status.ToString());
  Decode(*other, 100, 200);
  Decode(*unharmed, 100, 200);
  EXPECT_EQ(other->logits_hash(), unharmed->logits_hash());
  session.reset();
  other.reset();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(engine->arena_accounting(tier).used_bytes, 0u);
  }
}

}  // namespace
}  // namespace ebb
