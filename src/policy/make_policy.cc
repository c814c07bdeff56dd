#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include "src/policy/policy_table.h"

namespace ebb {
namespace {

// Bound of every number of tokens or steps, so that sums of them fit into an int.
constexpr int kMaxNumber = 1 << 28;

constexpr std::string_view kEveryRowStays = "full";
constexpr std::string_view kOfTheHierarchy = "attention";  // unless another is asked for

// In full precision, of all (layer, kv head) pairs together.
size_t TokenBytes(const PolicyContext& context) {
  return context.row_bytes * static_cast<size_t>(context.shape.num_layers) *
         static_cast<size_t>(context.shape.num_kv_heads);
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

// "heavy=N,recent=N": heavy, recent.
std::vector<std::string_view> ParamNames(std::string_view params) {
  std::vector<std::string_view> names;
  while (!params.empty()) {
    const size_t comma = std::min(params.find(','), params.size());
    names.push_back(params.substr(0, params.find('=')));
    params.remove_prefix(std::min(comma + 1, params.size()));
  }
  return names;
}

std::string OptionsOf(const PolicyRow& row) {
  std::vector<std::string> options = {"--scorer", "--granularity"};
  if (row.options & kBudgetOption) options.push_back("--budget");
  if (row.options & kSinksOption) options.push_back("--sinks");
  if (row.options & kWindowOption) options.push_back("--window");
  if (row.options & kIntervalOption) options.push_back("--interval");
  for (const std::string_view param : ParamNames(row.info.params)) {
    options.push_back(fmt::format("{}=", param));
  }
  return Join(options);
}

Status CheckOption(const PolicyRow& row, PolicyOption option, std::string_view text,
                   std::optional<int> value, int smallest) {
  if (!value) return OkStatus();
  if ((row.options & option) == 0) {
    return InvalidArgument(
        fmt::format("policy \"{}\" takes no {}; it takes {}", row.info.name, text, OptionsOf(row)));
  }
  if (*value < smallest || *value > kMaxNumber) {
    return InvalidArgument(
        fmt::format("{} {}: expected {} to {}", text, *value, smallest, kMaxNumber));
  }
  return OkStatus();
}

Result<std::map<std::string, int>> ParseParams(const PolicyRow& row, const PolicySpec& spec) {
  const std::vector<std::string_view> names = ParamNames(row.info.params);
  std::map<std::string, int> params;
  for (const auto& [key, text] : spec.params) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      return InvalidArgument(fmt::format(
          "policy \"{}\" has no parameter \"{}\"; {}", row.info.name, key,
          names.empty() ? std::string("it has none") : fmt::format("valid: {}", Join(names))));
    }
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || value < 0 || value > kMaxNumber) {
      return InvalidArgument(fmt::format("policy \"{}\": {}=\"{}\": expected 0 to {}",
                                         row.info.name, key, text, kMaxNumber));
    }
    params.emplace(key, value);
  }
  return params;
}

// Bytes become the rows per group that they hold.
Result<Budget> ResolveBudget(const Budget& budget, const PolicyContext& context) {
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
    // More than any sequence has; the policy need not know how much more.
    rows = std::min(rows, static_cast<double>(kMaxNumber));
  }
  if (rows != std::floor(rows) || rows > kMaxNumber) {
    return refuse(fmt::format("is not a whole number of rows up to {}", kMaxNumber));
  }
  return Budget{Budget::Unit::kRows, rows};
}

Result<PlacementOptions> ReadOptions(const PolicyRow& row, const PolicySpec& spec,
                                     const PolicyContext& context) {
  if (spec.budget.unit != Budget::Unit::kNone && (row.options & kBudgetOption) == 0) {
    return InvalidArgument(
        fmt::format("policy \"{}\" takes no --budget; it takes {}", row.info.name, OptionsOf(row)));
  }
  EBB_RETURN_IF_ERROR(CheckOption(row, kSinksOption, "--sinks", spec.sinks, 0));
  EBB_RETURN_IF_ERROR(CheckOption(row, kWindowOption, "--window", spec.window, 0));
  EBB_RETURN_IF_ERROR(CheckOption(row, kIntervalOption, "--interval", spec.interval, 1));
  PlacementOptions options = {.policy = row.info.name,
                              .budget_text = FormatBudget(spec.budget),
                              .sinks = spec.sinks,
                              .window = spec.window,
                              .interval = spec.interval,
                              .tiers = spec.tiers.value_or(TierSpec()),
                              .row_bytes = context.row_bytes,
                              .num_layers = static_cast<size_t>(context.shape.num_layers),
                              .num_kv_heads = static_cast<size_t>(context.shape.num_kv_heads)};
  EBB_ASSIGN_OR_RETURN(options.params, ParseParams(row, spec));
  EBB_ASSIGN_OR_RETURN(options.budget, ResolveBudget(spec.budget, context));
  if (spec.budget.unit == Budget::Unit::kBytes) {
    options.budget_text += fmt::format(" ({} rows)", options.budget.value);
  }
  return options;
}

// The row of the policy that is asked for. With the hierarchy it keeps its scorer and granularity
// alone; the policy that keeps every row names none.
Result<PolicyRow> FindPolicy(const PolicySpec& spec) {
  const std::string_view name =
      spec.tiers && spec.name == kEveryRowStays ? kOfTheHierarchy : std::string_view(spec.name);
  EBB_ASSIGN_OR_RETURN(const PolicyRow* found, FindRow(PolicyTable(), "policy", name));
  PolicyRow row = *found;
  if (!spec.tiers) return row;
  if (spec.budget.unit != Budget::Unit::kNone) {
    return InvalidArgument(
        "--budget does not go with --t0, --t1, --t2 and --evict; --evict says how much goes");
  }
  if (!spec.params.empty()) {
    return InvalidArgument(
        fmt::format("policy \"{}\": with --t0, --t1, --t2 and --evict it only names the scorer and "
                    "takes no {}=",
                    name, spec.params.begin()->first));
  }
  row.options = kSinksOption | kWindowOption | kIntervalOption;
  row.info.params = "";
  row.make_placement = MakeHierarchyPlacement;
  return row;
}

}  // namespace

Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context) {
  EBB_ASSIGN_OR_RETURN(const PolicyRow row, FindPolicy(spec));
  const bool own_scorer = spec.scorer.empty() || spec.scorer == row.info.scorer;
  EBB_ASSIGN_OR_RETURN(
      const ScorerRow* scorer,
      FindRow(ScorerTable(), "scorer", own_scorer ? row.info.scorer : spec.scorer));
  EBB_ASSIGN_OR_RETURN(const PlacementOptions options, ReadOptions(row, spec, context));

  Policy policy;
  policy.name = row.info.name;
  if (!own_scorer) policy.name += fmt::format("+scorer={}", spec.scorer);
  policy.granularity = spec.granularity.value_or(row.info.granularity);
  EBB_ASSIGN_OR_RETURN(policy.placement, row.make_placement(options));
  policy.scorer =
      scorer->make({.shape = context.shape, .granularity = policy.granularity, .seed = spec.seed});
  return policy;
}

}  // namespace ebb
