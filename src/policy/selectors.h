// Declares the makers of the built-in selectors. Each is in the .cc file of its name, whose first
// comment gives the rule and its source.
#ifndef EBB_POLICY_SELECTORS_H_
#define EBB_POLICY_SELECTORS_H_

#include <memory>

#include "ebb/policy.h"
#include "ebb/types.h"
#include "src/base/page_units.h"
#include "src/policy/params.h"

namespace ebb {

struct SelectorContext {
  ModelShape shape;
  Granularity granularity = Granularity::kToken;
  Budget budget = {};  // what may be read: kNone, kRows or kPercent
  Params params = {};
};

using SelectorFactory = std::unique_ptr<Selector> (*)(const SelectorContext&);

std::unique_ptr<Selector> MakeQuestSelector(const SelectorContext& context);

struct MassSelectorOptions {
  ModelShape shape;
  Granularity granularity = Granularity::kToken;
  double mass = 1;    // the share of each query head's attention that is read
  int most_rows = 0;  // of a kv head, those that are always read included; 0: no limit
  // Sets when a kv head reuses the pages that the previous token's queries chose: if the mean
  // cosine between both tokens' queries is at least this; 0: never.
  double reuse = 0;
  float attention_scale = 0;  // of logits; 0: 1 / sqrt(head_dim)
};
std::unique_ptr<Selector> MakeMassSelector(const MassSelectorOptions& options);
// Returns the most bytes that a mass selector occupies for a sequence of `num_tokens` tokens.
[[nodiscard]] size_t MassSelectorBytes(const MassSelectorOptions& options, size_t num_tokens);
// kKeysOfMassSelector is the number of single rows of a stream whose keys the selector stores
// (RankVectors::NumRankKeys()).
inline constexpr size_t kKeysOfMassSelector = 5 * kRowsPerPage;

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_H_
