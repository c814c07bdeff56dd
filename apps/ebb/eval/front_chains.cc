#include "apps/ebb/eval/front_chains.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/ebb/eval/names.h"
#include "apps/ebb/run/policy_list.h"
#include "ebb/policy.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// Fields in which the points of one report may differ.
constexpr std::array<std::string_view, 9> kMayDiffer = {
    "model",        "model_fingerprint", "model_compression",
    "model_window", "model_shift",       "answer_tokens",
    "tokens",       "context",           "settings"};
// The problems of a file do not follow from the seed, and files move.
constexpr std::array<std::string_view, 2> kMayDifferOfFiles = {"task", "seed"};

struct ModelIdentity {
  uint64_t fingerprint = 0;
  std::string description;
  double compression = 0;
  int window = 0;
  int shift = 0;

  [[nodiscard]] bool MarksNoRows() const { return compression == 0 && window == 0; }
};

ModelIdentity ModelOf(const Json& manifest) {
  return {.fingerprint = manifest.value("model_fingerprint", uint64_t{0}),
          .description = manifest.value("model", ""),
          .compression = manifest.value("model_compression", 0.0),
          .window = manifest.value("model_window", 0),
          .shift = manifest.value("model_shift", 0)};
}

Status CheckSameProblems(const std::vector<EvalRun>& runs) {
  const Json& first = runs[0].manifest;
  std::vector<std::string_view> may_differ(kMayDiffer.begin(), kMayDiffer.end());
  for (const EvalRun& run : runs) {
    const bool are_files =
        first.value("task", "") != "pebble" && run.manifest.value("task", "") != "pebble";
    if (are_files) {
      may_differ.insert(may_differ.end(), kMayDifferOfFiles.begin(), kMayDifferOfFiles.end());
    }
    const std::string key = DifferingKey(first, run.manifest, may_differ);
    may_differ.resize(kMayDiffer.size());
    if (key.empty()) continue;
    return InvalidArgument(
        fmt::format("{} and {} have no fronts in common: their \"{}\" differs; they are to be of "
                    "the same problems and sampled alike",
                    runs[0].folder, run.folder, key));
  }
  return OkStatus();
}

// Shards of a run as one run, none of whose answers is missing.
Result<std::vector<EvalRun>> WholeRuns(std::vector<EvalRun> parts) {
  std::vector<std::vector<EvalRun>> groups;
  for (EvalRun& part : parts) {
    const auto same = std::ranges::find_if(groups, [&](const std::vector<EvalRun>& group) {
      return DifferingKey(group[0].manifest, part.manifest, KeysOfParts()).empty();
    });
    (same == groups.end() ? groups.emplace_back() : *same).push_back(std::move(part));
  }
  std::vector<EvalRun> runs;
  for (std::vector<EvalRun>& group : groups) {
    EBB_ASSIGN_OR_RETURN(EvalRun run, MergeRuns(std::move(group)));
    if (run.results.size() < NumAsked(run)) {
      return InvalidArgument(fmt::format(
          "{}: {} of {} answers are missing; end the run by --resume, or name all of its shards",
          run.folder, NumAsked(run) - run.results.size(), NumAsked(run)));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

bool HasFullCache(const ChainSet& set) { return set.policy == "full" && set.tiers.empty(); }

bool ReadsMarks(const ChainSet& set) {
  const PolicyInfo* info = FindBuiltinPolicy(set.policy);
  return info != nullptr && info->scorer == "dms";
}

// CR, or what limits rows in its place.
std::string CompressionOf(const ChainSet& set) {
  if (HasFullCache(set)) return "1";
  const std::string evicted = SplitTiers(set.tiers).evicted;
  if (!evicted.empty()) return evicted;
  const Result<Budget> budget = ParseBudget(set.budget);
  if (budget.ok() && budget->unit == Budget::Unit::kCompression) {
    return fmt::format("{:g}", budget->value);
  }
  if (budget.ok()) return FormatBudget(*budget);
  if (ReadsMarks(set) && set.model_compression > 0) {
    return fmt::format("{:g}", set.model_compression);
  }
  return set.policy;
}

// The fields of a setting that determine which front its points belong to.
struct MethodKey {
  std::string policy, tiers, options;
  bool reads_marks = false;
  uint64_t model = 0;  // 0: any whose marks are for this window and shift
  int window = 0;
  int shift = 0;
  bool operator==(const MethodKey&) const = default;
};

struct Method {
  MethodKey key;
  ModelIdentity model;  // the first
};

// A method, and how early it stands among all.
int RankOf(const Method& method) {
  if (method.key.reads_marks) return 3;
  if (method.key.policy != "full" || !method.key.tiers.empty()) return 2;
  return method.model.MarksNoRows() ? 0 : 1;
}

std::string ShortHash(uint64_t fingerprint) {
  return fmt::format("{:016x}", fingerprint).substr(0, 6);
}

class MethodNames {
 public:
  size_t IndexOf(const ChainSet& set, const ModelIdentity& model) {
    MethodKey key = {.policy = set.policy,
                     .tiers = SplitTiers(set.tiers).series,
                     .options = set.options,
                     .reads_marks = ReadsMarks(set)};
    if (key.reads_marks) {
      key.window = model.window;
      key.shift = model.shift;
    } else {
      key.model = model.fingerprint;
    }
    const auto found = std::ranges::find(methods_, key, &Method::key);
    if (found != methods_.end()) return static_cast<size_t>(found - methods_.begin());
    methods_.push_back({.key = std::move(key), .model = model});
    return methods_.size() - 1;
  }

  // [methods]
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Method& method : methods_) names.push_back(NameOf(method));
    return names;
  }

  // Indices of methods.
  [[nodiscard]] std::vector<size_t> Order() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < methods_.size(); ++i) order.push_back(i);
    std::ranges::stable_sort(order, {}, [this](size_t i) { return RankOf(methods_[i]); });
    return order;
  }

 private:
  [[nodiscard]] std::string NameOf(const Method& method) const {
    const MethodKey& key = method.key;
    std::string name = key.policy;
    if (!key.tiers.empty()) name += ", " + key.tiers;
    const auto are_several = [&](const auto& member, const auto& same_before) {
      return std::ranges::any_of(methods_, [&](const Method& other) {
        return same_before(other.key) && other.key.*member != key.*member;
      });
    };
    const auto same_policy = [&](const MethodKey& other) {
      return other.policy == key.policy && other.tiers == key.tiers;
    };
    const auto same_options = [&](const MethodKey& other) {
      return same_policy(other) && other.options == key.options;
    };
    if (are_several(&MethodKey::options, same_policy)) {
      name += ", " + (key.options.empty() ? "no options" : key.options);
    }
    if (are_several(&MethodKey::window, same_options)) {
      name += fmt::format(", window {}", key.window);
    }
    if (are_several(&MethodKey::shift, same_options)) {
      name += fmt::format(", shift {}", key.shift);
    }
    return key.reads_marks ? name : name + ModelSuffix(method.model);
  }

  // Nothing for the first model that marks no rows, which is the one that others are made of.
  [[nodiscard]] std::string ModelSuffix(const ModelIdentity& model) const {
    std::vector<ModelIdentity> models;
    for (const Method& method : methods_) {
      const bool is_there = std::ranges::any_of(models, [&](const ModelIdentity& other) {
        return other.fingerprint == method.model.fingerprint;
      });
      if (!is_there && !method.key.reads_marks) models.push_back(method.model);
    }
    const auto plain = std::ranges::find_if(models, &ModelIdentity::MarksNoRows);
    const ModelIdentity& base = plain == models.end() ? models.front() : *plain;
    if (model.fingerprint == base.fingerprint) return "";
    const auto label = [](const ModelIdentity& of) {
      return of.compression > 0 ? fmt::format("model of CR {:g}", of.compression) : of.description;
    };
    const auto alike = std::ranges::count(models, label(model), label);
    return ", " + label(model) + (alike > 1 ? " " + ShortHash(model.fingerprint) : "");
  }

  std::vector<Method> methods_;
};

struct SettingKey {
  uint64_t model = 0;
  int64_t tokens = 0;
  std::string policy, budget, tiers, options;
  auto operator<=>(const SettingKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

// The lines of a setting while runs are read, before all of its seeds are known.
struct Pool {
  ModelIdentity model;
  int64_t tokens = 0;
  Json first;                                   // a line
  std::map<uint64_t, std::vector<Json>> seeds;  // [problems]; null: not answered
};

std::string PlaceOf(const Json& line, size_t problem) {
  std::string setting = line.value("policy", "");
  for (const char* key : {"budget", "tiers"}) {
    if (!line.value(key, "").empty()) setting += " " + line.value(key, "");
  }
  return fmt::format("problem {} of {}, seed {}", problem, setting, line["seed"].get<uint64_t>());
}

class Pools {
 public:
  Status Add(const EvalRun& run) {
    const ModelIdentity model = ModelOf(run.manifest);
    const int64_t asked = run.manifest.value("tokens", int64_t{0});
    const int64_t tokens = asked > 0 ? asked : run.manifest.value("answer_tokens", int64_t{0});
    const auto num_problems = run.manifest["problems"].get<size_t>();
    for (Json line : run.results) {
      const SettingKey key = {.model = model.fingerprint,
                              .tokens = tokens,
                              .policy = line.value("policy", ""),
                              .budget = line.value("budget", ""),
                              .tiers = line.value("tiers", ""),
                              .options = line.value("options", "")};
      const auto [place, is_new] = index_.emplace(key, pools_.size());
      if (is_new) pools_.push_back({.model = model, .tokens = tokens, .first = line});
      line.erase("setting");  // every run numbers its settings from 0
      std::vector<Json>& answers = pools_[place->second].seeds[line["seed"].get<uint64_t>()];
      answers.resize(num_problems);
      const auto problem = line["problem"].get<size_t>();
      if (!answers[problem].is_null() && answers[problem] != line) {
        return InvalidArgument(
            fmt::format("{}: two answers to {} differ", run.folder, PlaceOf(line, problem)));
      }
      answers[problem] = std::move(line);
    }
    return OkStatus();
  }

  [[nodiscard]] const std::vector<Pool>& all() const { return pools_; }

 private:
  std::map<SettingKey, size_t> index_;
  std::vector<Pool> pools_;  // in the order of their first answers
};

ChainSet MakeSet(const Pool& pool) {
  ChainSet set = {.tokens = pool.tokens,
                  .policy = pool.first.value("policy", ""),
                  .budget = pool.first.value("budget", ""),
                  .tiers = pool.first.value("tiers", ""),
                  .options = pool.first.value("options", ""),
                  .model = pool.model.description,
                  .model_compression = pool.model.compression};
  set.compression = CompressionOf(set);
  for (const auto& [seed, lines] : pool.seeds) {
    set.of_problem.resize(lines.size());
    for (size_t problem = 0; problem < lines.size(); ++problem) {
      const Json& line = lines[problem];
      const auto peak_tokens = line.value("peak_tokens", 0.0);
      set.of_problem[problem].push_back({.correct = line.value("correct", false),
                                         .extracted = line.value("extracted", ""),
                                         .begun = peak_tokens > 0,
                                         .kv_reads = line.value("kv_reads", 0.0),
                                         .peak_tokens = peak_tokens});
    }
  }
  return set;
}

}  // namespace

Result<Chains> CollectChains(std::vector<EvalRun> parts) {
  if (parts.empty()) return InvalidArgument("expected folders that `ebb eval` wrote");
  EBB_ASSIGN_OR_RETURN(const std::vector<EvalRun> runs, WholeRuns(std::move(parts)));
  EBB_RETURN_IF_ERROR(CheckSameProblems(runs));
  Pools pools;
  for (const EvalRun& run : runs) EBB_RETURN_IF_ERROR(pools.Add(run));
  Chains chains;
  MethodNames methods;
  std::vector<size_t> method_of;
  for (const Pool& pool : pools.all()) {
    chains.sets.push_back(MakeSet(pool));
    method_of.push_back(methods.IndexOf(chains.sets.back(), pool.model));
  }
  if (chains.sets.empty()) return InvalidArgument("the runs hold no answers");
  const std::vector<std::string> names = methods.Names();
  for (size_t i = 0; i < method_of.size(); ++i) chains.sets[i].method = names[method_of[i]];
  for (const size_t method : methods.Order()) chains.methods.push_back(names[method]);
  return chains;
}

}  // namespace ebb::cli
