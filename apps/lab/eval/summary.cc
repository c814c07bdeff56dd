#include "apps/lab/eval/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "apps/common/options/policy_list.h"
#include "apps/common/terminal/output.h"
#include "apps/lab/eval/files.h"
#include "apps/lab/eval/votes.h"
#include "ebb/lab/statistics.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// Identifies a setting. Answers that differ in their seed alone belong to one setting.
struct Key {
  std::string policy, budget, tiers, options;
  auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): none there
};

// Returns the number that a budget in percent is a share of; null: the budget is no percentage, or
// the number is unknown.
Json BaseOf(const Key& key) {
  if (!key.budget.ends_with('%')) return Json();
  const PolicyInfo* info = FindBuiltinPolicy(key.policy);
  return info == nullptr || info->percent_of.empty() ? Json() : Json(info->percent_of);
}

Key KeyOf(const Json& line) {
  return {line.value("policy", ""), line.value("budget", ""), line.value("tiers", ""),
          line.value("options", "")};
}

struct Counts {
  int64_t n = 0;
  int64_t right = 0;
  int64_t empty = 0;
  int64_t no_answer = 0;
  int64_t truncated = 0;
  int64_t loops = 0;
  int64_t errors = 0;
  int64_t begun = 0;  // had a row: a refused request cost nothing
  double generated_tokens = 0;
  double peak_tokens = 0;
  double peak_kv_bytes = 0;
  double kv_reads = 0;
  std::map<int64_t, Votes> votes;  // by problem

  void Add(const Json& line) {
    const std::string outcome = line.value("outcome", "");
    const std::string reason = line.value("finish_reason", "");
    const auto problem = line.value("problem", int64_t{0});
    ++n;
    right += line.value("correct", false) ? 1 : 0;
    empty += outcome == "empty" ? 1 : 0;
    no_answer += outcome == "no_answer" ? 1 : 0;
    truncated += reason == "length" ? 1 : 0;
    loops += reason == "loop" ? 1 : 0;
    errors += line.contains("error") ? 1 : 0;
    generated_tokens += line.value("generated_tokens", 0.0);
    peak_tokens += line.value("peak_tokens", 0.0);
    peak_kv_bytes += line.value("peak_kv_bytes", 0.0);
    kv_reads += line.value("kv_reads", 0.0);
    begun += line.value("peak_tokens", 0.0) > 0 ? 1 : 0;
    votes[problem].Add(line.value("correct", false), line.value("extracted", ""));
  }

  // Mean over the answers that began; null: none did.
  [[nodiscard]] Json Cost(double sum) const {
    return begun > 0 ? Json(sum / static_cast<double>(begun)) : Json();
  }

  [[nodiscard]] int64_t RightByMajority() const {
    return std::ranges::count_if(votes, [](const auto& of) { return of.second.MajorityIsRight(); });
  }
  [[nodiscard]] int64_t RightByAny() const {
    return std::ranges::count_if(votes, [](const auto& of) { return of.second.AnyIsRight(); });
  }
};

struct Group {
  Key key;
  Counts counts;
  std::map<uint64_t, int64_t> per_seed;  // answers
};

std::vector<Group> GroupResults(const std::vector<Json>& results) {
  std::vector<Group> groups;
  std::map<Key, size_t> index;
  for (const Json& line : results) {
    const auto [found, is_new] = index.emplace(KeyOf(line), groups.size());
    if (is_new) groups.push_back({.key = found->first});
    Group& group = groups[found->second];
    group.counts.Add(line);
    ++group.per_seed[line.value("seed", uint64_t{0})];
  }
  return groups;
}

bool IsFullCache(const Key& key) {
  return key.policy == "full" && key.budget.empty() && key.tiers.empty();
}

const Group* FullCache(const std::vector<Group>& groups) {
  const auto found = std::ranges::find_if(groups, IsFullCache, &Group::key);
  return found == groups.end() ? nullptr : &*found;
}

double Share(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

// The standard error of the mean of n answers that are right or not (DMS, Table 4); null below two.
Json StandardError(int64_t right, int64_t n) {
  if (n < 2) return Json();
  const double share = Share(right, n);
  return std::sqrt(share * (1 - share) / static_cast<double>(n - 1));
}

Result<Json> RecordOf(const Group& group, const Group* full) {
  const Counts& c = group.counts;
  EBB_ASSIGN_OR_RETURN(const Interval interval, ClopperPearson({c.right, c.n}));
  Json record = {{"policy", group.key.policy},
                 {"budget", group.key.budget},
                 {"budget_of", BaseOf(group.key)},
                 {"tiers", group.key.tiers},
                 {"options", group.key.options},
                 {"n", c.n},
                 {"correct", c.right},
                 {"accuracy", Share(c.right, c.n)},
                 {"ci_low", interval.low},
                 {"ci_high", interval.high},
                 {"standard_error", StandardError(c.right, c.n)},
                 {"retention", nullptr},
                 {"p_full", nullptr},
                 {"empty", c.empty},
                 {"no_answer", c.no_answer},
                 {"truncated", c.truncated},
                 {"loops", c.loops},
                 {"errors", c.errors},
                 {"generated_tokens", c.Cost(c.generated_tokens)},
                 {"peak_tokens", c.Cost(c.peak_tokens)},
                 {"peak_kv_bytes", c.Cost(c.peak_kv_bytes)},
                 {"kv_reads", c.Cost(c.kv_reads)}};
  if (full != nullptr) {
    const Counts& f = full->counts;
    if (f.right > 0) record["retention"] = Share(c.right, c.n) / Share(f.right, f.n);
    EBB_ASSIGN_OR_RETURN(record["p_full"], FisherExactTwoSided({c.right, c.n}, {f.right, f.n}));
  }
  const auto samples = static_cast<int64_t>(group.per_seed.size());
  if (samples > 1) {
    // Seeds may have come to different ends of a run that did not.
    const auto problems = static_cast<int64_t>(c.votes.size());
    record["samples"] = samples;
    record["majority"] = Share(c.RightByMajority(), problems);
    record["pass_all"] = Share(c.RightByAny(), problems);
  }
  return record;
}

// Whether another record of the summary differs from this one in its options alone: only then are
// they part of a name.
bool NeedsOptions(const Json& record, const Json& summary) {
  return std::ranges::any_of(summary, [&](const Json& other) {
    const auto same = [&](const char* key) {
      return record.value(key, "") == other.value(key, "");
    };
    return same("policy") && same("budget") && same("tiers") && !same("options");
  });
}

std::string NameOf(const Json& record, const Json& summary) {
  std::string name = record.value("policy", "");
  std::vector<const char*> keys = {"budget", "tiers"};
  if (NeedsOptions(record, summary)) keys.push_back("options");
  for (const char* key : keys) {
    const std::string text = record.value(key, "");
    if (!text.empty()) name += " " + text;
  }
  return name;
}

}  // namespace

Result<Json> Summarize(const std::vector<Json>& results) {
  const std::vector<Group> groups = GroupResults(results);
  const Group* full = FullCache(groups);
  Json summary = Json::array();
  for (const Group& group : groups) {
    EBB_ASSIGN_OR_RETURN(summary.emplace_back(), RecordOf(group, full));
  }
  return summary;
}

Status AddAgainst(const std::string& name, Json* summary) {
  std::string names;
  const Json* against = nullptr;
  for (const Json& record : *summary) {
    const std::string here = NameOf(record, *summary);
    if (here == name) against = &record;
    names += (names.empty() ? "" : ", ") + here;
  }
  if (against == nullptr) {
    return InvalidArgument(
        fmt::format("--against \"{}\": unknown setting; valid: {}", name, names));
  }
  const auto count = [](const Json& record) {
    return Count{record["correct"].get<int64_t>(), record["n"].get<int64_t>()};
  };
  const Count of_that = count(*against);
  for (Json& record : *summary) {
    EBB_ASSIGN_OR_RETURN(const double p, FisherExactTwoSided(count(record), of_that));
    record["against"] = name;
    record["p_against"] = p;
  }
  return OkStatus();
}

void AddTimes(const std::vector<Json>& results, const std::vector<Json>& times, Json* summary) {
  struct Spent {
    double seconds = 0, tokens = 0, answers = 0;
    [[nodiscard]] Json TokensPerSecond() const {
      return seconds > 0 ? Json(tokens / seconds) : Json();
    }
  };
  std::map<Key, Spent> spent;
  const size_t count = std::min(results.size(), times.size());
  for (size_t i = 0; i < count; ++i) {
    Spent& of_setting = spent[KeyOf(results[i])];
    of_setting.seconds += times[i].value("seconds", 0.0);
    of_setting.tokens += results[i].value("generated_tokens", 0.0);
    ++of_setting.answers;
  }
  const auto full =
      std::ranges::find_if(*summary, [](const Json& record) { return IsFullCache(KeyOf(record)); });
  const Json of_full = full == summary->end() ? Json() : spent[KeyOf(*full)].TokensPerSecond();
  for (Json& record : *summary) {
    const Spent& of_setting = spent[KeyOf(record)];
    const Json rate = of_setting.TokensPerSecond();
    const bool compares = rate.is_number() && rate > 0 && of_full.is_number();
    record["seconds"] =
        of_setting.answers > 0 ? Json(of_setting.seconds / of_setting.answers) : Json();
    record["tokens_per_s"] = rate;
    record["overhead"] = compares ? Json(of_full.get<double>() / rate.get<double>() - 1) : Json();
  }
}

std::string SummaryTable(const Json& summary) {
  const bool compares = !summary.empty() && summary.front().contains("against");
  std::string table = fmt::format(
      "| setting | right | accuracy (95 %) | retention | p | {}tokens | peak rows | "
      "no answer | cut | loops | errors |\n|---|---|---|---|---|---|{}---|---|---|---|---|\n",
      compares ? fmt::format("p against {} | ", summary.front().value("against", "")) : "",
      compares ? "---|" : "");
  const auto optional = [](const Json& value, const char* format) {
    return value.is_null() ? std::string("-")
                           : fmt::format(fmt::runtime(format), value.get<double>());
  };
  for (const Json& r : summary) {
    table += fmt::format(
        "| {} | {}/{} | {:.1f} % ({:.1f} - {:.1f}) | {} | {} | {}{} | {} | {} | {} | {} | {} |\n",
        NameOf(r, summary), r["correct"].get<int64_t>(), r["n"].get<int64_t>(),
        r["accuracy"].get<double>() * 100, r["ci_low"].get<double>() * 100,
        r["ci_high"].get<double>() * 100, optional(r["retention"], "{:.2f}"),
        optional(r["p_full"], "{:.2g}"),
        compares ? fmt::format("{:.2g} | ", r["p_against"].get<double>()) : "",
        optional(r["generated_tokens"], "{:.0f}"), optional(r["peak_tokens"], "{:.0f}"),
        r["no_answer"].get<int64_t>() + r["empty"].get<int64_t>(), r["truncated"].get<int64_t>(),
        r["loops"].get<int64_t>(), r["errors"].get<int64_t>());
  }
  return table;
}

Status WriteSummaries(const std::string& folder, Json summary, const std::vector<Json>& results,
                      const std::vector<Json>& times, const CliOptions& options) {
  EBB_RETURN_IF_ERROR(WriteFile(folder + "/summary.json", summary.dump(2) + "\n"));
  const std::string table = SummaryTable(summary);
  EBB_RETURN_IF_ERROR(WriteFile(folder + "/summary.md", table));
  AddTimes(results, times, &summary);
  return WriteTextToStdout(options.json ? summary.dump() + "\n" : table);
}

}  // namespace ebb::cli
