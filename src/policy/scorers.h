// Declares the makers of the built-in scorers. Each is in the .cc file of its name, whose first
// comment gives the rule and its source.
#ifndef EBB_POLICY_SCORERS_H_
#define EBB_POLICY_SCORERS_H_

#include <cstdint>
#include <memory>

#include "ebb/policy.h"
#include "ebb/types.h"
#include "src/base/attention_layout.h"
#include "src/policy/params.h"

namespace ebb {

struct ScorerContext {
  ModelShape shape;
  Granularity granularity = Granularity::kToken;
  uint64_t seed = 0;
  Params params = {};
  const Foresight* foresight = nullptr;  // not null for those that look ahead
  int eviction_shift = 1;                // as PolicyContext's
  RunParts run_parts = {};               // as PolicyContext's

  [[nodiscard]] int NumGroups() const { return shape.NumGroups(granularity); }
  // Returns the (layer, kv head) pairs and query heads of each group.
  [[nodiscard]] AttentionLayout Layout() const { return AttentionLayout(shape, granularity); }
};

using ScorerFactory = std::unique_ptr<Scorer> (*)(const ScorerContext&);

// Makes the scorers that use only the attention that rows receive.
std::unique_ptr<Scorer> MakeAttentionScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeAttentionMeanScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeAttentionRecentScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeH2oScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeTovaScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRaasScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeLazyEvictionScorer(const ScorerContext& context);
// Makes the scorers that use attention together with keys or values.
std::unique_ptr<Scorer> MakeVatpScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRkvScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRedundancyScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeCombinedScorer(const ScorerContext& context);
// Makes the scorers that use keys or values alone.
std::unique_ptr<Scorer> MakeKvKeyScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeKvValScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeLagKvScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeLagKeyScorer(const ScorerContext& context);
// Makes the scorers that use hidden states; MakeAttnHsScorer() also uses attention.
std::unique_ptr<Scorer> MakeEpikvScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeHsVarianceScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeBandAdaptiveScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeAttnHsScorer(const ScorerContext& context);
// Makes the scorers that cut the thought into segments (segments.h).
std::unique_ptr<Scorer> MakeThinkvScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeThinkvOriginalScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeSegmentHsScorer(const ScorerContext& context);
// Makes the scorers that use no signal.
std::unique_ptr<Scorer> MakeRandomScorer(const ScorerContext& context);
std::unique_ptr<Scorer> MakeRecencyScorer(const ScorerContext& context);
// Makes the scorer that uses the eviction marks of the model.
std::unique_ptr<Scorer> MakeDmsScorer(const ScorerContext& context);
// Makes the scorer that uses future attention (Foresight).
std::unique_ptr<Scorer> MakeOracleScorer(const ScorerContext& context);

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_H_
