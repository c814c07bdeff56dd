#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ebb/recent_windows.h"
#include "src/policy/policy_table.h"

namespace ebb {
namespace {

constexpr std::string_view kEveryRowStays = "full";
// kWhereRowsStay and kWhereRowsGo are the default scorers of the hierarchy without and with
// eviction. If rows are evicted, more answers stay right with lag_kv than with attention
// (docs/results.md).
constexpr std::string_view kWhereRowsStay = "attention";
constexpr std::string_view kWhereRowsGo = "lag_kv";

// The prefix "windowed:" makes any policy decide every W steps ("LazyEviction", 5.3, Table 3).
constexpr std::string_view kWindowed = "windowed:";
constexpr int kWindowedInterval = 64;

// Returns the bytes of one token's rows in full precision, over all (layer, kv head) pairs.
size_t TokenBytes(const PolicyContext& context) {
  return context.row_bytes * static_cast<size_t>(context.shape.NumStreams());
}

template <typename Strings>
std::string Join(const Strings& strings) {
  std::string joined;
  for (const auto& string : strings) joined.append(joined.empty() ? "" : ", ").append(string);
  return joined;
}

template <typename Row>
Result<const Row*> FindRow(std::span<const Row> table, std::string_view what,
                           std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : table) {
    if (row.info.name == name) return &row;
    names.push_back(row.info.name);
  }
  return InvalidArgument(fmt::format("unknown {} \"{}\"; valid: {}", what, name, Join(names)));
}

// ResolvedPolicy holds a policy's row of the table, and the parameters that the user gave its
// scorer.
struct ResolvedPolicy {
  PolicyRow row;
  const ScorerRow* scorer = nullptr;
  std::string base;    // its name in the table
  std::string name;    // "windowed:h2o", "h2o+scorer=random"
  std::string params;  // that it takes
};

std::string OptionsOf(const ResolvedPolicy& resolved) {
  const unsigned taken = resolved.row.options;
  std::vector<std::string> options = {"scorer", "granularity"};
  if (taken & kBudgetOption) options.push_back("budget");
  if (taken & kSinksOption) options.push_back("sinks");
  if (taken & kWindowOption) options.push_back("window");
  if (taken & kIntervalOption) options.push_back("interval");
  for (const std::string_view param : ParamNames(resolved.params)) {
    options.push_back(fmt::format("{}=", param));
  }
  return Join(options);
}

Status CheckOption(const ResolvedPolicy& resolved, PolicyOption option, std::string_view text,
                   std::optional<int> value, int smallest) {
  if (!value) return OkStatus();
  if ((resolved.row.options & option) == 0) {
    if (std::ranges::count(ParamNames(resolved.params), text) > 0) {
      return InvalidArgument(
          fmt::format("policy \"{0}\" takes {1} as a parameter and not as an option; write "
                      "{0}:{1}={2}",
                      resolved.base, text, *value));
    }
    return InvalidArgument(fmt::format("policy \"{}\" takes no {}; it takes {}", resolved.base,
                                       text, OptionsOf(resolved)));
  }
  if (*value < smallest || *value > kMaxNumber) {
    return InvalidArgument(
        fmt::format("{} {}: expected {} to {}", text, *value, smallest, kMaxNumber));
  }
  return OkStatus();
}

// Converts a budget in bytes or as a compression ratio to rows per group.
Result<Budget> ResolveBudget(const PolicySpec& spec, const PolicyContext& context) {
  const Budget& budget = spec.budget;
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(fmt::format("budget of {} {}", FormatBudget(budget), why));
  };
  if (budget.unit == Budget::Unit::kNone) return budget;
  if (!(budget.value > 0) || !std::isfinite(budget.value)) return refuse("is not above 0");
  if (budget.unit == Budget::Unit::kPercent) {
    if (budget.value > 100) return refuse("is more than all");
    return budget;
  }
  double rows = budget.value;
  if (budget.unit == Budget::Unit::kBytes) {
    assert(context.row_bytes > 0);
    const size_t token_bytes = TokenBytes(context);
    rows = std::floor(budget.value / static_cast<double>(token_bytes));
    if (rows < 1) return refuse(fmt::format("holds no row: a token takes {} bytes", token_bytes));
    // No sequence has more rows than kMaxNumber, so the policy decides as with the exact number.
    rows = std::min(rows, static_cast<double>(kMaxNumber));
  }
  if (budget.unit == Budget::Unit::kCompression) {
    const int most_tokens = spec.most_tokens.value_or(context.max_tokens);
    rows = std::floor(most_tokens / budget.value);
    if (rows < 1) return refuse(fmt::format("of {} tokens holds no row", most_tokens));
  }
  if (rows != std::floor(rows) || rows > kMaxNumber) {
    return refuse(fmt::format("is not a whole number of rows up to {}", kMaxNumber));
  }
  const bool beyond = budget.unit == Budget::Unit::kBeyond;
  return Budget{beyond ? Budget::Unit::kBeyond : Budget::Unit::kRows, rows};
}

Status CheckBudget(const ResolvedPolicy& resolved, const Budget& budget) {
  if (budget.unit == Budget::Unit::kNone) return OkStatus();
  if ((resolved.row.options & kBudgetOption) == 0) {
    return InvalidArgument(fmt::format("policy \"{}\" takes no budget; it takes {}", resolved.base,
                                       OptionsOf(resolved)));
  }
  if (budget.unit == Budget::Unit::kBeyond && (resolved.row.options & kBeyondOption) == 0) {
    return InvalidArgument(fmt::format(
        "policy \"{}\": a budget of {} is of rows beyond a protected prompt, which it has not",
        resolved.base, FormatBudget(budget)));
  }
  return OkStatus();
}

Result<PlacementOptions> ReadOptions(const ResolvedPolicy& resolved, const PolicySpec& spec,
                                     const PolicyContext& context, Protected protected_rows) {
  EBB_RETURN_IF_ERROR(CheckBudget(resolved, spec.budget));
  EBB_RETURN_IF_ERROR(CheckOption(resolved, kSinksOption, "sinks", spec.sinks, 0));
  EBB_RETURN_IF_ERROR(CheckOption(resolved, kWindowOption, "window", spec.window, 0));
  EBB_RETURN_IF_ERROR(CheckOption(resolved, kIntervalOption, "interval", spec.interval, 1));
  PlacementOptions options = {.policy = resolved.row.info.name,
                              .budget_text = FormatBudget(spec.budget),
                              .sinks = spec.sinks,
                              .window = spec.window,
                              .interval = spec.interval,
                              .negative_means_no_room = resolved.scorer->negative_means_no_room,
                              .eviction_window = context.eviction_window,
                              .eviction_shift = context.eviction_shift,
                              .tiers = {context.tiers, spec.tiers.value_or(TierShares())},
                              .rows_available = context.rows_available,
                              .protected_rows = protected_rows};
  EBB_ASSIGN_OR_RETURN(options.params,
                       ReadParams(resolved.base, resolved.params, spec.params, context.max_tokens));
  EBB_ASSIGN_OR_RETURN(options.budget, ResolveBudget(spec, context));
  if (resolved.name.starts_with(kWindowed) && !options.interval) {
    options.interval = options.params.Int("w", kWindowedInterval);
  }
  if (options.budget.unit == Budget::Unit::kRows && spec.budget.unit != Budget::Unit::kRows) {
    options.budget_text += fmt::format(" ({} rows)", options.budget.value);
  }
  return options;
}

Result<const PolicyRow*> FindBase(const PolicyRegistry::Tables& tables, std::string_view name) {
  auto found = FindRow(std::span<const PolicyRow>(tables.policies), "policy", name);
  if (found.ok()) return found;
  return InvalidArgument(fmt::format("{}, {}NAME", found.status().message(), kWindowed));
}

// Returns whether rows are placed by position alone, as with selective reading and with old rows in
// T2. No policy decides then, and no row is evicted.
bool PlacesByPosition(const PolicySpec& spec) {
  return ReadsSelectively(spec.tiers) || CompressesOldRows(spec.tiers);
}

// Returns the name of the first option of a policy that has no effect on rows placed by position.
std::string FindOptionOfPolicy(const PolicySpec& spec) {
  if (spec.name != kEveryRowStays) return fmt::format("policy \"{}\"", spec.name);
  if (!spec.scorer.empty()) return fmt::format("scorer \"{}\"", spec.scorer);
  if (spec.sinks || spec.window || spec.interval) return "numbers of sinks, window or interval";
  const bool evicts = Evicts(*spec.tiers) || spec.tiers->evict_of != EvictOf::kGenerated;
  return evicts ? "eviction" : "";
}

Status CheckOldRows(const PolicySpec& spec, const EngineTiers& tiers) {
  if (!CompressesOldRows(spec.tiers)) return OkStatus();
  const auto refuse = [](std::string_view what) {
    return InvalidArgument("tiers.t2_rows",
                           fmt::format("a compressed cache of all old rows cannot be combined with "
                                       "{}: it keeps every row and compresses all but {}",
                                       what, RowsInT0Text(kNewestBesideT2)));
  };
  if (const std::string option = FindOptionOfPolicy(spec); !option.empty()) return refuse(option);
  if (spec.tiers->t2_share > 0) return refuse("a share of rows in T2");
  if (tiers.t0_cap_bytes > 0) return refuse("a cap on T0");
  return OkStatus();
}

Status CheckSelection(const PolicySpec& spec) {
  if (!ReadsSelectively(spec.tiers)) return OkStatus();
  const TierShares& tiers = *spec.tiers;
  const auto refuse = [](std::string_view what) {
    return InvalidArgument("tiers.t1_read",
                           fmt::format("select cannot be combined with {}: it keeps every row in "
                                       "full precision and chooses by keys which ones are read",
                                       what));
  };
  if (HasT2(tiers)) return refuse("rows in T2");
  if (const std::string option = FindOptionOfPolicy(spec); !option.empty()) return refuse(option);
  if (!(tiers.t1_mass > 0 && tiers.t1_mass <= 1)) {
    return InvalidArgument("tiers.t1_mass",
                           fmt::format("is {}: expected above 0 and at most 1", tiers.t1_mass));
  }
  if (tiers.t1_rows != 0 && tiers.t1_rows < kFewestSelectedRows) {
    return InvalidArgument("tiers.t1_rows", fmt::format("is {}: expected 0 or at least {}",
                                                        tiers.t1_rows, kFewestSelectedRows));
  }
  if (!(tiers.t1_reuse >= 0 && tiers.t1_reuse <= 1)) {
    return InvalidArgument("tiers.t1_reuse",
                           fmt::format("is {}: expected from 0 to 1", tiers.t1_reuse));
  }
  return OkStatus();
}

// Finds the policy's row of the table. With the hierarchy, only the scorer and granularity of that
// policy are used, and the policy that keeps every row has no name.
Result<PolicyRow> FindPolicy(const PolicyRegistry::Tables& tables, const PolicySpec& spec,
                             const EngineTiers& tiers, std::string_view base) {
  EBB_RETURN_IF_ERROR(CheckSelection(spec));
  EBB_RETURN_IF_ERROR(CheckOldRows(spec, tiers));
  std::string_view name = base;
  const bool by_position = PlacesByPosition(spec);
  if (spec.tiers && !by_position && base == kEveryRowStays) {
    name = Evicts(*spec.tiers) ? kWhereRowsGo : kWhereRowsStay;
  }
  EBB_ASSIGN_OR_RETURN(const PolicyRow* found, FindBase(tables, name));
  PolicyRow row = *found;
  if (!spec.tiers) return row;
  if (spec.budget.unit != Budget::Unit::kNone) {
    return InvalidArgument("policy.budget",
                           "cannot be combined with tiers, whose shares and caps say how many rows "
                           "are evicted");
  }
  for (const std::string_view param : ParamNames(row.info.params)) {
    if (!spec.params.contains(std::string(param))) continue;
    return InvalidArgument(fmt::format(
        "policy \"{}\": with tiers it only names the scorer and takes no {}=", name, param));
  }
  row.options = by_position ? kNoOption : kSinksOption | kWindowOption | kIntervalOption;
  row.info.params = "";
  row.make_placement = CompressesOldRows(spec.tiers) ? MakeOldRowsPlacement
                       : !by_position                ? MakeHierarchyPlacement
                       : tiers.t1 == T1Place::kNone  ? MakeNoPlacement
                                                     : MakePagedPlacement;
  row.key_turns = KeyTurns::kWhenFull;
  return row;
}

Result<ResolvedPolicy> ReadSpec(const PolicySpec& spec, const PolicyRegistry* registry,
                                const EngineTiers& tiers = {}) {
  const PolicyRegistry::Tables& tables = TablesOf(registry);
  std::string_view base = spec.name;
  const bool windowed = base.starts_with(kWindowed);
  if (windowed) base.remove_prefix(kWindowed.size());
  ResolvedPolicy resolved;
  EBB_ASSIGN_OR_RETURN(resolved.row, FindPolicy(tables, spec, tiers, base));
  resolved.base = resolved.row.info.name;
  if (windowed && (resolved.row.options & kIntervalOption) == 0) {
    return InvalidArgument(
        fmt::format("policy \"{}\" takes no decisions that a window could gather", resolved.base));
  }
  const bool own_scorer = spec.scorer.empty() || spec.scorer == resolved.row.info.scorer;
  EBB_ASSIGN_OR_RETURN(resolved.scorer,
                       FindRow(std::span<const ScorerRow>(tables.scorers), "scorer",
                               own_scorer ? resolved.row.info.scorer : spec.scorer));
  resolved.name = fmt::format("{}{}", windowed ? kWindowed : "", resolved.base);
  if (!own_scorer) resolved.name += fmt::format("+scorer={}", spec.scorer);
  for (const std::string_view more : {resolved.row.info.params, resolved.scorer->info.params,
                                      windowed ? "w=P" : std::string_view()}) {
    if (!more.empty()) resolved.params.append(resolved.params.empty() ? "" : ",").append(more);
  }
  return resolved;
}

Status CheckNeed(const ResolvedPolicy& resolved, const PolicyContext& context) {
  const ScorerNeed need = resolved.scorer->need;
  if (need == ScorerNeed::kMarks && context.eviction_window == 0) {
    return InvalidArgument(fmt::format(
        "policy \"{}\": its scorer \"{}\" reads which rows the model itself marks, and "
        "this model marks none: its file has no attention.dms.layout (docs/dev/formats.md)",
        resolved.name, resolved.scorer->info.name));
  }
  if (need != ScorerNeed::kForesight || context.foresight != nullptr) return OkStatus();
  return InvalidArgument(fmt::format(
      "policy \"{}\": its scorer \"{}\" needs the attention that rows will receive, "
      "which is unknown for text that is still to be generated; ebb-lab fidelity replays a "
      "given text",
      resolved.name, resolved.scorer->info.name));
}

// Returns the granularity at which the policy decides. A policy that keeps every row decides
// nothing; if layers have sliding windows, it works per layer, because their rows expire layer by
// layer.
Granularity GranularityOf(const ResolvedPolicy& resolved, const PolicySpec& spec,
                          const ModelShape& shape) {
  if (spec.granularity) return *spec.granularity;
  const bool keeps_all = resolved.base == kEveryRowStays;
  return keeps_all && shape.SmallestWindow() > 0 ? Granularity::kLayer
                                                 : resolved.row.info.granularity;
}

bool UsesSeed(const ResolvedPolicy& resolved) {
  return resolved.scorer->draws_lots || resolved.scorer->extension != nullptr;
}

PolicySpec IdentityOf(const ResolvedPolicy& resolved, PolicySpec spec,
                      const PlacementOptions& options, Granularity granularity) {
  spec.name = resolved.name;
  spec.scorer.clear();
  spec.granularity = granularity;
  spec.budget = options.budget;
  spec.most_tokens.reset();
  if (!UsesSeed(resolved)) spec.seed = 0;
  return spec;
}

}  // namespace

Result<PolicySpec> DropUnusedOptions(PolicySpec spec, const PolicyRegistry* registry) {
  EBB_ASSIGN_OR_RETURN(const ResolvedPolicy resolved, ReadSpec(spec, registry));
  const auto takes = [&](PolicyOption option) { return (resolved.row.options & option) != 0; };
  if (!takes(kBudgetOption) && !spec.tiers) spec.budget = {};
  if (!takes(kSinksOption)) spec.sinks.reset();
  const bool has_budget = spec.budget.unit != Budget::Unit::kNone;
  if (!takes(kWindowOption) || (takes(kBudgetSetsWindow) && has_budget)) spec.window.reset();
  if (!takes(kIntervalOption)) spec.interval.reset();
  return spec;
}

Result<bool> IsRandomized(const PolicySpec& spec, const PolicyRegistry* registry) {
  EBB_ASSIGN_OR_RETURN(const ResolvedPolicy resolved, ReadSpec(spec, registry));
  return UsesSeed(resolved);
}

Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context) {
  return MakePolicy(spec, context, Protected::kStay);
}

Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context, Protected rows) {
  EBB_ASSIGN_OR_RETURN(const ResolvedPolicy resolved,
                       ReadSpec(spec, context.registry, context.tiers));
  EBB_RETURN_IF_ERROR(CheckNeed(resolved, context));
  EBB_ASSIGN_OR_RETURN(const PlacementOptions options, ReadOptions(resolved, spec, context, rows));

  Policy policy;
  policy.name = resolved.name;
  policy.granularity = GranularityOf(resolved, spec, context.shape);
  policy.identity = IdentityOf(resolved, spec, options, policy.granularity);
  policy.key_turns = resolved.row.key_turns;
  policy.looks_ahead = resolved.scorer->need == ScorerNeed::kForesight;
  EBB_ASSIGN_OR_RETURN(policy.placement, resolved.row.make_placement(options));
  if (resolved.row.make_selector != nullptr) {
    policy.selector = resolved.row.make_selector({.shape = context.shape,
                                                  .granularity = policy.granularity,
                                                  .budget = options.budget,
                                                  .params = options.params});
  }
  if (ReadsSelectively(spec.tiers)) {
    if (spec.tiers->t1_reuse > 0 && !context.shape.layers_read.empty()) {
      return Unsupported("tiers.t1_reuse",
                         "layers of this model share rows, and a layer would reuse the choice of "
                         "another one");
    }
    policy.selector = MakeMassSelector({.shape = context.shape,
                                        .granularity = policy.granularity,
                                        .mass = spec.tiers->t1_mass,
                                        .most_rows = spec.tiers->t1_rows,
                                        .reuse = spec.tiers->t1_reuse,
                                        .attention_scale = context.attention_scale});
  }
  if (resolved.scorer->extension != nullptr) {
    policy.scorer = resolved.scorer->extension->make_scorer(
        {.shape = context.shape, .granularity = policy.granularity, .seed = spec.seed});
  } else {
    policy.scorer = resolved.scorer->make({.shape = context.shape,
                                           .granularity = policy.granularity,
                                           .seed = spec.seed,
                                           .params = options.params,
                                           .foresight = context.foresight,
                                           .eviction_shift = context.eviction_shift,
                                           .run_parts = context.run_parts});
  }
  return policy;
}

}  // namespace ebb
