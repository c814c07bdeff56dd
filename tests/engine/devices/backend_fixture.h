// Sessions on the simulated backend of ggml (src/device/sim_backend.h), and on the processor beside
// it. EBB_TEST_DEVICE=cuda runs the same suites over a card.
#ifndef EBB_TESTS_ENGINE_DEVICES_BACKEND_FIXTURE_H_
#define EBB_TESTS_ENGINE_DEVICES_BACKEND_FIXTURE_H_

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace ebb {

inline constexpr int kPromptTokens = 40;
inline constexpr int kDecodeTokens = 240;

inline const std::vector<Token>& Text() {
  static const std::vector<Token> kText = SomeTokens(kPromptTokens + kDecodeTokens);
  return kText;
}

// A device as `--device` names it, "ggml-sim:attention=flash" where `settings` are
// "attention=flash".
inline std::string TestDevice(const std::string& settings = "") {
  const char* named = std::getenv("EBB_TEST_DEVICE");
  const std::string name = named != nullptr ? named : "ggml-sim";
  return settings.empty() ? name : name + ":" + settings;
}

// What attends on the device that a test is about: ebb's own nodes, where it has them, or ggml's
// operations.
class ByAttention : public testing::TestWithParam<const char*> {
 public:
  static const std::string& device() { return device_; }
  static auto Name(const testing::TestParamInfo<const char*>& info) {
    return std::string(info.param);
  }

 protected:
  void SetUp() override { device_ = TestDevice(std::string("attention=") + GetParam()); }
  void TearDown() override { device_ = TestDevice(); }

 private:
  inline static std::string device_ = TestDevice();
};

inline bool IsSimulated() { return TestDevice().starts_with("ggml-sim"); }

inline std::shared_ptr<const Model> ForDevice(const RandomGgufOptions& shape) {
  return RandomModel(shape, /*for_device=*/true);
}

inline std::shared_ptr<const Model> DeviceModel() {
  static const std::shared_ptr<const Model> kModel = ForDevice(SmallModelOptions());
  return kModel;
}

inline void Read(Session& session, int num = kPromptTokens) {
  ExpectOk(session.Prefill(std::span(Text()).first(num)));
}

inline void Decode(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[kPromptTokens + i]));
}

inline SessionOptions WithPolicy(const PolicySpec& policy) {
  SessionOptions options;
  options.policy = policy;
  return options;
}

inline PolicySpec Tiered(const TieredOptions& options, Granularity granularity) {
  PolicySpec policy = {.name = "attention", .granularity = granularity};
  policy.tiers = options.shares;
  policy.window = 8;
  policy.interval = 8;
  return policy;
}

// Appends the mass that each step shows, group by group.
inline void KeepMass(MassNeed need, SessionOptions* options, std::vector<float>* mass) {
  options->extra_signals = {.mass = need};
  options->on_signals = [mass](int, std::span<const Position>, const GroupSignals& signals,
                               const StepSignals&) {
    mass->insert(mass->end(), signals.mass.begin(), signals.mass.end());
  };
}

inline int64_t RowsIn(const Session& session, Tier tier) {
  return session.accounting().tiers[static_cast<int>(tier)].rows;
}

// ggml's flash attention on the processor adds values up in f16: 2.6e-2 to 3.2e-2 were seen, by
// processor.
inline constexpr double kFlashError = 5e-2;

// How far logits are from those of the same rows whose sums are added up in another order. (Rows of
// later tokens are rounded to f16.)
inline constexpr double kMergeError = 5e-4;

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_DEVICES_BACKEND_FIXTURE_H_
