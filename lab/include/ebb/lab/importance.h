// Which tokens of a thought matter, and which signals tell it: labels by occlusion, and their rank
// correlation with signals of the model and with every scorer ("EpiKV", 002, 3.4, 4.2, App. A, C
// and E).
//
// Thread safety: as an engine's; ImportanceStudy belongs to one thread at a time.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_IMPORTANCE_H_
#define EBB_LAB_IMPORTANCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/eval.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

struct OcclusionOptions {
  int window = 32;          // tokens that are replaced together
  int stride = 16;          // from one window to the next
  int answer_tokens = 512;  // most that are generated after each
  // The thought ends after the last place where the model wrote this. Empty, as in the paper: the
  // thinking tag, else "\boxed{", else 64 tokens before the end.
  std::string boundary;
  PromptStyle prompt_style = PromptStyle::kChat;
  const std::atomic<bool>* cancel = nullptr;
};

// One answer with its labels. Positions before thought_begin are the prompt's, whose importance is
// 1 (App. C); those from `boundary` on are the answer's and have none.
struct ImportanceLabels {
  std::vector<Token> tokens;  // [boundary]
  Position thought_begin = 0;
  Position boundary = 0;
  std::vector<uint8_t> important;  // [boundary], 0 or 1
  int num_windows = 0;
  int num_important_windows = 0;
};

enum class LabelOutcome {
  kLabelled,
  kWrong,        // the answer is not right: the labels are of right answers alone
  kNoThought,    // the boundary was not found, or nothing stands before it
  kNotRepeated,  // from the boundary on, untouched, the model answers something else
};
[[nodiscard]] std::string_view LabelOutcomeName(LabelOutcome outcome);

struct LabelResult {
  LabelOutcome outcome = LabelOutcome::kLabelled;
  ImportanceLabels labels;  // of kLabelled alone
};

// Answers the problem greedily with the full cache. Then, window by window, puts the padding token
// in place of a piece of the thought, reads the rest up to the boundary and answers again: the
// window is important when that answer is no longer right. A token is, when any window over it is.
// Errors: a window or stride below 1; those of sessions; kCancelled.
[[nodiscard]] Result<LabelResult> LabelByOcclusion(Engine* engine, const EvalQuestion& problem,
                                                   const OcclusionOptions& options);

// A number for every token of a thought.
struct ThoughtSignal {
  std::string name;
  std::vector<double> values;  // [boundary - thought_begin]
};

enum class Smoothing { kRaw, kExponential, kRolling };  // alpha 0.9; the last 64 tokens (App. E)
[[nodiscard]] std::string_view SmoothingName(Smoothing smoothing);
// Causal; from the first value on, over what there is.
[[nodiscard]] std::vector<double> Smoothed(std::span<const double> values, Smoothing smoothing);

// What a full cache shows when it reads these tokens, the thought's one by one. By layer l the
// change of the hidden state, "hidden_l" (Eq. 1); "key_variance", "key_variance_before_rope",
// "value_variance" (3.3; mean over layers and heads); "entropy" of a query's attention in nats
// (mean over layers and heads; App. F). Each of these raw, exponentially smoothed and rolling:
// "hidden_3 rolling". Then every built-in scorer that needs neither marks nor a foresight, at
// granularity token, by its name: its scores after the last token.
[[nodiscard]] Result<std::vector<ThoughtSignal>> ReadSignals(Engine* engine,
                                                             const ImportanceLabels& labels);

// One problem of many.
struct ImportanceResult {
  size_t problem = 0;
  LabelResult label;
  std::vector<ThoughtSignal> signals;  // of kLabelled alone
};

struct ImportanceOptions {
  OcclusionOptions occlusion;
  EngineOptions engine;  // threads is taken as 1
  int workers = 1;       // problems at a time
  // Called in the order of the problems, by one thread at a time. An error ends the study.
  std::function<Status(const ImportanceResult&)> on_result;
};

// LabelByOcclusion() and ReadSignals() for many problems. Errors: theirs; what on_result returned.
[[nodiscard]] Status StudyImportance(const std::shared_ptr<const Model>& model,
                                     std::span<const EvalQuestion> problems,
                                     const ImportanceOptions& options);

// Rank correlations (Spearman) of one signal.
struct SignalCorrelation {
  std::string name;
  // Mean over the thoughts in which it is defined, and how many these are.
  double within = 0;
  int64_t thoughts = 0;
  double half_width = 0;  // of that mean's 95 % interval, Student's over the thoughts
  // Over the tokens of all thoughts together: positions differ from thought to thought, so that a
  // signal which merely rises or falls with them looks better or worse than it is.
  double pooled = 0;
  int64_t tokens = 0;
  // Correlation of the signal with the position in the thought, mean over the thoughts (3.2).
  double trend = 0;
};

// Consecutive layers, first and last.
struct LayerBand {
  int first = 0;
  int last = 0;
  bool operator==(const LayerBand&) const = default;
};
// The consecutive layers whose correlations have the largest sum: EpiKV's band A; of the
// negated correlations: its band B. Nothing where none is positive.
[[nodiscard]] std::optional<LayerBand> BestBand(std::span<const double> correlation_by_layer);

class ImportanceStudy {
 public:
  // REQUIRES: the same signals in the same order each time.
  void Add(const ImportanceLabels& labels, const std::vector<ThoughtSignal>& signals);

  [[nodiscard]] int64_t num_thoughts() const { return num_thoughts_; }
  // The share of the thoughts' tokens that matter.
  [[nodiscard]] double ImportantShare() const;
  [[nodiscard]] std::vector<SignalCorrelation> Correlations() const;
  // The mean of each signal by place in the thought, from its begin to its end, in so many bins;
  // values are ranks within their thought, 0 to 1, so that thoughts can be put together.
  static constexpr int kTrendBins = 16;
  [[nodiscard]] std::vector<std::vector<double>> Trends() const;  // [signals][kTrendBins]
  // Trends with position, as SignalCorrelation::trend, of the labels themselves.
  [[nodiscard]] std::vector<double> ImportanceTrend() const;

 private:
  struct Sums {
    std::string name;
    double within = 0, within_squares = 0;
    int64_t thoughts = 0;
    double trend = 0;
    int64_t trend_thoughts = 0;
    std::vector<double> values;  // of all thoughts
    std::vector<double> by_bin = std::vector<double>(kTrendBins);
  };
  int64_t num_thoughts_ = 0;
  std::vector<double> labels_;  // of all thoughts
  std::vector<double> label_by_bin_ = std::vector<double>(kTrendBins);
  std::vector<int64_t> tokens_by_bin_ = std::vector<int64_t>(kTrendBins);
  std::vector<Sums> signals_;
};

}  // namespace ebb

#endif  // EBB_LAB_IMPORTANCE_H_
