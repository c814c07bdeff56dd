#include "apps/lab/profile/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "apps/common/report.h"

namespace ebb::cli {
namespace {

using Json = ProfileJson;

constexpr size_t kMostBins = 128;  // of a figure over positions or steps
constexpr int kBinsPerDecade = 8;  // of the histogram
constexpr int kLowestDecade = -5;
constexpr int kHighestDecade = 3;
constexpr size_t kMostMoves = 512;  // moves listed in the record

// Returns each token's importance by position, scaled so that the average is 1; empty for a run
// without decode steps.
std::vector<double> RelativeImportance(const ProfiledRun& run) {
  std::vector<double> values = run.importance;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (!(sum > 0)) return {};
  for (double& value : values) value *= static_cast<double>(values.size()) / sum;
  return values;
}

// Returns the sum of the largest `share` of the values. If this is no whole number of values, a
// part of the last one counts.
double TopShare(const std::vector<double>& descending, double share) {
  const double wanted = std::min(share, 1.0) * static_cast<double>(descending.size());
  const auto count = static_cast<size_t>(wanted);
  double top = std::accumulate(descending.begin(), descending.begin() + count, 0.0);
  if (count < descending.size()) top += (wanted - static_cast<double>(count)) * descending[count];
  return top / std::accumulate(descending.begin(), descending.end(), 0.0);
}

double Mean(std::span<const double> values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Returns the mean and the median; nulls if there are no values.
Json MeanAndMedian(const std::vector<double>& values) {
  if (values.empty()) return {{"mean", nullptr}, {"median", nullptr}};
  return {{"mean", Mean(values)}, {"median", Median(values)}};
}

// Bins averages values over bins of equal width.
class Bins {
 public:
  explicit Bins(size_t size) : width_((std::max<size_t>(size, 1) + kMostBins - 1) / kMostBins) {
    sums_.resize((size + width_ - 1) / width_);
    counts_.resize(sums_.size());
  }
  void Add(size_t at, double value) {
    sums_[at / width_] += value;
    ++counts_[at / width_];
  }
  [[nodiscard]] size_t width() const { return width_; }
  [[nodiscard]] size_t size() const { return sums_.size(); }
  // Returns the average of each bin, null for an empty bin.
  [[nodiscard]] Json Averages() const {
    Json averages = Json::array();
    for (size_t i = 0; i < sums_.size(); ++i) {
      averages.push_back(counts_[i] > 0 ? Json(sums_[i] / static_cast<double>(counts_[i]))
                                        : Json());
    }
    return averages;
  }
  [[nodiscard]] Json Begins() const {
    Json begins = Json::array();
    for (size_t i = 0; i < sums_.size(); ++i) begins.push_back(i * width_);
    return begins;
  }

 private:
  size_t width_;
  std::vector<double> sums_;
  std::vector<size_t> counts_;
};

const ProfiledRun& Longest(std::span<const ProfiledRun> runs) {
  return *std::ranges::max_element(runs, {}, [](const auto& run) { return run.steps.size(); });
}

struct Part {
  std::string_view name;
  double StepTimes::*member;
};
constexpr std::array<Part, 8> kParts = {{{"embedding", &StepTimes::embedding},
                                         {"matmul", &StepTimes::matmul},
                                         {"attention", &StepTimes::attention},
                                         {"other", &StepTimes::other},
                                         {"io_wait", &StepTimes::io_wait},
                                         {"policy", &StepTimes::policy},
                                         {"moves", &StepTimes::moves},
                                         {"sampling", &StepTimes::sampling}}};

size_t MostSteps(std::span<const ProfiledRun> runs) { return Longest(runs).steps.size(); }

}  // namespace

Json ImportanceFigure(std::span<const ProfiledRun> runs) {
  constexpr int kBins = (kHighestDecade - kLowestDecade) * kBinsPerDecade;
  std::vector<int64_t> histogram(kBins);
  int64_t num_tokens = 0, num_without = 0;
  std::vector<double> top20, bottom50;
  constexpr size_t kCurvePoints = 101;  // a point at every percent
  std::array<double, kCurvePoints> curve = {};
  for (const ProfiledRun& run : runs) {
    std::vector<double> values = RelativeImportance(run);
    if (values.empty()) continue;
    std::ranges::sort(values, std::greater());
    for (const double value : values) {
      ++num_tokens;
      num_without += value <= 0;
      const double bin = value > 0 ? (std::log10(value) - kLowestDecade) * kBinsPerDecade : 0;
      ++histogram[static_cast<size_t>(std::clamp<double>(std::floor(bin), 0, kBins - 1))];
    }
    top20.push_back(TopShare(values, 0.2));
    bottom50.push_back(1 - TopShare(values, 0.5));
    for (size_t i = 0; i < kCurvePoints; ++i) curve[i] += TopShare(values, 0.01 * i);
  }
  Json edges = Json::array(), cdf = Json::array(), shares = Json::array();
  int64_t below = 0;
  for (int i = 0; i <= kBins; ++i) {
    edges.push_back(std::pow(10.0, kLowestDecade + double(i) / kBinsPerDecade));
    const double total = std::max<double>(1, static_cast<double>(num_tokens));
    cdf.push_back(static_cast<double>(below) / total);
    if (i == kBins) break;
    below += histogram[i];
    shares.push_back(static_cast<double>(histogram[i]) / total);
  }
  Json captured = Json::array();
  for (const double value : curve) {
    captured.push_back(top20.empty() ? 0 : value / static_cast<double>(top20.size()));
  }
  return {{"tokens", num_tokens},
          {"tokens_without_attention", num_without},
          {"edges", edges},
          {"share_of_tokens", shares},
          {"cdf", cdf},
          {"top_share_captures", captured},
          {"top_20_percent", MeanAndMedian(top20)},
          {"bottom_50_percent", MeanAndMedian(bottom50)}};
}

Json PositionFigure(std::span<const ProfiledRun> runs) {
  size_t longest = 0;
  std::vector<double> prompts;
  for (const ProfiledRun& run : runs) {
    longest = std::max(longest, run.importance.size());
    prompts.push_back(run.prompt_tokens);
  }
  Bins bins(longest);
  for (const ProfiledRun& run : runs) {
    const std::vector<double> values = RelativeImportance(run);
    for (size_t p = 0; p < values.size(); ++p) bins.Add(p, values[p]);
  }
  return {{"tokens_per_bin", bins.width()},
          {"position", bins.Begins()},
          {"importance", bins.Averages()},
          {"mean_prompt_tokens", Mean(prompts)}};
}

Json OverlapFigure(std::span<const ProfiledRun> runs) {
  Bins bins(MostSteps(runs));
  std::vector<double> all;
  for (const ProfiledRun& run : runs) {
    for (size_t i = 0; i < run.steps.size(); ++i) {
      if (run.steps[i].overlap < 0) continue;
      bins.Add(i, run.steps[i].overlap);
      all.push_back(run.steps[i].overlap);
    }
  }
  Json figure = {{"important_share", kImportantShare},
                 {"steps_per_bin", bins.width()},
                 {"step", bins.Begins()},
                 {"overlap", bins.Averages()}};
  figure.update(MeanAndMedian(all));
  return figure;
}

Json TopHalfFigure(std::span<const ProfiledRun> runs) {
  Json distances = Json::array(), shares = Json::array();
  for (int i = 0; i < TopHalfHistory::kDistances; ++i) {
    TopHalfHistory::Kept all;
    for (const ProfiledRun& run : runs) {
      all.steps += run.top_half[i].steps;
      all.shares += run.top_half[i].shares;
    }
    if (all.steps == 0) break;
    distances.push_back(1 << i);
    shares.push_back(all.shares / static_cast<double>(all.steps));
  }
  return {{"distance", distances}, {"share", shares}};
}

// Reports the 80th percentile, which "LazyEviction" uses as its window (Appendix C).
Json RecurrenceFigure(std::span<const ProfiledRun> runs) {
  constexpr double kPercentile = 0.8;
  std::vector<int> all;
  for (const ProfiledRun& run : runs)
    all.insert(all.end(), run.intervals.begin(), run.intervals.end());
  std::ranges::sort(all);
  Json below = Json::array(), shares = Json::array();
  const auto share_below = [&](int interval) {
    const auto end = std::ranges::lower_bound(all, interval);
    return static_cast<double>(end - all.begin()) / static_cast<double>(all.size());
  };
  for (int limit = 1; !all.empty() && (limit == 1 || limit / 2 <= all.back()); limit *= 2) {
    below.push_back(limit);
    shares.push_back(share_below(limit));
  }
  Json figure = {
      {"active_share", kActiveShare}, {"tokens", all.size()}, {"interval", below},
      {"share_below", shares},        {"recurring", nullptr}, {"percentile_80", nullptr}};
  if (all.empty()) return figure;
  figure["recurring"] = 1 - share_below(2);
  const auto rank = static_cast<size_t>(kPercentile * static_cast<double>(all.size() - 1));
  figure["percentile_80"] = all[rank];
  return figure;
}

Json TierFigure(std::span<const ProfiledRun> runs) {
  const ProfiledRun& run = Longest(runs);
  const size_t step_width = Bins(run.steps.size()).width();
  Json figure = {{"steps_per_point", step_width}, {"step", Json::array()}};
  std::array<Json, kNumTiers> rows;
  rows.fill(Json::array());
  // Each point shows the rows after the last step of its bin, because an average would mix
  // different states of the cache.
  for (size_t end = step_width; end < run.steps.size() + step_width; end += step_width) {
    const size_t step = std::min(end, run.steps.size()) - 1;
    figure["step"].push_back(step);
    for (size_t tier = 0; tier < kNumTiers; ++tier) {
      rows[tier].push_back(run.steps[step].rows[tier]);
    }
  }
  for (size_t tier = 0; tier < kNumTiers; ++tier) {
    figure["rows"][std::string(TierName(static_cast<Tier>(tier)))] = rows[tier];
  }
  return figure;
}

Json RetainedFigure(std::span<const ProfiledRun> runs, int groups_per_layer) {
  const size_t num_groups = runs.empty() ? 0 : runs.front().retained.size();
  Json by_group = Json::array();
  for (size_t group = 0; group < num_groups; ++group) {
    double sum = 0;
    for (const ProfiledRun& run : runs) sum += run.retained[group];
    by_group.push_back(sum / static_cast<double>(runs.size()));
  }
  // The compression ratio is the number of rows computed divided by the number of rows kept, like
  // in the paper.
  Bins compression(runs.empty() ? 0 : MostSteps(runs));
  for (const ProfiledRun& run : runs) {
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const auto& rows = run.steps[i].rows;
      const auto gone = static_cast<double>(rows[static_cast<size_t>(Tier::kT3)]);
      const double all = std::accumulate(rows.begin(), rows.end(), 0.0);
      compression.Add(i, all > gone ? all / (all - gone) : 1.0);
    }
  }
  return {{"groups_per_layer", groups_per_layer},
          {"share", by_group},
          {"step", compression.Begins()},
          {"compression", compression.Averages()}};
}

Json CostFigure(std::span<const ProfiledRun> runs) {
  Json parts, over_steps;
  double total = 0;
  size_t num_steps = 0;
  for (const ProfiledRun& run : runs) num_steps += run.steps.size();
  const double steps = std::max<double>(1, static_cast<double>(num_steps));
  Bins width(MostSteps(runs));
  for (const Part& part : kParts) {
    double sum = 0;
    Bins bins(MostSteps(runs));
    for (const ProfiledRun& run : runs) {
      for (size_t i = 0; i < run.steps.size(); ++i) {
        sum += run.steps[i].times.*part.member;
        bins.Add(i, run.steps[i].times.*part.member);
      }
    }
    total += sum;
    parts[std::string(part.name)] = sum / steps;
    over_steps[std::string(part.name)] = bins.Averages();
  }
  return {{"steps", num_steps},     {"mean_step_seconds", total / steps},
          {"mean_seconds", parts},  {"steps_per_bin", width.width()},
          {"step", width.Begins()}, {"seconds", over_steps}};
}

Json TransferFigure(std::span<const Transfer> transfers, std::span<const ProfiledRun> runs) {
  Json measured = Json::array(), seen = Json::array();
  for (const Transfer& transfer : transfers) {
    const double rate =
        transfer.seconds > 0 ? static_cast<double>(transfer.bytes) / transfer.seconds : 0;
    measured.push_back({{"from", TierName(transfer.from)},
                        {"to", TierName(transfer.to)},
                        {"tokens", transfer.tokens},
                        {"bytes", transfer.bytes},
                        {"seconds", transfer.seconds},
                        {"bytes_per_second", rate}});
  }
  for (const ProfiledRun& run : runs) {
    for (const ProfiledStep& step : run.steps) {
      const int64_t rows = step.moves.rows_down + step.moves.rows_up;
      if (rows == 0 || seen.size() == kMostMoves) continue;
      seen.push_back({{"rows", rows},
                      {"bytes", step.moves.bytes_down + step.moves.bytes_up},
                      {"seconds", step.moves.seconds}});
    }
  }
  return {{"measured", measured}, {"in_runs", seen}};
}

Json RunRecords(std::span<const ProfiledRun> runs) {
  Json records = Json::array();
  for (const ProfiledRun& run : runs) {
    const GenerateResult& result = run.result;
    std::vector<double> descending = RelativeImportance(run);
    std::ranges::sort(descending, std::greater());
    Json record = {{"prompt_tokens", run.prompt_tokens},
                   {"generated_tokens", result.generated_tokens},
                   {"finish_reason", FinishReasonName(result.finish_reason)},
                   {"tokens_per_s", result.seconds > 0 ? result.decode_steps / result.seconds : 0},
                   {"rows_evicted", run.cache.rows_evicted}};
    if (!descending.empty()) {
      record["top_20_percent"] = TopShare(descending, 0.2);
      record["bottom_50_percent"] = 1 - TopShare(descending, 0.5);
    }
    if (run.cache.selection.rows_unread > 0) {
      record["selection"] = SelectionRecord(run.cache.selection);
    }
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      const TierAccounting& of_tier = run.cache.tiers[static_cast<size_t>(tier)];
      record["tiers"].push_back(
          {{"name", TierName(tier)}, {"rows", of_tier.rows}, {"bytes", of_tier.page_bytes}});
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace ebb::cli
