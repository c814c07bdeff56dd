#include "lab/eval/forgetting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ebb {
namespace {

double Norm(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double Norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += double{value} * value;
  return std::sqrt(sum);
}

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// Returns the softmax weights of all rows.
std::vector<double> WeightsOf(std::span<const float> query, const ForgettingRows& rows,
                              double scale) {
  std::vector<double> weights(rows.is_left.size());
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = scale * Dot(query, rows.keys.subspan(i * rows.head_dim, rows.head_dim));
    largest = std::max(largest, weights[i]);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (double& weight : weights) weight /= sum;
  return weights;
}

CostSummary Summarise(std::vector<float> values) {
  if (values.empty()) return {};
  CostSummary summary;
  for (const float value : values) summary.mean += value;
  summary.mean /= static_cast<double>(values.size());
  summary.max = *std::ranges::max_element(values);
  const size_t rank = (99 * values.size() + 99) / 100 - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(rank));
  summary.p99 = values[rank];
  return summary;
}

}  // namespace

ForgettingCost CostOfForgetting(std::span<const float> query, const ForgettingRows& rows,
                                double scale) {
  if (std::ranges::find(rows.is_left, 0) == rows.is_left.end()) return {};
  const std::vector<double> weights = WeightsOf(query, rows, scale);
  const size_t dim = rows.head_dim;
  std::vector<double> left(dim), evicted(dim);
  double left_mass = 0, evicted_mass = 0, evicted_norms = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto value = rows.values.subspan(i * dim, dim);
    const bool is_left = rows.is_left[i] != 0;
    std::vector<double>& sum = is_left ? left : evicted;
    for (size_t d = 0; d < dim; ++d) sum[d] += weights[i] * value[d];
    (is_left ? left_mass : evicted_mass) += weights[i];
    if (!is_left) evicted_norms += weights[i] * Norm(value);
  }
  std::vector<double> all(dim), difference(dim);
  for (size_t d = 0; d < dim; ++d) {
    all[d] = left[d] + evicted[d];
    left[d] /= left_mass;
    difference[d] = left[d] - all[d];
  }
  return {.error = Norm(difference),
          .output_norm = Norm(all),
          .mass = evicted_mass,
          .eq4 = 2 * evicted_norms,
          .bound = evicted_norms + evicted_mass * Norm(left)};
}

SignalNeeds ForgettingNeeds() { return {.num_recent_queries = 1, .keys = true, .values = true}; }

void ForgettingCosts::Add(int layer, int head, const ForgettingCost& cost) {
  // Allows for rounding, also of norms near zero.
  constexpr double kRounding = 1e-9;
  const double slack = kRounding * (cost.output_norm + cost.bound);
  ++counts_.measured;
  if (!std::isfinite(cost.error) || !std::isfinite(cost.bound)) {
    ++counts_.not_finite;
    return;
  }
  if (cost.error > cost.eq4 + slack) ++counts_.above_eq4;
  if (cost.error > cost.bound + slack) ++counts_.above_bound;
  const double relative = cost.output_norm > 0 ? cost.error / cost.output_norm : 0;
  Costs& of_head = heads_[static_cast<size_t>(layer) * num_heads_ + head];
  of_head.error.push_back(static_cast<float>(cost.error));
  of_head.relative_error.push_back(static_cast<float>(relative));
  of_head.mass.push_back(static_cast<float>(cost.mass));
  of_head.eq4.push_back(static_cast<float>(cost.eq4));
  of_head.bound.push_back(static_cast<float>(cost.bound));
  step_mass_ += cost.mass;
  step_error_ += relative;
  ++step_costs_;
}

void ForgettingCosts::EndStep() {
  const auto count = static_cast<double>(std::max<int64_t>(step_costs_, 1));
  ++counts_.steps;
  counts_.mass_by_step.push_back(step_mass_ / count);
  counts_.error_by_step.push_back(step_error_ / count);
  step_mass_ = step_error_ = 0;
  step_costs_ = 0;
}

ForgettingReport ForgettingCosts::Report() const {
  ForgettingReport report = counts_;
  for (size_t first = 0; first < heads_.size(); first += num_heads_) {
    const auto heads = std::span(heads_).subspan(first, num_heads_);
    const auto of_all = [&](std::vector<float> Costs::*figure) {
      std::vector<float> all;
      for (const Costs& head : heads) {
        all.insert(all.end(), (head.*figure).begin(), (head.*figure).end());
      }
      return Summarise(std::move(all));
    };
    LayerForgetting& layer = report.layers.emplace_back();
    layer.error = of_all(&Costs::error);
    layer.relative_error = of_all(&Costs::relative_error);
    layer.mass = of_all(&Costs::mass);
    layer.eq4 = of_all(&Costs::eq4);
    layer.bound = of_all(&Costs::bound);
    for (const Costs& head : heads) {
      layer.heads.push_back(
          {.relative_error = Summarise(head.relative_error), .mass = Summarise(head.mass)});
    }
  }
  return report;
}

ForgettingShadow::ForgettingShadow(const Session& session, const Model& model,
                                   ForgettingCosts* costs)
    : session_(session),
      shape_(model.shape()),
      scale_(model.attention_scale()),
      costs_(costs),
      keys_(shape_.NumStreams()),
      values_(keys_.size()),
      is_left_(shape_.NumGroups(session.policy().granularity)) {
  const Granularity granularity = session.policy().granularity;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (int head = 0; head < shape_.NumKvHeads(layer); ++head) {
      const int stream = static_cast<int>(streams_.size());
      const int group = granularity == Granularity::kToken   ? 0
                        : granularity == Granularity::kLayer ? layer
                                                             : stream;
      streams_.push_back({layer, head, group});
    }
  }
}

void ForgettingShadow::AppendRows() {
  const StepSignals& step = session_.last_signals();
  const size_t dim = shape_.head_dim;
  for (size_t stream = 0; stream < keys_.size(); ++stream) {
    const auto [layer, head, group] = streams_[stream];
    const size_t heads = shape_.NumKvHeads(layer);
    for (int token = 0; token < step.num_tokens; ++token) {
      const size_t at = (token * heads + head) * dim;
      const auto key = step.keys[layer].subspan(at, dim);
      const auto value = step.values[layer].subspan(at, dim);
      keys_[stream].insert(keys_[stream].end(), key.begin(), key.end());
      values_[stream].insert(values_[stream].end(), value.begin(), value.end());
    }
  }
  num_rows_ += step.num_tokens;
}

void ForgettingShadow::AddPrefill() { AppendRows(); }

// Marks the rows that the step will see; the new row is always seen.
void ForgettingShadow::BeforeDecode() {
  for (size_t group = 0; group < is_left_.size(); ++group) {
    is_left_[group].assign(num_rows_ + 1, 0);
    is_left_[group].back() = 1;
    for (const Position position : session_.visible_positions(static_cast<int>(group))) {
      is_left_[group][position] = 1;
    }
  }
}

void ForgettingShadow::AfterDecode() {
  AppendRows();
  for (int layer = 0; layer < shape_.num_layers; ++layer) MeasureLayer(layer);
  costs_->EndStep();
}

void ForgettingShadow::MeasureLayer(int layer) {
  const size_t dim = shape_.head_dim;
  // Uses only the newest query, which comes last: another observer may have asked for more queries.
  const auto queries = session_.last_signals().recent_queries[layer].last(shape_.num_q_heads * dim);
  const auto first = std::ranges::find(streams_, layer, &Stream::layer) - streams_.begin();
  for (int head = 0; head < shape_.num_q_heads; ++head) {
    const size_t stream = first + head / shape_.QueryHeadsPerKvHead(layer);
    const ForgettingRows rows = {.keys = keys_[stream],
                                 .values = values_[stream],
                                 .is_left = is_left_[streams_[stream].group],
                                 .head_dim = shape_.head_dim};
    costs_->Add(layer, head, CostOfForgetting(queries.subspan(head * dim, dim), rows, scale_));
  }
}

}  // namespace ebb
