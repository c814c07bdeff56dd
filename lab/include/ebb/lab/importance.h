// Finds which tokens of a thought matter, and which signals predict it: labels by occlusion, and
// their rank correlation with signals of the model and with every scorer ("EpiKV", 002, 3.4, 4.2,
// App. A, C and E).
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
  int window = 32;          // tokens replaced at once
  int stride = 16;          // tokens from one window to the next
  int answer_tokens = 512;  // most tokens of each answer
  // Holds the text that ends the thought; its last occurrence in the model's text counts. Empty, as
  // in the paper: the thinking tag, else "\boxed{", else 64 tokens before the end.
  std::string boundary;
  PromptStyle prompt_style = PromptStyle::kChat;
  const std::atomic<bool>* cancel = nullptr;
};

// ImportanceLabels has the labels of one answer. Positions before thought_begin belong to the
// prompt and have importance 1 (App. C); positions from `boundary` on belong to the answer and have
// no label.
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
  kWrong,        // the answer is wrong; only right ones are labelled
  kNoThought,    // no boundary, or nothing before it
  kNotRepeated,  // the unchanged thought leads to another answer
};
[[nodiscard]] std::string_view LabelOutcomeName(LabelOutcome outcome);

struct LabelResult {
  LabelOutcome outcome = LabelOutcome::kLabelled;
  ImportanceLabels labels;  // set if kLabelled
};

// Labels the tokens of a thought. Answers the problem greedily with the full cache. Then, for each
// window of the thought, replaces its tokens by the padding token, reads the rest up to the
// boundary and answers again. The window is important if that answer is no longer right; a token is
// important if any window that contains it is. Errors: a window or stride below 1; those of
// sessions; kCancelled.
[[nodiscard]] Result<LabelResult> LabelByOcclusion(Engine* engine, const EvalQuestion& problem,
                                                   const OcclusionOptions& options);

// ThoughtSignal has a number for every token of a thought.
struct ThoughtSignal {
  std::string name;
  std::vector<double> values;  // [boundary - thought_begin]
};

enum class Smoothing { kRaw, kExponential, kRolling };  // alpha 0.9; last 64 tokens (App. E)
[[nodiscard]] std::string_view SmoothingName(Smoothing smoothing);
// Returns the smoothed values. A value depends only on earlier ones, and on fewer of them at the
// beginning.
[[nodiscard]] std::vector<double> Smoothed(std::span<const double> values, Smoothing smoothing);

// Returns the signals of a full cache that reads these tokens, the thought token by token. For each
// layer l: the change of the hidden state, "hidden_l" (Eq. 1). Then "key_variance",
// "key_variance_before_rope", "value_variance" (3.3; mean over layers and heads) and "entropy" of a
// query's attention in nats (mean over layers and heads; App. F). Each of these is returned raw,
// exponentially smoothed and as a rolling mean: "hidden_3 rolling". Then, by name, the scores after
// the last token of every built-in scorer that needs neither marks nor foresight, at granularity
// token.
[[nodiscard]] Result<std::vector<ThoughtSignal>> ReadSignals(Engine* engine,
                                                             const ImportanceLabels& labels);

// ImportanceResult is the result for one problem.
struct ImportanceResult {
  size_t problem = 0;
  LabelResult label;
  std::vector<ThoughtSignal> signals;  // set if kLabelled
};

struct ImportanceOptions {
  OcclusionOptions occlusion;
  EngineOptions engine;  // `threads` is ignored: each engine has 1
  int workers = 1;       // problems that run at a time
  // Receives the results in the order of problems, on one thread at a time. An error ends the
  // study.
  std::function<Status(const ImportanceResult&)> on_result;
};

// Calls LabelByOcclusion() and ReadSignals() for each problem. Errors: theirs, and those of
// on_result.
[[nodiscard]] Status StudyImportance(const std::shared_ptr<const Model>& model,
                                     std::span<const EvalQuestion> problems,
                                     const ImportanceOptions& options);

// SignalCorrelation holds the rank correlations (Spearman) of one signal with the labels.
struct SignalCorrelation {
  std::string name;
  // Are the mean over the thoughts in which the correlation is defined, and the number of these
  // thoughts.
  double within = 0;
  int64_t thoughts = 0;
  double half_width = 0;  // half the width of the mean's 95 % interval (Student's)
  // Are the correlation over the tokens of all thoughts together, and their number. Thoughts differ
  // in length, so that a signal that merely rises or falls with the position looks better or worse
  // here than it is.
  double pooled = 0;
  int64_t tokens = 0;
  // Holds the correlation of the signal with the position in the thought, averaged over the
  // thoughts (3.2).
  double trend = 0;
};

// LayerBand is a range of consecutive layers, both ends included.
struct LayerBand {
  int first = 0;
  int last = 0;
  bool operator==(const LayerBand&) const = default;
};
// Returns the consecutive layers with the largest sum of correlations. This is EpiKV's band A; for
// negated correlations, its band B. Returns nullopt if no correlation is positive.
[[nodiscard]] std::optional<LayerBand> BestBand(std::span<const double> correlation_by_layer);

class ImportanceStudy {
 public:
  // Adds a thought. REQUIRES: every call has the same signals in the same order.
  void Add(const ImportanceLabels& labels, const std::vector<ThoughtSignal>& signals);

  [[nodiscard]] int64_t num_thoughts() const { return num_thoughts_; }
  // Returns the share of important tokens among those of all thoughts.
  [[nodiscard]] double ImportantShare() const;
  [[nodiscard]] std::vector<SignalCorrelation> Correlations() const;
  // kTrendBins is the number of equal parts into which each thought is divided for Trends(), the
  // mean of each signal in each part. Values are ranks within their thought, 0 to 1, so that
  // thoughts can be averaged.
  static constexpr int kTrendBins = 16;
  [[nodiscard]] std::vector<std::vector<double>> Trends() const;  // [signals][kTrendBins]
  // Returns the same as Trends() for the labels.
  [[nodiscard]] std::vector<double> ImportanceTrend() const;

 private:
  struct Sums {
    std::string name;
    double within = 0, within_squares = 0;
    int64_t thoughts = 0;
    double trend = 0;
    int64_t trend_thoughts = 0;
    std::vector<double> values;  // a value for each token of all thoughts
    std::vector<double> by_bin = std::vector<double>(kTrendBins);
  };
  int64_t num_thoughts_ = 0;
  std::vector<double> labels_;  // a label for each token of all thoughts
  std::vector<double> label_by_bin_ = std::vector<double>(kTrendBins);
  std::vector<int64_t> tokens_by_bin_ = std::vector<int64_t>(kTrendBins);
  std::vector<Sums> signals_;
};

}  // namespace ebb

#endif  // EBB_LAB_IMPORTANCE_H_
