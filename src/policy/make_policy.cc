#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ebb/recent_windows.h"
#include "src/base/key_values.h"
#include "src/base/text/near_names.h"
#include "src/base/text/size_text.h"
#include "src/policy/pairs.h"
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
  const auto meant = LikelyMeant(name, {names.begin(), names.end()});
  return InvalidArgument(
      fmt::format("unknown {} \"{}\"; {}valid: {}", what, name,
                  meant.has_value() ? fmt::format("did you mean {}? ", *meant) : "", Join(names)));
}

// ResolvedPolicy holds a policy's row of PolicyRegistry::Tables, and the parameters that the user
// gave its scorer.
struct ResolvedPolicy {
  PolicyRow row;
  PlacementFactory retention = nullptr;  // makes the placement that evicts; null: nothing evicts
  PlacementFactory layout = nullptr;     // places the rows that stay in tiers; null: no tiers
  const ScorerRow* scorer = nullptr;
  std::string base;    // its name in the table
  std::string name;    // "windowed:h2o", "h2o+scorer=random"
  std::string params;  // that it takes
};

std::string OptionsOf(const ResolvedPolicy& resolved) {
  const unsigned taken = resolved.row.options;
  std::vector<std::string> options;
  for (const auto& [name, option] : kPolicyOptionNames) {
    if (option == kNoOption || (taken & option) != 0) options.emplace_back(name);
  }
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

// Returns how many rows of each (layer, kv head) fit into `bytes`, each counted in the format that
// it will have. Of compressed rows, those that always stay in full precision come first.
double RowsIn(double bytes, const PolicySpec& spec, const PolicyContext& context) {
  const auto streams = static_cast<double>(context.shape.NumStreams());
  const double full = static_cast<double>(context.row_bytes) * streams;
  const auto compressed = static_cast<double>(context.compressed_row_bytes) * streams;
  if (!spec.tiers || !HasT2(*spec.tiers) || compressed == 0) return std::floor(bytes / full);
  const bool is_old = CompressesOldRows(spec.tiers);
  const auto first =
      is_old ? static_cast<double>(OldBesideT2(*spec.tiers, 0).MostInT0())
             : spec.sinks.value_or(kDefaultSinks) + spec.window.value_or(kDefaultWindow);
  if (bytes <= first * full) return std::floor(bytes / full);
  const double share = is_old ? 1 : spec.tiers->t2_share;
  return first + std::floor((bytes - first * full) / (share * compressed + (1 - share) * full));
}

// Returns a budget as messages have it: bytes as a size for people.
std::string BudgetInMessage(const Budget& budget) {
  return budget.unit == Budget::Unit::kBytes ? SizeText(budget.value) : FormatBudget(budget);
}

// Converts a budget in bytes or as a compression ratio to rows per group.
Result<Budget> ResolveBudget(const PolicySpec& spec, const PolicyContext& context) {
  const Budget& budget = spec.budget;
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(fmt::format("budget of {} {}", BudgetInMessage(budget), why));
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
    rows = RowsIn(budget.value, spec, context);
    if (rows < 1) {
      const ComparedSizes sizes(static_cast<uint64_t>(budget.value), TokenBytes(context));
      return InvalidArgument(
          fmt::format("budget of {} holds no row: a token takes {}", sizes.first, sizes.second));
    }
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
    return InvalidArgument(fmt::format(
        "policy \"{}\" takes no budget; it takes {}{}", resolved.base, OptionsOf(resolved),
        resolved.base == "full" ? "; policies that evict take one, such as h2o" : ""));
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
                              .budget_text = BudgetInMessage(spec.budget),
                              .sinks = spec.sinks,
                              .window = spec.window,
                              .interval = spec.interval,
                              .negative_means_no_room = resolved.scorer->negative_means_no_room,
                              .eviction_window = context.eviction_window,
                              .eviction_shift = context.eviction_shift,
                              .expected_compression = context.expected_compression,
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

// Returns whether tiers place rows by position alone, as for steps that read some rows and with old
// rows in T2. No scores rank rows for them.
bool PlacesByPosition(const PolicySpec& spec, const PolicyRow& row) {
  return ReadsSelectively(spec.tiers) || CompressesOldRows(spec.tiers) || !spec.read.empty() ||
         row.make_selector != nullptr;
}

// Returns whether the spec has an amount of rows for the placement of this policy.
bool HasAmount(const PolicyRow& row, const PolicySpec& spec) {
  if (row.make_placement == MakeNoPlacement) return false;
  if (spec.budget.unit != Budget::Unit::kNone || row.make_placement == MakeDelayedPlacement) {
    return true;
  }
  return std::ranges::any_of(ParamNames(row.info.params), [&](std::string_view name) {
    return spec.params.contains(std::string(name));
  });
}

// Makes the placement that evicts the share TierShares::evict_share of the rows, and demotes and
// promotes no row.
Result<std::unique_ptr<Placement>> MakeShareRetention(const PlacementOptions& options) {
  PlacementOptions evicting = options;
  const TierShares& shares = options.tiers.shares;
  evicting.tiers = {.engine = {.t1 = T1Place::kNone},
                    .shares = {.evict_share = shares.evict_share, .evict_of = shares.evict_of}};
  return MakeHierarchyPlacement(evicting);
}

// Chooses the makers of the retention and of the layout, and the options that they take together.
void ChoosePlacements(const PolicySpec& spec, const EngineTiers& tiers, ResolvedPolicy* resolved) {
  constexpr unsigned kOfTiers = kSinksOption | kWindowOption | kIntervalOption;
  PolicyRow& row = resolved->row;
  if (!spec.tiers) {
    resolved->retention = row.make_placement;
    return;
  }
  const bool by_position = PlacesByPosition(spec, row);
  const bool has_share = by_position && spec.tiers->evict_share > 0;
  resolved->layout = CompressesOldRows(spec.tiers) ? MakeOldRowsPlacement
                     : !by_position                ? MakeHierarchyPlacement
                     : tiers.t1 == T1Place::kNone  ? MakeNoPlacement
                                                   : MakePagedPlacement;
  if (HasAmount(row, spec) || (by_position && !has_share)) {
    resolved->retention = row.make_placement;
    if (!by_position) row.options |= kOfTiers;
    return;
  }
  // The policy ranks rows for the tiers.
  if (has_share) resolved->retention = MakeShareRetention;
  const bool is_read_budget = row.make_selector != nullptr;
  row.options = (by_position && !has_share ? kNoOption : kOfTiers) |
                (is_read_budget ? kBudgetOption : kNoOption);
  if (!is_read_budget) row.info.params = "";
}

// Returns the choices that the spec makes, for CheckPairs(), which refuses choices that exclude
// each other.
std::vector<MadeChoice> ChoicesOf(const PolicySpec& spec, const EngineTiers& tiers,
                                  const ResolvedPolicy& resolved) {
  using C = Choice;
  const PolicyRow& row = resolved.row;
  const std::string policy = fmt::format("policy \"{}\"", resolved.base);
  std::vector<MadeChoice> choices;
  if (resolved.retention != nullptr && resolved.retention == row.make_placement) {
    const std::string what =
        spec.budget.unit == Budget::Unit::kNone
            ? policy
            : fmt::format("{} and a budget of {}", policy, BudgetInMessage(spec.budget));
    const auto makes = [&](PlacementFactory factory) { return row.make_placement == factory; };
    choices.push_back({makes(MakeNoPlacement)            ? C::kKeepsAll
                       : makes(MakeDelayedPlacement)     ? C::kMarks
                       : makes(MakeSinksWindowPlacement) ? C::kWindow
                       : makes(MakeSegmentPlacement) || makes(MakePromptSegmentPlacement)
                           ? C::kSegments
                           : C::kBudget,
                       what});
  }
  if (row.key_turns == KeyTurns::kAfterEviction) {
    choices.push_back({C::kTurnedKeys, fmt::format("{}, which re-rotates keys", policy)});
  }
  if (row.make_placement == MakeDelayedPlacement && resolved.scorer->info.name != row.info.scorer) {
    choices.push_back({C::kOtherScorer, fmt::format("scorer \"{}\"", resolved.scorer->info.name),
                       "policy.scorer"});
  }
  if (row.make_selector != nullptr || !spec.read.empty()) {
    const bool own = row.make_selector != nullptr;
    choices.push_back({C::kQuest, own ? policy : "reading by Quest", own ? "" : "policy.read"});
  }
  if (!spec.tiers) return choices;
  const TierShares& shares = *spec.tiers;
  if (shares.evict_share > 0) {
    choices.push_back({C::kEvictShare, fmt::format("evicting {:.6g}%", 100 * shares.evict_share),
                       "tiers.evict_share"});
  }
  if (shares.evict_beyond_caps) {
    choices.push_back(
        {C::kEvictCaps, "evicting what the caps do not hold", "tiers.evict_beyond_caps"});
  }
  if (CompressesOldRows(spec.tiers)) {
    choices.push_back({C::kOldRows, "a compressed cache of all old rows", "tiers.t2_rows"});
  } else if (shares.t2_share > 0) {
    choices.push_back(
        {C::kT2Share, fmt::format("T2 of {:.6g}%", 100 * shares.t2_share), "tiers.t2_share"});
  }
  if (tiers.t0_cap_bytes > 0) choices.push_back({C::kT0Cap, "a cap on T0", "tiers.t0_cap_bytes"});
  if (ReadsSelectively(spec.tiers)) {
    choices.push_back({C::kSelect, "select", "tiers.t1_read"});
  } else if (tiers.t1 != T1Place::kNone) {
    choices.push_back({C::kT1, "a T1"});
  }
  return choices;
}

Status CheckSelection(const PolicySpec& spec) {
  if (!ReadsSelectively(spec.tiers)) return OkStatus();
  const TierShares& tiers = *spec.tiers;
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

// Finds the row of `tables` that describes the policy `base`. If the tiers need ranked rows and
// `base` keeps every row, returns the row of another policy, which ranks them.
Result<PolicyRow> FindPolicy(const PolicyRegistry::Tables& tables, const PolicySpec& spec,
                             std::string_view base) {
  EBB_ASSIGN_OR_RETURN(const PolicyRow* found, FindBase(tables, base));
  const bool ranks = spec.tiers && spec.budget.unit == Budget::Unit::kNone &&
                     (!PlacesByPosition(spec, *found) || spec.tiers->evict_share > 0);
  if (ranks && base == kEveryRowStays) {
    EBB_ASSIGN_OR_RETURN(found,
                         FindBase(tables, Evicts(*spec.tiers) ? kWhereRowsGo : kWhereRowsStay));
  }
  return *found;
}

Result<ResolvedPolicy> ReadSpec(const PolicySpec& spec, const PolicyRegistry* registry,
                                const EngineTiers& tiers = {}) {
  const PolicyRegistry::Tables& tables = TablesOf(registry);
  std::string_view base = spec.name;
  const bool windowed = base.starts_with(kWindowed);
  if (windowed) base.remove_prefix(kWindowed.size());
  ResolvedPolicy resolved;
  EBB_RETURN_IF_ERROR(CheckSelection(spec));
  EBB_ASSIGN_OR_RETURN(resolved.row, FindPolicy(tables, spec, base));
  ChoosePlacements(spec, tiers, &resolved);
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

// Makes the retention and the layout, stacked.
Result<std::unique_ptr<Placement>> MakePlacement(const ResolvedPolicy& resolved,
                                                 const PlacementOptions& options) {
  std::unique_ptr<Placement> retention, layout;
  if (resolved.retention != nullptr) {
    EBB_ASSIGN_OR_RETURN(retention, resolved.retention(options));
  }
  if (resolved.layout == nullptr) return retention;
  PlacementOptions of_layout = options;
  if (retention != nullptr) of_layout.decided_after = retention->DecidedAfter();
  if (of_layout.decided_after > 0) {
    // The window is the delay of the marks. T2 keeps out of it.
    of_layout.window = std::max(kDefaultWindow, of_layout.decided_after);
  }
  EBB_ASSIGN_OR_RETURN(layout, resolved.layout(of_layout));
  return MakeStackedPlacement(std::move(retention), std::move(layout),
                              options.tiers.engine.t0_cap_bytes > 0);
}

// Reads PolicySpec::read for Quest.
Result<SelectorContext> ReadQuest(const PolicySpec& spec, int max_tokens) {
  constexpr std::string_view kQuest = "quest";
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(
        "policy.read",
        fmt::format("\"{}\": {}; write quest, or quest: followed by any of rows=1024 "
                    "or share=25%, and page=16, with commas",
                    spec.read, why));
  };
  SelectorContext quest;
  const std::string_view text = spec.read;
  if (text != kQuest && !text.starts_with("quest:")) return refuse("not a way to read");
  std::vector<KeyValue> parts;
  if (text != kQuest) {
    auto read = ParseKeyValues(text.substr(kQuest.size() + 1));
    if (!read.ok()) return refuse(read.status().message());
    parts = *std::move(read);
  }
  std::map<std::string, std::string> params;
  for (const auto& [key, value] : parts) {
    if (key == "page") {
      params["page"] = value;
      continue;
    }
    const Result<Budget> budget = ParseBudget(value);
    const bool is_share = key == "share";
    if (!is_share && key != "rows") return refuse("neither rows= nor share= nor page=");
    if (!budget.ok() || budget->unit != (is_share ? Budget::Unit::kPercent : Budget::Unit::kRows) ||
        quest.budget.unit != Budget::Unit::kNone) {
      return refuse("not one number of rows or one share");
    }
    quest.budget = *budget;
  }
  auto read = ReadParams(kQuest, "page=P", params, max_tokens);
  if (!read.ok()) return refuse(read.status().message());
  quest.params = *std::move(read);
  return quest;
}

// Makes the selector of the policy, of PolicySpec::read or of TierShares::t1_read; null: steps read
// all rows.
Result<std::unique_ptr<Selector>> MakeSelector(const ResolvedPolicy& resolved,
                                               const PolicySpec& spec, const PolicyContext& context,
                                               const PlacementOptions& options,
                                               Granularity granularity) {
  if (resolved.row.make_selector != nullptr) {
    return resolved.row.make_selector({.shape = context.shape,
                                       .granularity = granularity,
                                       .budget = options.budget,
                                       .params = options.params});
  }
  if (!spec.read.empty()) {
    EBB_ASSIGN_OR_RETURN(SelectorContext quest, ReadQuest(spec, context.max_tokens));
    quest.shape = context.shape;
    quest.granularity = granularity;
    return MakeQuestSelector(quest);
  }
  if (!ReadsSelectively(spec.tiers)) return std::unique_ptr<Selector>();
  if (spec.tiers->t1_reuse > 0 && !context.shape.layers_read.empty()) {
    return Unsupported("tiers.t1_reuse",
                       "layers of this model share rows, and a layer would reuse the choice of "
                       "another one");
  }
  return MakeMassSelector({.shape = context.shape,
                           .granularity = granularity,
                           .mass = spec.tiers->t1_mass,
                           .most_rows = spec.tiers->t1_rows,
                           .reuse = spec.tiers->t1_reuse,
                           .attention_scale = context.attention_scale});
}

// Refuses scores that need the attention to rows which steps do not read.
Status CheckMass(const Policy& policy, const PolicySpec& spec, const ResolvedPolicy& resolved) {
  const bool uses_scores = policy.placement != nullptr && policy.placement->NeedsScores();
  if (policy.selector == nullptr || !uses_scores ||
      policy.scorer->Needs().mass == MassNeed::kNone) {
    return OkStatus();
  }
  const bool selects = ReadsSelectively(spec.tiers);
  const MadeChoice made[] = {
      {Choice::kReadsMass, fmt::format("scorer \"{}\"", resolved.scorer->info.name)},
      {selects ? Choice::kSelect : Choice::kQuest, selects ? "select" : "reading by Quest",
       selects ? "tiers.t1_read" : "policy.read"}};
  return CheckPairs(made);
}

}  // namespace

Result<PolicySpec> DropUnusedOptions(PolicySpec spec, const PolicyRegistry* registry) {
  EBB_ASSIGN_OR_RETURN(const ResolvedPolicy resolved, ReadSpec(spec, registry));
  const auto takes = [&](PolicyOption option) { return (resolved.row.options & option) != 0; };
  if (!takes(kBudgetOption)) spec.budget = {};
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

bool EvictsByItself(const PolicySpec& spec, const PolicyRegistry* registry) {
  const Result<ResolvedPolicy> resolved = ReadSpec(spec, registry);
  return resolved.ok() && resolved->retention != nullptr &&
         resolved->retention == resolved->row.make_placement &&
         resolved->retention != MakeNoPlacement;
}

Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context) {
  return MakePolicy(spec, context, Protected::kStay);
}

Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context, Protected rows) {
  EBB_ASSIGN_OR_RETURN(const ResolvedPolicy resolved,
                       ReadSpec(spec, context.registry, context.tiers));
  EBB_RETURN_IF_ERROR(CheckPairs(ChoicesOf(spec, context.tiers, resolved)));
  EBB_RETURN_IF_ERROR(CheckNeed(resolved, context));
  EBB_ASSIGN_OR_RETURN(const PlacementOptions options, ReadOptions(resolved, spec, context, rows));

  Policy policy;
  policy.name = resolved.name;
  policy.granularity = GranularityOf(resolved, spec, context.shape);
  policy.identity = IdentityOf(resolved, spec, options, policy.granularity);
  policy.key_turns = resolved.row.key_turns;
  policy.looks_ahead = resolved.scorer->need == ScorerNeed::kForesight;
  EBB_ASSIGN_OR_RETURN(policy.placement, MakePlacement(resolved, options));
  EBB_ASSIGN_OR_RETURN(policy.selector,
                       MakeSelector(resolved, spec, context, options, policy.granularity));
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
  EBB_RETURN_IF_ERROR(CheckMass(policy, spec, resolved));
  return policy;
}

}  // namespace ebb
