// Drives a policy through the events of a sequence as the engine does, with made-up signals and no
// model: for tests of policies.
#ifndef EBB_TESTS_SUPPORT_POLICY_POLICY_HARNESS_H_
#define EBB_TESTS_SUPPORT_POLICY_POLICY_HARNESS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ebb/lab/foresight.h"
#include "ebb/policy.h"

namespace ebb {

// Signals drawn from a hash of (seed, step, layer, head, row), whatever was declared.
class MadeUpSignals {
 public:
  enum class Fault {
    kNone,
    kNanLayers,  // some layers are NaN at some steps, and left out as the engine does
    kNanMass,    // some numbers of the mass itself are NaN or infinite
  };

  MadeUpSignals(const ModelShape& shape, Granularity granularity, const SignalNeeds& needs,
                uint64_t seed, Fault fault);

  // The next step: `num_tokens` new tokens from `first` on.
  const StepSignals& Step(StepKind kind, Position first, int num_tokens);
  // What that step shows of a group whose rows, the new ones included, are at `positions`. Lives
  // until this is asked again of the group.
  GroupSignals Group(int group, std::span<const Position> positions);

 private:
  float Uniform(uint64_t a, uint64_t b) const;
  void Fill(size_t num_arrays, const std::function<size_t(size_t array)>& length, uint64_t salt,
            std::vector<std::vector<float>>* data, std::vector<std::span<const float>>* spans);

  const ModelShape shape_;
  const Granularity granularity_;
  const SignalNeeds needs_;
  const uint64_t seed_;
  const Fault fault_;
  uint64_t num_steps_ = 0;
  StepSignals step_;
  std::vector<std::vector<float>> keys_, keys_before_rope_, values_, queries_, hidden_;
  std::vector<std::vector<float>> eviction_logits_;
  std::vector<std::vector<float>> mass_;  // [groups]
};

// What policies that look ahead are told where there is nothing to replay: a hash of group and
// position, now and then no number.
class MadeUpForesight final : public Foresight {
 public:
  void AttentionLeft(int group, std::span<const Position> positions,
                     std::span<float> left) const override;
};
// One for all tests.
const Foresight& SomeForesight();

struct HarnessOptions {
  ModelShape shape = {.num_layers = 3,
                      .num_q_heads = 4,
                      .num_kv_heads = 2,
                      .head_dim = 4,
                      .embed_dim = 8,
                      .vocab_size = 16,
                      .trained_context = 4096};
  uint64_t signal_seed = 1;
  MadeUpSignals::Fault fault = MadeUpSignals::Fault::kNone;
};

class PolicyHarness {
 public:
  // One decision that was carried out.
  struct Eviction {
    int64_t step = 0;  // of all kinds, from 0
    int group = 0;
    Position position = 0;
    bool operator==(const Eviction&) const = default;
  };

  PolicyHarness(Policy policy, const HarnessOptions& options);

  // One chunk of given tokens. The first call is the whole first prefill.
  Status Prefill(int num_tokens);
  // Internal when a placement's moves break its contract; they are not carried out then. Asks
  // Check() before each decision, too.
  Status Decode(int num_steps);
  // One decode step of several tokens, as lossless generation has.
  Status DecodeAtOnce(int num_tokens);
  void TruncateTo(Position end);
  // As if somebody else had removed these rows, ascending.
  void Remove(int group, std::span<const uint32_t> rows);

  [[nodiscard]] int num_groups() const { return static_cast<int>(groups_.size()); }
  [[nodiscard]] const std::vector<Position>& positions(int group) const { return groups_[group]; }
  [[nodiscard]] const std::vector<Tier>& tiers(int group) const { return tiers_[group]; }
  [[nodiscard]] const std::vector<TokenKind>& kinds() const { return kinds_; }
  [[nodiscard]] const std::vector<Eviction>& evictions() const { return evictions_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }
  // What a placement sees of the group now, scores included when there are any.
  [[nodiscard]] PlacementInput Input(int group);
  [[nodiscard]] std::span<const float> Scores(int group) { return policy_.scorer->Scores(group); }

 private:
  Status Step(StepKind kind, int num_tokens);
  Status Place(int group);
  void Retain(int group, std::span<const uint32_t> kept);

  const HarnessOptions options_;
  Policy policy_;
  const SignalNeeds needs_;
  MadeUpSignals signals_;
  std::vector<std::vector<Position>> groups_;  // [num_groups][num_rows]
  std::vector<std::vector<Tier>> tiers_;       // [num_groups][num_rows]
  std::vector<TokenKind> kinds_;
  StepKind step_kind_ = StepKind::kPrefill;
  int64_t num_steps_ = 0;
  int64_t num_generated_ = 0;
  int new_tokens_ = 0;  // of the last step
  std::vector<Eviction> evictions_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_POLICY_POLICY_HARNESS_H_
