// Makers of the built-in scorers; each stands in the file of its name, with its rule and source.
#ifndef EBB_POLICY_SCORERS_H_
#define EBB_POLICY_SCORERS_H_

#include <cstdint>
#include <memory>

#include "ebb/policy.h"
#include "ebb/types.h"

namespace ebb {

struct ScorerContext {
  ModelShape shape;
  Granularity granularity = Granularity::kToken;
  uint64_t seed = 0;

  [[nodiscard]] int NumGroups() const { return shape.NumGroups(granularity); }
  // Query heads of one layer that belong to one group.
  [[nodiscard]] int QueryHeadsPerGroup() const {
    return granularity == Granularity::kHead ? shape.QueryHeadsPerKvHead() : shape.num_q_heads;
  }
};

using ScorerFactory = std::unique_ptr<Scorer> (*)(const ScorerContext&);

std::unique_ptr<Scorer> MakeAttentionScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeH2oScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRandomScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRecencyScorer(const ScorerContext& context);

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_H_
