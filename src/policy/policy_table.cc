#include "src/policy/policy_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ebb {
namespace {

constexpr unsigned kProtectedBudget =
    kBudgetOption | kSinksOption | kWindowOption | kIntervalOption;

constexpr unsigned kRecentBudget = kBudgetOption | kWindowOption | kIntervalOption | kBeyondOption;

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
              kProtectedBudget | kBudgetSetsWindow,
              MakeSinksWindowPlacement},
    PolicyRow{{.name = "h2o",
               .description = "the rows with the most mass so far and the recent ones stay",
               .source = "H2O (2306.14048), published code",
               .params = "heavy=N,recent=N,sinks=N,split=even|quarter",
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
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "random",
               .description = "control: random rows go, protected as in attention",
               .source = "Not All Thoughts Need HBM, 4.1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "random"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "recency",
               .description = "control: the oldest rows go, protected as in attention",
               .source = "ours",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "recency"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "oracle",
               .description =
                   "control: rows that will receive the least attention go; of given text only",
               .source = "ours; attention as in Not All Thoughts Need HBM, Eq. 1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "oracle"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "streaming_rerotated",
               .description = "streaming, with keys re-rotated by place in the cache",
               .source = "StreamingLLM (2309.17453), 3.2, published code",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "recency"},
              kProtectedBudget | kBudgetSetsWindow,
              MakeLaggedSinksWindowPlacement,
              nullptr,
              KeyTurns::kAfterEviction},
    PolicyRow{{.name = "attention_mean",
               .description = "attention, divided by the steps that a row has seen",
               .source = "Not All Thoughts Need HBM, Eq. 1, over a row's lifetime",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "attention_mean"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "attention_recent",
               .description = "attention over the last queries alone",
               .source = "Not All Thoughts Need HBM, 3.1, windowed scoring",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "attention_recent"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "tova",
               .description = "the row that the last query attends to least goes, layer by layer",
               .source = "TOVA (2401.06104), published code",
               .params = "",
               .granularity = Granularity::kLayer,
               .scorer = "tova"},
              kBudgetOption | kIntervalOption,
              MakeTovaPlacement},
    PolicyRow{{.name = "vatp",
               .description = "h2o with mass times the size of the value, the first tokens stay",
               .source = "VATP (2406.12335), published code",
               .params = "heavy=N,recent=N,sinks=N,split=even|quarter",
               .granularity = Granularity::kHead,
               .scorer = "vatp"},
              kBudgetOption | kIntervalOption,
              MakeVatpPlacement},
    PolicyRow{{.name = "rkv",
               .description = "rows that are unimportant to the last queries and like others go",
               .source = "R-KV (2505.24133), published code",
               .params = "",
               .granularity = Granularity::kHead,
               .scorer = "rkv"},
              kBudgetOption | kIntervalOption,
              MakeRkvPlacement},
    PolicyRow{{.name = "redundancy",
               .description = "attention less likeness to the tokens before",
               .source = "Not All Thoughts Need HBM, 4.11",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "redundancy"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "combined",
               .description = "attention times the size of the value, less likeness",
               .source = "Not All Thoughts Need HBM, 4.11",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "combined"},
              kProtectedBudget | kBeyondOption,
              MakeBudgetPlacement},
    PolicyRow{{.name = "lazy_eviction",
               .description = "every W steps, rows long past their recurrence interval go",
               .source = "LazyEviction, Eq. 1, 2 and 5, published code",
               .params = "",
               .granularity = Granularity::kHead,
               .scorer = "lazy_eviction"},
              kBudgetOption | kIntervalOption,
              MakeLazyPlacement},
    PolicyRow{{.name = "raas",
               .description =
                   "the row whose attention was at least alpha longest ago goes, the prompt stays",
               .source = "RaaS (2502.11147), as in EpiKV and LazyEviction",
               .params = "",
               .granularity = Granularity::kLayer,
               .scorer = "raas"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "thinkv",
               .description = "each segment of thought keeps rows by its type",
               .source = "ThinKV (2510.01290), as in EpiKV, App. D",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "thinkv"},
              kRecentBudget,
              MakeSegmentPlacement},
    PolicyRow{{.name = "thinkv_original",
               .description = "segments of thought keep fewer rows at each transition",
               .source = "ThinKV (2510.01290), second-hand",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "thinkv_original"},
              kRecentBudget,
              MakeSegmentPlacement},
    PolicyRow{{.name = "epikv",
               .description =
                   "tokens that changed a middle layer more than usual, and a late one less, stay",
               .source = "EpiKV, Eq. 3",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "epikv"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "hs_variance",
               .description = "the same with plain means of the change",
               .source = "EpiKV, Eq. 2",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "hs_variance"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "band_adaptive",
               .description = "the same over two bands of layers",
               .source = "EpiKV, Table 1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "band_adaptive"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "kv_key",
               .description = "rows with a low variance of the key go",
               .source = "EpiKV, 3.3",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "kv_key"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "kv_val",
               .description = "rows with a low variance of the value go",
               .source = "EpiKV, 3.3",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "kv_val"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "lag_kv",
               .description = "the same of key and value in the range of the chunk before",
               .source = "EpiKV, 3.3, after LagKV (2504.04704)",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "lag_kv"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "lag_key",
               .description = "the same of the key alone",
               .source = "EpiKV, 4.4",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "lag_key"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "attn_hs",
               .description = "cumulative attention plus the change of a middle layer",
               .source = "EpiKV, Table 1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "attn_hs"},
              kRecentBudget,
              MakeRecentQuarterPlacement},
    PolicyRow{{.name = "segment_hs",
               .description = "thinkv with the rows of a segment ranked as in epikv",
               .source = "EpiKV, Table 1",
               .params = "",
               .granularity = Granularity::kToken,
               .scorer = "segment_hs"},
              kRecentBudget,
              MakePromptSegmentPlacement},
    PolicyRow{{.name = "dms",
               .description = "rows that the model itself marks go a window later",
               .source = "Inference-Time Hyper-Scaling (DMS), 3.2 and 3.3, published code",
               .params = "",
               .granularity = Granularity::kHead,
               .scorer = "dms"},
              kWindowOption,
              MakeDelayedPlacement},
    PolicyRow{
        {.name = "quest",
         .description = "every row stays; each query head reads the pages that could matter to it",
         .source = "Quest (2406.10774), published code",
         .params = "page=P",
         .granularity = Granularity::kToken,
         .scorer = "recency"},
        kBudgetOption,
        MakeNoPlacement,
        MakeQuestSelector},
};

constexpr std::array kScorers = {
    ScorerRow{{.name = "attention",
               .description = "mean mass over layers and query heads, decode steps only, summed"},
              MakeAttentionScorer},
    ScorerRow{{.name = "h2o", .description = "mass from all queries, prefill included, summed"},
              MakeH2oScorer},
    ScorerRow{{.name = "random", .description = "uniform, fixed by seed, group and position"},
              MakeRandomScorer,
              ScorerNeed::kNothing,
              true},
    ScorerRow{{.name = "recency", .description = "the position"}, MakeRecencyScorer},
    ScorerRow{{.name = "oracle",
               .description = "attention of the decode steps to come; of given text only"},
              MakeOracleScorer,
              ScorerNeed::kForesight},
    ScorerRow{{.name = "attention_mean",
               .description = "attention divided by the steps that a row has seen"},
              MakeAttentionMeanScorer},
    ScorerRow{{.name = "attention_recent",
               .description = "mean mass over the last N decode steps",
               .params = "last=T"},
              MakeAttentionRecentScorer},
    ScorerRow{{.name = "tova", .description = "mean mass of the last decode step"}, MakeTovaScorer},
    ScorerRow{{.name = "vatp",
               .description = "mass from all queries times the L1 norm of the value, summed"},
              MakeVatpScorer},
    ScorerRow{{.name = "rkv",
               .description = "attention of the last 8 queries less redundancy of keys",
               .params = "lambda=X"},
              MakeRkvScorer},
    ScorerRow{{.name = "redundancy",
               .description = "attention less cosine similarity to the keys before",
               .params = "weight=X,neighbours=T"},
              MakeRedundancyScorer},
    ScorerRow{{.name = "combined",
               .description = "attention times the value norm, less the same similarity",
               .params = "weight=X,neighbours=T"},
              MakeCombinedScorer},
    ScorerRow{{.name = "lazy_eviction",
               .description = "how far a row is within its longest recurrence interval",
               .params = "alpha=X,heads=query|kv,h1=sigmoid|exp|tanh|log|inverse|none,"
                         "h2=sigmoid|exp|tanh|log|inverse|none"},
              MakeLazyEvictionScorer},
    ScorerRow{{.name = "raas",
               .description = "the last step whose attention to the row was at least alpha",
               .params = "alpha=X"},
              MakeRaasScorer},
    ScorerRow{
        .info = {.name = "thinkv",
                 .description = "attention within a segment of thought that has room by its type",
                 .params = "tau=T,reasoning=N,execution=N,transition=N"},
        .make = MakeThinkvScorer,
        .negative_means_no_room = true},
    ScorerRow{
        .info = {.name = "thinkv_original",
                 .description =
                     "attention of the rows nearest to clusters of keys, fewer at each transition",
                 .params = "tau=T,layer=N"},
        .make = MakeThinkvOriginalScorer,
        .negative_means_no_room = true},
    ScorerRow{{.name = "epikv",
               .description = "z-score of the change of a middle layer minus that of a late one",
               .params = "a=N,b=N"},
              MakeEpikvScorer},
    ScorerRow{
        {.name = "hs_variance",
         .description = "rolling mean of the change of a middle layer minus that of a late one",
         .params = "a=N,b=N"},
        MakeHsVarianceScorer},
    ScorerRow{
        {.name = "band_adaptive",
         .description = "mean z-score of the change over a middle band minus that over a late one",
         .params = "a_first=N,a_last=N,b_first=N,b_last=N"},
        MakeBandAdaptiveScorer},
    ScorerRow{{.name = "kv_key", .description = "rolling mean of the variance of the key"},
              MakeKvKeyScorer},
    ScorerRow{{.name = "kv_val", .description = "rolling mean of the variance of the value"},
              MakeKvValScorer},
    ScorerRow{{.name = "lag_kv",
               .description = "variance of key and value in the range of the chunk before",
               .params = "chunk=P"},
              MakeLagKvScorer},
    ScorerRow{{.name = "lag_key",
               .description = "variance of the key in the range of the chunk before",
               .params = "chunk=P"},
              MakeLagKeyScorer},
    ScorerRow{
        {.name = "attn_hs",
         .description = "cumulative attention plus the z-score of the change of a middle layer",
         .params = "a=N,b=N"},
        MakeAttnHsScorer},
    ScorerRow{.info = {.name = "segment_hs",
                       .description = "epikv within a segment of thought that has room by its type",
                       .params = "tau=T,reasoning=N,execution=N,transition=N,a=N,b=N"},
              .make = MakeSegmentHsScorer,
              .negative_means_no_room = true},
    ScorerRow{
        {.name = "dms",
         .description = "the eviction logit that decides on the row, negated; of models with one"},
        MakeDmsScorer,
        ScorerNeed::kMarks},
};

template <typename Info, typename Row, size_t n>
constexpr std::array<Info, n> InfosOf(const std::array<Row, n>& rows) {
  std::array<Info, n> infos = {};
  for (size_t i = 0; i < n; ++i) infos[i] = rows[i].info;
  return infos;
}

// Returns the rows of which a budget in percent is a share. They follow from the options that the
// policy accepts, since these show how its placement counts.
constexpr std::string_view PercentBase(unsigned options) {
  if ((options & kBudgetOption) == 0) return {};
  if ((options & kBeyondOption) != 0) return "the rows ever unprotected";
  if ((options & kBudgetSetsWindow) != 0) return "all rows but the sinks";
  return "all rows, the prompt's too";
}

constexpr auto kPolicyInfos = [] {
  auto infos = InfosOf<PolicyInfo>(kPolicies);
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].percent_of = PercentBase(kPolicies[i].options);
  }
  return infos;
}();
constexpr auto kScorerInfos = InfosOf<ScorerInfo>(kScorers);

bool IsName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

PolicyRegistry::PolicyRegistry()
    : tables_(std::make_unique<Tables>(Tables{.policies = {kPolicies.begin(), kPolicies.end()},
                                              .scorers = {kScorers.begin(), kScorers.end()},
                                              .extensions = {}})) {}
PolicyRegistry::~PolicyRegistry() = default;

Status PolicyRegistry::Add(PolicyExtension extension) {
  const auto is_taken = [&](const auto& row) { return row.info.name == extension.name; };
  if (extension.make_scorer == nullptr) {
    return InvalidArgument(fmt::format("policy \"{}\": nothing makes its scorer", extension.name));
  }
  if (!IsName(extension.name)) {
    return InvalidArgument(fmt::format(
        "policy \"{}\": a name has letters from a to z, digits and _ alone", extension.name));
  }
  if (std::ranges::any_of(tables_->policies, is_taken) ||
      std::ranges::any_of(tables_->scorers, is_taken)) {
    return InvalidArgument(
        fmt::format("policy \"{}\": there is a policy or scorer of that name", extension.name));
  }
  const PolicyExtension& kept = tables_->extensions.emplace_back(std::move(extension));
  tables_->scorers.push_back({.info = {.name = kept.name, .description = kept.description},
                              .make = nullptr,
                              .extension = &kept});
  tables_->policies.push_back(
      {.info = {.name = kept.name,
                .description = kept.description,
                .source = "this program",
                .params = "",
                .granularity = kept.granularity,
                .scorer = kept.name,
                .percent_of = PercentBase(kProtectedBudget | kBeyondOption)},
       .options = kProtectedBudget | kBeyondOption,
       .make_placement = MakeBudgetPlacement});
  return OkStatus();
}

Status PolicyRegistry::Remove(std::string_view name) {
  const auto found = std::ranges::find(tables_->extensions, name, &PolicyExtension::name);
  if (found == tables_->extensions.end()) {
    return NotFound(fmt::format("policy \"{}\": it is not an added policy", name));
  }
  const auto is_its_own = [&](const auto& row) { return row.info.name == found->name; };
  std::erase_if(tables_->policies, is_its_own);
  std::erase_if(tables_->scorers, is_its_own);
  tables_->extensions.erase(found);
  return OkStatus();
}

const PolicyRegistry::Tables& TablesOf(const PolicyRegistry* registry) {
  static const PolicyRegistry kBuiltin;
  return (registry == nullptr ? kBuiltin : *registry).tables();
}

std::span<const PolicyInfo> BuiltinPolicies() { return kPolicyInfos; }

const PolicyInfo* FindBuiltinPolicy(std::string_view name) {
  constexpr std::string_view kWindowed = "windowed:";
  if (name.starts_with(kWindowed)) name.remove_prefix(kWindowed.size());
  name = name.substr(0, name.find_first_of(":+"));
  const auto found = std::ranges::find(BuiltinPolicies(), name, &PolicyInfo::name);
  return found == BuiltinPolicies().end() ? nullptr : &*found;
}
std::span<const ScorerInfo> BuiltinScorers() { return kScorerInfos; }

}  // namespace ebb
