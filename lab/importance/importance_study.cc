#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "ebb/lab/importance.h"
#include "ebb/lab/statistics.h"

namespace ebb {
namespace {

constexpr double kAlpha = 0.9;
constexpr size_t kRollingTokens = 64;

size_t BinOf(size_t index, size_t count) { return index * ImportanceStudy::kTrendBins / count; }

// Returns ranks scaled to 0 to 1.
std::vector<double> RelativeRanks(std::span<const double> values) {
  std::vector<double> ranks = Ranks(values);
  for (double& rank : ranks) {
    rank = (rank - 1) / std::max(1.0, static_cast<double>(values.size()) - 1);
  }
  return ranks;
}

std::vector<double> MeansOf(std::vector<double> sums, const std::vector<int64_t>& counts) {
  for (size_t bin = 0; bin < sums.size(); ++bin) {
    sums[bin] /= std::max(1.0, static_cast<double>(counts[bin]));
  }
  return sums;
}

}  // namespace

std::string_view SmoothingName(Smoothing smoothing) {
  constexpr std::array<std::string_view, 3> kNames = {"raw", "exponential", "rolling"};
  return kNames[static_cast<size_t>(smoothing)];
}

std::vector<double> Smoothed(std::span<const double> values, Smoothing smoothing) {
  std::vector<double> smooth(values.begin(), values.end());
  if (smoothing == Smoothing::kExponential) {
    for (size_t i = 1; i < smooth.size(); ++i) {
      smooth[i] = kAlpha * smooth[i - 1] + (1 - kAlpha) * values[i];
    }
  } else if (smoothing == Smoothing::kRolling) {
    for (size_t i = 0; i < smooth.size(); ++i) {
      const auto window = values.first(i + 1).last(std::min(i + 1, kRollingTokens));
      smooth[i] =
          std::accumulate(window.begin(), window.end(), 0.0) / static_cast<double>(window.size());
    }
  }
  return smooth;
}

std::optional<LayerBand> BestBand(std::span<const double> correlation_by_layer) {
  std::optional<LayerBand> best;
  double best_sum = 0, sum = 0;
  int first = 0;
  for (int layer = 0; layer < static_cast<int>(correlation_by_layer.size()); ++layer) {
    const double correlation = correlation_by_layer[static_cast<size_t>(layer)];
    if (std::isnan(correlation)) {
      sum = 0;
      first = layer + 1;
      continue;
    }
    sum += correlation;
    if (sum > best_sum) {
      best_sum = sum;
      best = LayerBand{first, layer};
    }
    if (sum <= 0) {
      sum = 0;
      first = layer + 1;
    }
  }
  return best;
}

void ImportanceStudy::Add(const ImportanceLabels& labels,
                          const std::vector<ThoughtSignal>& signals) {
  const auto begin = static_cast<size_t>(labels.thought_begin);
  const size_t count = labels.important.size() - begin;
  if (count == 0) return;
  if (num_thoughts_++ == 0) {
    for (const ThoughtSignal& signal : signals) signals_.push_back({.name = signal.name});
  }
  assert(signals.size() == signals_.size());
  const std::vector<double> of_thought(labels.important.begin() + labels.thought_begin,
                                       labels.important.end());
  labels_.insert(labels_.end(), of_thought.begin(), of_thought.end());
  for (size_t i = 0; i < count; ++i) {
    ++tokens_by_bin_[BinOf(i, count)];
    label_by_bin_[BinOf(i, count)] += of_thought[i];
  }
  std::vector<double> places(count);
  std::iota(places.begin(), places.end(), 0.0);
  for (size_t s = 0; s < signals.size(); ++s) {
    const std::vector<double>& values = signals[s].values;
    assert(signals[s].name == signals_[s].name && values.size() == count);
    Sums& sums = signals_[s];
    const double within = SpearmanCorrelation(values, of_thought);
    if (!std::isnan(within)) {
      sums.within += within;
      sums.within_squares += within * within;
      ++sums.thoughts;
    }
    const double trend = SpearmanCorrelation(values, places);
    if (!std::isnan(trend)) {
      sums.trend += trend;
      ++sums.trend_thoughts;
    }
    sums.values.insert(sums.values.end(), values.begin(), values.end());
    const std::vector<double> ranks = RelativeRanks(values);
    for (size_t i = 0; i < count; ++i) sums.by_bin[BinOf(i, count)] += ranks[i];
  }
}

double ImportanceStudy::ImportantShare() const {
  if (labels_.empty()) return 0;
  return std::accumulate(labels_.begin(), labels_.end(), 0.0) / static_cast<double>(labels_.size());
}

std::vector<SignalCorrelation> ImportanceStudy::Correlations() const {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  std::vector<SignalCorrelation> correlations;
  for (const Sums& sums : signals_) {
    correlations.push_back(
        {.name = sums.name,
         .within =
             sums.thoughts == 0 ? kUndefined : sums.within / static_cast<double>(sums.thoughts),
         .thoughts = sums.thoughts,
         .half_width = MeanHalfWidth(sums.within, sums.within_squares, sums.thoughts),
         .pooled = SpearmanCorrelation(sums.values, labels_),
         .tokens = static_cast<int64_t>(labels_.size()),
         .trend = sums.trend_thoughts == 0
                      ? kUndefined
                      : sums.trend / static_cast<double>(sums.trend_thoughts)});
  }
  return correlations;
}

std::vector<std::vector<double>> ImportanceStudy::Trends() const {
  std::vector<std::vector<double>> trends;
  for (const Sums& sums : signals_) trends.push_back(MeansOf(sums.by_bin, tokens_by_bin_));
  return trends;
}

std::vector<double> ImportanceStudy::ImportanceTrend() const {
  return MeansOf(label_by_bin_, tokens_by_bin_);
}

}  // namespace ebb
