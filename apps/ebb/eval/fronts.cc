#include "apps/ebb/eval/fronts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "apps/ebb/eval/front_chains.h"
#include "apps/ebb/eval/votes.h"
#include "ebb/lab/pareto.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// A point L-W-CR, apart by problem.
struct FrontPoint {
  const ChainSet* set = nullptr;
  int width = 1;
  ProblemSums majority, pass_all, kv_reads, peak_tokens;
};

// Their names are those of the record.
struct Figure {
  const char* name;
  ProblemSums FrontPoint::*of;
};
constexpr std::array kScores = {Figure{"majority", &FrontPoint::majority},
                                Figure{"pass_all", &FrontPoint::pass_all}};
constexpr std::array kCosts = {Figure{"kv_reads", &FrontPoint::kv_reads},
                               Figure{"peak_tokens", &FrontPoint::peak_tokens}};

void Add(double sum, double count, ProblemSums* sums) {
  sums->sums.push_back(sum);
  sums->counts.push_back(count);
}

FrontPoint PointOf(const ChainSet& set, int width) {
  FrontPoint point = {.set = &set, .width = width};
  for (const std::vector<Chain>& chains : set.of_problem) {
    const size_t subsets = chains.size() / static_cast<size_t>(width);
    double right = 0, any = 0;
    for (size_t i = 0; i < subsets; ++i) {
      Votes votes;
      for (const Chain& chain : std::span(chains).subspan(i * size_t(width), size_t(width))) {
        votes.Add(chain.correct, chain.extracted);
      }
      right += votes.MajorityIsRight() ? 1 : 0;
      any += votes.AnyIsRight() ? 1 : 0;
    }
    Add(right, static_cast<double>(subsets), &point.majority);
    Add(any, static_cast<double>(subsets), &point.pass_all);
    double begun = 0, kv_reads = 0, peak_tokens = 0;
    for (const Chain& chain : chains) {
      begun += chain.begun ? 1 : 0;
      kv_reads += chain.kv_reads;
      peak_tokens += chain.peak_tokens;
    }
    Add(width * kv_reads, begun, &point.kv_reads);
    Add(width * peak_tokens, begun, &point.peak_tokens);
  }
  return point;
}

bool HasCosts(const FrontPoint& point) { return std::isfinite(point.kv_reads.Mean()); }

// The sets of a method: by compression in the order of runs, then by L.
std::vector<const ChainSet*> SetsOf(const Chains& chains, const std::string& method) {
  std::vector<const ChainSet*> sets;
  for (const ChainSet& set : chains.sets) {
    if (set.method == method) sets.push_back(&set);
  }
  const std::vector<const ChainSet*> in_order = sets;
  std::ranges::stable_sort(sets, {}, [&](const ChainSet* set) {
    const auto first = std::ranges::find(in_order, set->compression, &ChainSet::compression);
    return std::pair(first - in_order.begin(), set->tokens);
  });
  return sets;
}

// [methods][points]
using MethodPoints = std::vector<std::vector<FrontPoint>>;

std::vector<ProblemPoint> ProblemPoints(const std::vector<FrontPoint>& points, const Figure& score,
                                        const Figure& cost) {
  std::vector<ProblemPoint> all;
  for (const FrontPoint& point : points) {
    all.push_back({.cost = point.*cost.of, .score = point.*score.of});
  }
  return all;
}

// Whether each point is on the front of its method.
std::vector<bool> AreOnFront(const std::vector<FrontPoint>& points, const Figure& score,
                             const Figure& cost) {
  std::vector<CostPoint> means;
  for (const FrontPoint& point : points) {
    means.push_back({.cost = (point.*cost.of).Mean(), .score = (point.*score.of).Mean()});
  }
  const std::vector<CostPoint> front = ParetoFront(means);
  std::vector<bool> are;
  for (const CostPoint& mean : means) {
    are.push_back(std::ranges::find(front, mean) != front.end());
  }
  return are;
}

Json RecordOf(const FrontPoint& point, const BootstrapOptions& options) {
  const ChainSet& set = *point.set;
  const std::string limit = set.tokens > 0 ? std::to_string(set.tokens) : "own";
  Json record = {{"name", fmt::format("{}-{}-{}", limit, point.width, set.compression)},
                 {"method", set.method},
                 {"tokens", set.tokens},
                 {"width", point.width},
                 {"compression", set.compression},
                 {"policy", set.policy},
                 {"budget", set.budget},
                 {"tiers", set.tiers},
                 {"options", set.options},
                 {"model", set.model},
                 {"model_compression", set.model_compression},
                 {"samples", set.of_problem.front().size()}};
  for (const Figure& score : kScores) {
    const Interval interval = BootstrapMean(point.*score.of, options);
    record[score.name] = (point.*score.of).Mean();
    record[fmt::format("{}_low", score.name)] = interval.low;
    record[fmt::format("{}_high", score.name)] = interval.high;
  }
  for (const Figure& cost : kCosts) record[cost.name] = (point.*cost.of).Mean();
  return record;
}

Json PointRecords(const MethodPoints& methods, const BootstrapOptions& options) {
  Json records = Json::array();
  for (const std::vector<FrontPoint>& points : methods) {
    const size_t first = records.size();
    for (const FrontPoint& point : points) records.push_back(RecordOf(point, options));
    for (const Figure& score : kScores) {
      for (const Figure& cost : kCosts) {
        const std::vector<bool> are = AreOnFront(points, score, cost);
        for (size_t i = 0; i < are.size(); ++i) {
          records[first + i]["on_front"][score.name][cost.name] = bool{are[i]};
        }
      }
    }
  }
  return records;
}

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json ToJson(const MarginEstimate& estimate) {
  return {{"margin", estimate.margin.has_value() ? Json(*estimate.margin) : Json()},
          {"low", NumberOrNull(estimate.interval.low)},
          {"high", NumberOrNull(estimate.interval.high)},
          {"none", estimate.none},
          {"from", estimate.costs.has_value() ? Json(estimate.costs->low) : Json()},
          {"to", estimate.costs.has_value() ? Json(estimate.costs->high) : Json()}};
}

Json MarginRecords(const MethodPoints& methods, const std::vector<std::string>& names,
                   const BootstrapOptions& options) {
  std::vector<MethodPair> pairs;
  Json records = Json::array();
  for (size_t over = 0; over < methods.size(); ++over) {
    for (size_t method = over + 1; method < methods.size(); ++method) {
      pairs.push_back({.a = method, .b = over});
      records.push_back({{"method", names[method]}, {"over", names[over]}});
    }
  }
  for (const Figure& score : kScores) {
    for (const Figure& cost : kCosts) {
      std::vector<std::vector<ProblemPoint>> points;
      for (const auto& of : methods) points.push_back(ProblemPoints(of, score, cost));
      const auto estimates = BootstrapMargins(points, pairs, options);
      for (size_t i = 0; i < estimates.size(); ++i) {
        records[i][score.name][cost.name] = ToJson(estimates[i]);
      }
    }
  }
  return records;
}

// Returns the fields of the manifest that determine the answers and are equal in all runs.
Json CommonOf(const std::vector<EvalRun>& runs) {
  Json common = Json::object();
  for (const char* key : {"task", "problems", "seed", "kv_type", "prompt_preset", "temperature",
                          "top_k", "top_p", "min_p"}) {
    common[key] = runs.front().manifest.value(key, Json());
  }
  return common;
}

Json RunRecords(const std::vector<EvalRun>& runs) {
  Json records = Json::array();
  for (const EvalRun& run : runs) {
    records.push_back({{"folder", run.folder},
                       {"model", run.manifest.value("model", "")},
                       {"model_compression", run.manifest.value("model_compression", 0.0)},
                       {"tokens", run.manifest.value("tokens", int64_t{0})}});
  }
  return records;
}

}  // namespace

Result<Json> CompareFronts(std::vector<EvalRun> runs, const BootstrapOptions& options) {
  if (runs.empty()) return InvalidArgument("expected folders that `ebb eval` wrote");
  Json fronts = {{"run", CommonOf(runs)}, {"runs", RunRecords(runs)}};
  EBB_ASSIGN_OR_RETURN(const Chains chains, CollectChains(std::move(runs)));
  std::vector<std::string> names;
  MethodPoints methods;
  Json left_out = Json::array();
  for (const std::string& name : chains.methods) {
    std::vector<FrontPoint> points;
    for (const ChainSet* set : SetsOf(chains, name)) {
      if (!HasCosts(PointOf(*set, 1))) {
        left_out.push_back(fmt::format("{} {}", name, set->compression));
        continue;
      }
      const auto samples = static_cast<int>(set->of_problem.front().size());
      for (int width = 1; width <= samples; width *= 2) points.push_back(PointOf(*set, width));
    }
    if (points.empty()) continue;
    names.push_back(name);
    methods.push_back(std::move(points));
  }
  if (methods.empty()) return InvalidArgument("no request of these runs began: all are errors");
  fronts["baseline"] = names.front();
  fronts["bootstrap"] = {
      {"resamples", options.resamples}, {"seed", options.seed}, {"confidence", options.confidence}};
  fronts["methods"] = names;
  fronts["left_out"] = left_out;
  fronts["points"] = PointRecords(methods, options);
  fronts["margins"] = MarginRecords(methods, names, options);
  return fronts;
}

namespace {

std::string Text(const Json& record, const char* key) { return record[key].get<std::string>(); }

// "reads", "peak rows" or both.
std::string FrontsText(const Json& point) {
  const Json& on_front = point["on_front"]["majority"];
  std::vector<std::string> fronts;
  if (on_front["kv_reads"].get<bool>()) fronts.emplace_back("reads");
  if (on_front["peak_tokens"].get<bool>()) fronts.emplace_back("peak rows");
  return fmt::format("{}", fmt::join(fronts, ", "));
}

// "+3.1 (-0.5 to +6.2), NA in 12 %"
std::string MarginText(const Json& margin) {
  const auto points = [](const Json& value) {
    return fmt::format("{:+.1f}", 100 * value.get<double>());
  };
  const double none = margin["none"].get<double>();
  const bool has_margin = !margin["margin"].is_null();
  if (!has_margin && none == 1) return "NA";
  std::string text = has_margin ? points(margin["margin"]) : "NA";
  if (has_margin && !margin["low"].is_null()) {
    text += fmt::format(" ({} to {})", points(margin["low"]), points(margin["high"]));
  }
  return none > 0 ? text + fmt::format(", NA in {:.1f} %", 100 * none) : text;
}

}  // namespace

std::string FrontTable(const Json& fronts) {
  std::string table =
      "| method | L-W-CR | majority | pass@all | reads | peak rows | on the front by |\n"
      "|---|---|---|---|---|---|---|\n";
  const auto score = [](const Json& point, const char* key) {
    return fmt::format("{:.1f} % ({:.1f} - {:.1f})", 100 * point[key].get<double>(),
                       100 * point[fmt::format("{}_low", key)].get<double>(),
                       100 * point[fmt::format("{}_high", key)].get<double>());
  };
  for (const Json& point : fronts["points"]) {
    table += fmt::format("| {} | {} | {} | {} | {:.0f} | {:.0f} | {} |\n", Text(point, "method"),
                         Text(point, "name"), score(point, "majority"), score(point, "pass_all"),
                         point["kv_reads"].get<double>(), point["peak_tokens"].get<double>(),
                         FrontsText(point));
  }
  for (const Json& setting : fronts["left_out"]) {
    table += fmt::format("\nLeft out, since no request began: {}\n", setting.get<std::string>());
  }
  if (fronts["margins"].empty()) return table;
  table +=
      "\n| points above | majority, at equal reads | at equal peak rows | pass@all, at equal reads "
      "| at equal peak rows |\n|---|---|---|---|---|\n";
  for (const Json& margin : fronts["margins"]) {
    table += fmt::format("| {} over {} |", Text(margin, "method"), Text(margin, "over"));
    for (const Figure& of_score : kScores) {
      for (const Figure& of_cost : kCosts) {
        table += fmt::format(" {} |", MarginText(margin[of_score.name][of_cost.name]));
      }
    }
    table += "\n";
  }
  return table;
}

}  // namespace ebb::cli
