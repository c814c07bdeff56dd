// A hundred thousand steps of sessions that come and go, under placements drawn at random, on one
// engine: every byte must be given back.
#include <array>
#include <random>

#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr int64_t kSteps = 100000;
constexpr size_t kSessions = 3;

// Where the tiers lie.
struct Place {
  const char* name = "";
  T1Place t1 = T1Place::kHost;
  DeviceSpec device;  // the processor, or a simulated backend
  T1Mode t1_mode = T1Mode::kAuto;
  uint32_t seed = 0;
};

class Soak {
 public:
  explicit Soak(const Place& place) : random_(place.seed) {
    stores_.t1 = place.t1;
    stores_.t2_type = place.t1 == T1Place::kFile ? CompressedType::kInt4 : CompressedType::kInt8;
    auto engine = Engine::Create(
        place.device.kind == DeviceKind::kCpu ? SmallModel() : DeviceModel(),
        {.threads = 1, .tiers = stores_, .device = place.device, .t1_mode = place.t1_mode});
    status_ = engine.status();
    if (engine.ok()) engine_ = *std::move(engine);
  }

  [[nodiscard]] const Status& status() const { return status_; }

  void Run() {
    int64_t steps = 0;
    while (steps < kSteps && !testing::Test::HasFailure()) {
      auto& session = sessions_[random_() % kSessions];
      if (session == nullptr) {
        session = OpenAtRandom();
        continue;
      }
      const int64_t num_steps = 1 + static_cast<int64_t>(random_() % 200);
      for (int64_t i = 0; i < num_steps; ++i) ExpectOk(session->Decode(Any()));
      steps += num_steps;
      ChangeAtRandom(&session);
    }
    for (auto& session : sessions_) session.reset();
  }

  void ExpectNothingLeft() const {
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      const ArenaAccounting arena = engine_->arena_accounting(tier);
      EXPECT_EQ(arena.used_bytes, 0u) << TierName(tier);
      EXPECT_EQ(arena.reserved_bytes, 0u) << TierName(tier);
      EXPECT_GT(arena.peak_bytes, 0u) << TierName(tier) << " was never used";
    }
    EXPECT_GT(moved_, 0);
    EXPECT_GT(evicted_, 0);
  }

 private:
  [[nodiscard]] Token Any() { return static_cast<Token>(random_() % 200); }
  [[nodiscard]] double Share() { return static_cast<double>(random_() % 5) / 4; }

  std::unique_ptr<Session> OpenAtRandom() {
    constexpr Granularity kGranularities[] = {Granularity::kToken, Granularity::kLayer,
                                              Granularity::kHead};
    TierShares tiers;
    tiers.t0_share = Share();
    tiers.t2_share = Share() / 2;
    tiers.evict_share = Share() / 4;
    tiers.evict_of = random_() % 2 == 0 ? EvictOf::kAlive : EvictOf::kGenerated;
    // Random scores move rows the most.
    PolicySpec policy = {.name = random_() % 4 == 0 ? "attention" : "random",
                         .granularity = kGranularities[random_() % 3],
                         .tiers = tiers,
                         .seed = random_()};
    policy.window = static_cast<int>(random_() % 64);
    policy.interval = 1 + static_cast<int>(random_() % 32);
    auto session = Open(*engine_, policy);
    ExpectOk(session->Prefill(SomeTokens(1 + random_() % 100, random_())));
    return session;
  }

  void ChangeAtRandom(std::unique_ptr<Session>* session) {
    const Position next = (*session)->next_position();
    switch (random_() % 8) {
      case 0:
        ExpectOk((*session)->TruncateTo(1 + static_cast<Position>(random_() % next)));
        ExpectOk((*session)->Prefill(SomeTokens(1 + random_() % 50, random_())));
        break;
      case 1:
        ExpectOk((*session)->Prefill(SomeTokens(1 + random_() % 50, random_())));
        break;
      default:
        break;
    }
    if ((*session)->next_position() < 1500 && random_() % 16 != 0) return;
    const CacheAccounting cache = (*session)->accounting();
    moved_ += cache.moves.rows_down + cache.moves.rows_up;
    evicted_ += cache.rows_evicted;
    session->reset();
  }

  std::mt19937 random_;
  EngineTiers stores_;
  Status status_;
  std::unique_ptr<Engine> engine_;
  std::array<std::unique_ptr<Session>, kSessions> sessions_;
  int64_t moved_ = 0;
  int64_t evicted_ = 0;
};

class SoakTest : public testing::TestWithParam<Place> {};

TEST_P(SoakTest, AHundredThousandStepsLeaveNothingBehind) {
  Soak soak(GetParam());
  if (soak.status().code() == StatusCode::kUnsupported)
    EBB_SKIP_WITHOUT("direct_io") << soak.status().message();
  ExpectOk(soak.status());
  soak.Run();
  soak.ExpectNothingLeft();
}
INSTANTIATE_TEST_SUITE_P(Places, SoakTest,
                         testing::Values(Place{"host", T1Place::kHost, {}, T1Mode::kAuto, 2},
                                         Place{"file", T1Place::kFile, {}, T1Mode::kAuto, 3},
                                         Place{"stream", T1Place::kHost, *ParseDevice("ggml-sim"),
                                               T1Mode::kStream, 4},
                                         Place{"compute", T1Place::kHost, *ParseDevice("ggml-sim"),
                                               T1Mode::kCompute, 5}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb
