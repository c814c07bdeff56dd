#include "apps/lab/eval/grid.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "apps/common/options/whole_file.h"
#include "apps/common/report.h"
#include "apps/lab/lab_options.h"
#include "ebb/setting_fields.h"

namespace ebb::cli {
namespace {

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = text.find_last_not_of(' ') + 1;
  return text.substr(begin, end - std::min(begin, end));
}

// Splits a list such as "a,b:x=1,c" at commas. A part with '=' but without ':' is a further
// parameter of the part before it, not an entry.
std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = WithoutBlanks(text.substr(0, comma));
    const bool is_parameter = !parts.empty() && part.find('=') != std::string_view::npos &&
                              part.find(':') == std::string_view::npos;
    if (is_parameter)
      parts.back().append(",").append(part);
    else
      parts.emplace_back(part);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

struct Grid {
  std::vector<std::string> policies;
  std::vector<std::string> budgets;
  std::vector<uint64_t> seeds;
  std::vector<Json> settings;  // JSON objects of options
};

Status Expected(std::string_view key, std::string_view what, const std::string& file) {
  return InvalidArgument(fmt::format("{}: \"{}\" is to be {}", file, key, what));
}

Status ReadTexts(const Json& grid, const char* key, const std::string& file,
                 std::vector<std::string>* texts) {
  if (!grid.contains(key)) return OkStatus();
  if (!grid[key].is_array()) return Expected(key, "a list of texts", file);
  texts->clear();
  for (const Json& text : grid[key]) {
    if (!text.is_string()) return Expected(key, "a list of texts", file);
    texts->push_back(text.get<std::string>());
  }
  return OkStatus();
}

Status ReadSeeds(const Json& grid, const std::string& file, std::vector<uint64_t>* seeds) {
  if (!grid.contains("seeds")) return OkStatus();
  if (!grid["seeds"].is_array()) return Expected("seeds", "a list of numbers from 0", file);
  seeds->clear();
  for (const Json& seed : grid["seeds"]) {
    if (!seed.is_number_unsigned()) return Expected("seeds", "a list of numbers from 0", file);
    seeds->push_back(seed.get<uint64_t>());
  }
  return OkStatus();
}

Status ReadSettings(const Json& grid, const std::string& file, std::vector<Json>* settings) {
  if (!grid.contains("settings")) return OkStatus();
  if (!grid["settings"].is_array()) return Expected("settings", "a list of objects", file);
  settings->clear();
  for (const Json& setting : grid["settings"]) {
    if (!setting.is_object()) return Expected("settings", "a list of objects", file);
    settings->push_back(setting);
  }
  return OkStatus();
}

Status ReadGridFile(const std::string& file, Grid* grid) {
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return InvalidArgument(fmt::format("{} is no JSON: {}", file, error.what()));
  }
  if (!json.is_object()) return InvalidArgument(fmt::format("{} is to hold one object", file));
  constexpr std::array kKeys = {"policies", "budgets", "seeds", "settings"};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kKeys, std::string_view(key)) == kKeys.end())
      return InvalidArgument(fmt::format(
          "{}: unknown key \"{}\"; expected policies, budgets, seeds, settings", file, key));
  }
  EBB_RETURN_IF_ERROR(ReadTexts(json, "policies", file, &grid->policies));
  EBB_RETURN_IF_ERROR(ReadTexts(json, "budgets", file, &grid->budgets));
  EBB_RETURN_IF_ERROR(ReadSeeds(json, file, &grid->seeds));
  return ReadSettings(json, file, &grid->settings);
}

// Returns whether an option has its own list in the grid file ("policies", "budgets"), because it
// names the results.
bool IsListed(std::string_view name) {
  return name == "--policy" || name == "--budget" || name == "--list-policies";
}

const OptionRow* FindOption(std::string_view name) {
  if (IsListed(name)) return nullptr;
  static const std::vector<OptionRow> options = SharedOptions();
  for (const OptionRow& row : options) {
    constexpr std::array kGroups = {OptionGroup::kPolicy, OptionGroup::kLossless,
                                    OptionGroup::kContext, OptionGroup::kKvType};
    if (row.names == name && std::ranges::find(kGroups, row.group) != kGroups.end()) return &row;
  }
  return nullptr;
}

// Sets the options of a setting: {"t0": "50%"} means --t0 50%.
Status ApplySetting(const Json& setting, CliOptions* options) {
  for (const auto& [key, value] : setting.items()) {
    const OptionRow* row = FindOption("--" + key);
    if (row == nullptr)
      return InvalidArgument(
          fmt::format("\"{}\" is no option of a setting; \"policies\" and \"budgets\" are lists "
                      "outside \"settings\", the others are in \"ebb-lab eval --help\"",
                      key));
    if (row->value.empty()) {
      if (!value.is_boolean())
        return InvalidArgument(fmt::format("{}: expected true or false", key));
      if (!value.get<bool>()) continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const Status status = SetOption(*row, row->value.empty() ? "" : text, options);
    if (!status.ok()) return InvalidArgument(fmt::format("{}: {}", key, status.Text()));
  }
  return OkStatus();
}

Result<EvalSetting> MakeSetting(const CliOptions& base, const std::string& policy,
                                const std::string& budget, uint64_t seed, const Json& given) {
  CliOptions options = base;
  PolicySpec& spec = options.session.policy;
  EBB_RETURN_IF_ERROR(ParsePolicy(policy, &spec));
  EBB_RETURN_IF_ERROR(ApplySetting(given, &options));
  if (options.lossless.draft.has_value()) {
    return InvalidArgument(
        "--draft: every policy of an evaluation drafts; name them by --policies");
  }
  EBB_RETURN_IF_ERROR(SettleTiers(&options));
  EBB_RETURN_IF_ERROR(SettleLossless(&options));
  EBB_RETURN_IF_ERROR(FixDraftLength(&options));
  if (!budget.empty()) {
    EBB_ASSIGN_OR_RETURN(spec.budget, ParseBudget(budget));
  }
  return EvalSetting{.policy = policy,
                     .budget = budget,
                     .seed = seed,
                     .engine = options.engine,
                     .session = options.session};
}

}  // namespace

Result<std::vector<EvalSetting>> MakeGrid(const CliOptions& options) {
  const EvalInput& input = options.Of<EvalInput>();
  const bool has_policy = options.shared.OptionThatSet(SharedField::kPolicy) == "--policy";
  if (has_policy || options.session.policy.budget.unit != Budget::Unit::kNone) {
    return InvalidArgument("an evaluation takes lists: --policies and --budgets");
  }
  Grid grid = {.policies = SplitList(input.policies), .budgets = SplitList(input.budgets)};
  for (int i = 0; i < input.samples; ++i)
    grid.seeds.push_back(options.seed + static_cast<uint64_t>(i));
  if (!input.grid_file.empty()) EBB_RETURN_IF_ERROR(ReadGridFile(input.grid_file, &grid));
  if (grid.policies.empty()) grid.policies = {"full"};
  if (grid.budgets.empty()) grid.budgets = {""};
  if (grid.settings.empty()) grid.settings = {Json::object()};
  std::vector<EvalSetting> settings;
  for (const Json& given : grid.settings) {
    for (const std::string& policy : grid.policies) {
      for (const std::string& budget : grid.budgets) {
        for (const uint64_t seed : grid.seeds) {
          EBB_ASSIGN_OR_RETURN(EvalSetting setting,
                               MakeSetting(options, policy, budget, seed, given));
          EBB_ASSIGN_OR_RETURN(const bool draws, IsRandomized(setting.session.policy));
          settings.push_back(std::move(setting));
          // Without randomness in the policy and the sampling, other seeds would give the same
          // answers.
          if (!draws && input.temperature == 0) break;
        }
      }
    }
  }
  return settings;
}

}  // namespace ebb::cli
