#include "apps/lab/fidelity/forgetting_report.h"

#include <fmt/format.h>

namespace ebb::cli {
namespace {

Json ToJson(const CostSummary& summary) {
  return {{"mean", summary.mean}, {"p99", summary.p99}, {"max", summary.max}};
}

std::string Figures(const CostSummary& summary) {
  return fmt::format("{:9.3g}{:9.3g}{:9.3g}", summary.mean, summary.p99, summary.max);
}

}  // namespace

Json ToJson(const ForgettingReport& report) {
  Json layers = Json::array();
  for (const LayerForgetting& layer : report.layers) {
    Json heads = Json::array();
    for (const HeadForgetting& head : layer.heads) {
      heads.push_back(
          {{"relative_error", ToJson(head.relative_error)}, {"mass", ToJson(head.mass)}});
    }
    layers.push_back({{"layer", layers.size()},
                      {"error", ToJson(layer.error)},
                      {"relative_error", ToJson(layer.relative_error)},
                      {"mass", ToJson(layer.mass)},
                      {"eq4", ToJson(layer.eq4)},
                      {"bound", ToJson(layer.bound)},
                      {"heads", heads}});
  }
  return {{"steps", report.steps},
          {"measured", report.measured},
          {"not_finite", report.not_finite},
          {"above_eq4", report.above_eq4},
          {"above_bound", report.above_bound},
          {"layers", layers},
          {"mass_by_step", report.mass_by_step},
          {"relative_error_by_step", report.error_by_step}};
}

std::string ToText(const ForgettingReport& report) {
  std::string text = fmt::format(
      "\nwhat evicted rows cost, over {} steps and all query heads: mean, 99 %, max\n"
      "layer{:>27}{:>27}{:>27}{:>27}{:>27}\n",
      report.steps, "|o'-o| / |o|", "evicted mass", "|o'-o|", "Eq. 4 (no bound)", "true bound");
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerForgetting& layer = report.layers[i];
    text += fmt::format("{:5}{}{}{}{}{}\n", i, Figures(layer.relative_error), Figures(layer.mass),
                        Figures(layer.error), Figures(layer.eq4), Figures(layer.bound));
  }
  const int64_t counted = report.measured - report.not_finite;
  text += fmt::format("{} of {} errors are above Eq. 4, {} above the true bound", report.above_eq4,
                      counted, report.above_bound);
  return text;
}

}  // namespace ebb::cli
