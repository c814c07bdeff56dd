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
  int window = 32;          // tokens that are replaced together
  int stride = 16;          // from one window to the next
  int answer_tokens = 512;  // most that are generated after each
  // Marks the end of the thought, which ends after the last place where the model wrote this text.
  // Empty, as in the paper: the thinking tag, else "\boxed{", else 64 tokens before the end.
  std::string boundary;
  PromptStyle prompt_style = PromptStyle::kChat;
  const std::atomic<bool>* cancel = nullptr;
};

// ImportanceLabels is one answer with its labels. Positions before thought_begin belong to the
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
  kWrong,        // the answer is not right: the labels are of right answers alone
  kNoThought,    // the boundary was not found, or nothing stands before it
  kNotRepeated,  // from the boundary on, untouched, the model answers something else
};
[[nodiscard]] std::string_view LabelOutcomeName(LabelOutcome outcome);

struct LabelResult {
  LabelOutcome outcome = LabelOutcome::kLabelled;
  ImportanceLabels labels;  // of kLabelled alone
};

// Labels the tokens of a thought. Answers the problem greedily with the full cache; then, window by
// window, replaces a piece of the thought by the padding token, reads the rest up to the boundary
// and answers again. The window is important if that answer is no longer right; a token is if any
// window over it is. Errors: a window or stride below 1; those of sessions; kCancelled.
[[nodiscard]] Result<LabelResult> LabelByOcclusion(Engine* engine, const EvalQuestion& problem,
                                                   const OcclusionOptions& options);

// ThoughtSignal holds a number for every token of a thought.
struct ThoughtSignal {
  std::string name;
  std::vector<double> values;  // [boundary - thought_begin]
};

enum class Smoothing { kRaw, kExponential, kRolling };  // alpha 0.9; the last 64 tokens (App. E)
[[nodiscard]] std::string_view SmoothingName(Smoothing smoothing);
// Returns the smoothed values. Smoothing is causal, and uses the values so far while there are few.
[[nodiscard]] std::vector<double> Smoothed(std::span<const double> values, Smoothing smoothing);

// Returns the signals of a full cache that reads these tokens, those of the thought one by one. For
// each layer l the change of the hidden state, "hidden_l" (Eq. 1); then "key_variance",
// "key_variance_before_rope", "value_variance" (3.3; mean over layers and heads) and "entropy" of a
// query's attention in nats (mean over layers and heads; App. F). Each of these is given raw,
// exponentially smoothed and rolling: "hidden_3 rolling". Then, by name, the scores after the last
// token of every built-in scorer that needs neither marks nor a foresight, at granularity token.
[[nodiscard]] Result<std::vector<ThoughtSignal>> ReadSignals(Engine* engine,
                                                             const ImportanceLabels& labels);

// ImportanceResult is the result of one problem of many.
struct ImportanceResult {
  size_t problem = 0;
  LabelResult label;
  std::vector<ThoughtSignal> signals;  // of kLabelled alone
};

struct ImportanceOptions {
  OcclusionOptions occlusion;
  EngineOptions engine;  // threads is taken as 1
  int workers = 1;       // problems at a time
  // Receives results in the order of the problems, on one thread at a time. An error ends the
  // study.
  std::function<Status(const ImportanceResult&)> on_result;
};

// Calls LabelByOcclusion() and ReadSignals() for many problems. Errors: theirs, and those of
// on_result.
[[nodiscard]] Status StudyImportance(const std::shared_ptr<const Model>& model,
                                     std::span<const EvalQuestion> problems,
                                     const ImportanceOptions& options);

// SignalCorrelation holds the rank correlations (Spearman) of one signal with the labels.
struct SignalCorrelation {
  std::string name;
  // Holds the mean over the thoughts in which the correlation is defined; `thoughts` counts these.
  double within = 0;
  int64_t thoughts = 0;
  double half_width = 0;  // of that mean's 95 % interval, Student's over the thoughts
  // Holds the correlation over the tokens of all thoughts together. Since thoughts differ in
  // length, a signal that merely rises or falls with the position looks better or worse here than
  // it is.
  double pooled = 0;
  int64_t tokens = 0;
  // Holds the correlation of the signal with the position in the thought, mean over the thoughts
  // (3.2).
  double trend = 0;
};

// LayerBand is a range of consecutive layers, both ends included.
struct LayerBand {
  int first = 0;
  int last = 0;
  bool operator==(const LayerBand&) const = default;
};
// Returns the consecutive layers whose correlations have the largest sum, which is EpiKV's band A;
// for negated correlations, its band B. Returns nullopt if none is positive.
[[nodiscard]] std::optional<LayerBand> BestBand(std::span<const double> correlation_by_layer);

class ImportanceStudy {
 public:
  // Adds a thought. REQUIRES: every call has the same signals in the same order.
  void Add(const ImportanceLabels& labels, const std::vector<ThoughtSignal>& signals);

  [[nodiscard]] int64_t num_thoughts() const { return num_thoughts_; }
  // Returns the share of the thoughts' tokens that are important.
  [[nodiscard]] double ImportantShare() const;
  [[nodiscard]] std::vector<SignalCorrelation> Correlations() const;
  // kTrendBins is the number of bins into which a thought is divided, from begin to end, for the
  // means of each signal. Values are ranks within their thought, 0 to 1, so that thoughts can be
  // combined.
  static constexpr int kTrendBins = 16;
  [[nodiscard]] std::vector<std::vector<double>> Trends() const;  // [signals][kTrendBins]
  // Returns the trend of the labels themselves, as Trends() does of signals.
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
