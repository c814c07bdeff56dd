#include "src/policy/policy_table.h"

#include <array>
#include <cstddef>

namespace ebb {
namespace {

constexpr unsigned kProtectedBudget =
    kBudgetOption | kSinksOption | kWindowOption | kIntervalOption;

constexpr std::array kPolicies = {
    PolicyRow{{.name = "full",
               .description = "every row stays",
               .source = "the cache of the model itself",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "recency"},
              kNoOption,
              MakeNoPlacement},
    PolicyRow{{.name = "streaming",
               .description = "the first tokens and a recent window stay",
               .source = "StreamingLLM (2309.17453), published code",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "recency"},
              kProtectedBudget,
              MakeSinksWindowPlacement},
    PolicyRow{{.name = "h2o",
               .description = "the rows with the most mass so far and the recent ones stay",
               .source = "H2O (2306.14048), published code",
               .params = "heavy=N,recent=N",
               .granularity = Granularity::kHead,
               .scorer = "h2o"},
              kBudgetOption | kIntervalOption,
              MakeHeavyRecentPlacement},
    PolicyRow{{.name = "attention",
               .description = "rows with the least cumulative attention go, some are protected",
               .source = "Not All Thoughts Need HBM, Eq. 1, eviction baseline",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "attention"},
              kProtectedBudget,
              MakeBudgetPlacement},
    PolicyRow{{.name = "random",
               .description = "control: random rows go, protected as in attention",
               .source = "Not All Thoughts Need HBM, 4.1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "random"},
              kProtectedBudget,
              MakeBudgetPlacement},
    PolicyRow{{.name = "recency",
               .description = "control: the oldest rows go, protected as in attention",
               .source = "ours",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "recency"},
              kProtectedBudget,
              MakeBudgetPlacement},
};

constexpr std::array kScorers = {
    ScorerRow{{.name = "attention",
               .description = "mean mass over layers and query heads, decode steps only, summed"},
              MakeAttentionScorer},
    ScorerRow{{.name = "h2o", .description = "mass from all queries, prefill included, summed"},
              MakeH2oScorer},
    ScorerRow{{.name = "random", .description = "uniform, fixed by seed, group and position"},
              MakeRandomScorer},
    ScorerRow{{.name = "recency", .description = "the position"}, MakeRecencyScorer},
};

template <typename Info, typename Row, size_t n>
constexpr std::array<Info, n> InfosOf(const std::array<Row, n>& rows) {
  std::array<Info, n> infos = {};
  for (size_t i = 0; i < n; ++i) infos[i] = rows[i].info;
  return infos;
}

constexpr auto kPolicyInfos = InfosOf<PolicyInfo>(kPolicies);
constexpr auto kScorerInfos = InfosOf<ScorerInfo>(kScorers);

}  // namespace

std::span<const PolicyRow> PolicyTable() { return kPolicies; }
std::span<const ScorerRow> ScorerTable() { return kScorers; }
std::span<const PolicyInfo> BuiltinPolicies() { return kPolicyInfos; }
std::span<const ScorerInfo> BuiltinScorers() { return kScorerInfos; }

}  // namespace ebb
