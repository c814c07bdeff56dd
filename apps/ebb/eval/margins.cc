#include "apps/ebb/eval/margins.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/ebb/eval/names.h"
#include "ebb/lab/pareto.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Series {
  std::string name;
  std::string policy;
  std::vector<CostPoint> by_reads;
  std::vector<CostPoint> by_peak;
};

// "attention, t0=50%" of all evicted shares.
std::string SeriesName(const Json& record, const Json& summary) {
  const std::string tiers = SplitTiers(record.value("tiers", "")).series;
  std::string name = record.value("policy", "");
  if (!tiers.empty()) name += ", " + tiers;
  if (NeedsOptions(record, summary)) name += ", " + record.value("options", "");
  return name;
}

std::vector<Series> SeriesOf(const Json& summary) {
  std::vector<Series> all;
  for (const Json& record : summary) {
    const std::string name = SeriesName(record, summary);
    auto found = std::ranges::find(all, name, &Series::name);
    if (found == all.end()) {
      all.push_back({.name = name, .policy = record.value("policy", "")});
      found = all.end() - 1;
    }
    const double accuracy = record.value("accuracy", 0.0);
    if (record["kv_reads"].is_null()) continue;  // no answer began
    found->by_reads.push_back({record.value("kv_reads", 0.0), accuracy});
    found->by_peak.push_back({record.value("peak_tokens", 0.0), accuracy});
  }
  std::erase_if(all, [](const Series& series) { return series.by_reads.size() < 2; });
  return all;
}

Json Margin(const std::vector<CostPoint>& a, const std::vector<CostPoint>& b) {
  const auto margin = FrontMargin(a, b);
  return margin ? Json(*margin) : Json();
}

}  // namespace

Json FrontMargins(const Json& summary) {
  const std::vector<Series> all = SeriesOf(summary);
  Json margins = Json::array();
  if (all.size() < 2) return margins;
  const auto random = std::ranges::find(all, "random", &Series::policy);
  const Series& over = random == all.end() ? all.front() : *random;
  for (const Series& series : all) {
    if (&series == &over) continue;
    margins.push_back({{"series", series.name},
                       {"over", over.name},
                       {"kv_reads", Margin(series.by_reads, over.by_reads)},
                       {"peak_tokens", Margin(series.by_peak, over.by_peak)}});
  }
  return margins;
}

std::string MarginTable(const Json& margins) {
  if (margins.empty()) return "";
  std::string table =
      fmt::format("| points above {} | at equal reads | at equal peak rows |\n|---|---|---|\n",
                  margins[0]["over"].get<std::string>());
  const auto points = [](const Json& value) {
    return value.is_null() ? std::string("-") : fmt::format("{:+.1f}", 100 * value.get<double>());
  };
  for (const Json& m : margins) {
    table += fmt::format("| {} | {} | {} |\n", m["series"].get<std::string>(),
                         points(m["kv_reads"]), points(m["peak_tokens"]));
  }
  return table;
}

}  // namespace ebb::cli
