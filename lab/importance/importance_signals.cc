// Computes signals (one number per token of a thought) while a full cache reads the thought once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "ebb/lab/importance.h"

namespace ebb {
namespace {

double Distance(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

// Returns the variance of a vector's elements.
double Variance(std::span<const float> x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double squares = 0;
  for (const float v : x) squares += (v - mean) * (v - mean);
  return squares / static_cast<double>(x.size());
}

double Entropy(std::span<const float> probabilities) {
  double entropy = 0;
  for (const float p : probabilities) {
    if (p > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

// Returns the value; if it is not finite, the value of the token before.
double Finite(double value, const std::vector<double>& so_far) {
  if (std::isfinite(value)) return value;
  return so_far.empty() ? 0.0 : so_far.back();
}

// RawSignals collects the model's own signals: one number per token, from the first token on;
// entropy only within the thought.
class RawSignals {
 public:
  explicit RawSignals(const ModelShape& shape)
      : shape_(shape), hidden_(shape.num_layers), last_(shape.num_layers) {}

  [[nodiscard]] SignalNeeds Needs() const {
    SignalNeeds needs = {
        .mass = MassNeed::kPerQueryHead, .keys = true, .keys_before_rope = true, .values = true};
    needs.hidden_layers.resize(shape_.num_layers);
    std::iota(needs.hidden_layers.begin(), needs.hidden_layers.end(), 0);
    return needs;
  }

  void Observe(const GroupSignals& signals, const StepSignals& step) {
    for (int token = 0; token < step.num_tokens; ++token) {
      for (size_t layer = 0; layer < hidden_.size(); ++layer) TakeHidden(step, layer, token);
      Push(MeanVariance(step.keys, token, step.num_tokens), &keys_);
      Push(MeanVariance(step.keys_before_rope, token, step.num_tokens), &keys_before_rope_);
      Push(MeanVariance(step.values, token, step.num_tokens), &values_);
    }
    if (step.kind == StepKind::kDecode && signals.num_mass_heads > 0) {
      double sum = 0;
      for (int head = 0; head < signals.num_mass_heads; ++head) {
        sum += Entropy(
            signals.mass.subspan(static_cast<size_t>(head) * signals.num_rows, signals.num_rows));
      }
      Push(sum / signals.num_mass_heads, &entropy_);
    }
  }

  void AppendTo(size_t thought_tokens, std::vector<ThoughtSignal>* signals) const {
    for (size_t layer = 0; layer < hidden_.size(); ++layer) {
      Append(fmt::format("hidden_{}", layer), hidden_[layer], thought_tokens, signals);
    }
    Append("key_variance", keys_, thought_tokens, signals);
    Append("key_variance_before_rope", keys_before_rope_, thought_tokens, signals);
    Append("value_variance", values_, thought_tokens, signals);
    Append("entropy", entropy_, thought_tokens, signals);
  }

 private:
  static void Push(double value, std::vector<double>* to) { to->push_back(Finite(value, *to)); }

  // Adds how much the hidden state has changed since the token before; 0 for the first token.
  void TakeHidden(const StepSignals& step, size_t layer, int token) {
    const auto dim = static_cast<size_t>(shape_.embed_dim);
    const std::span<const float> now = step.hidden[layer].subspan(token * dim, dim);
    std::vector<float>& last = last_[layer];
    Push(last.empty() ? 0.0 : Distance(now, last), &hidden_[layer]);
    last.assign(now.begin(), now.end());
  }

  // Returns the variance of one token's vectors, averaged over layers and heads.
  [[nodiscard]] double MeanVariance(const std::vector<std::span<const float>>& by_layer, int token,
                                    int num_tokens) const {
    const auto dim = static_cast<size_t>(shape_.head_dim);
    double sum = 0;
    for (const std::span<const float> of_layer : by_layer) {
      const size_t heads = of_layer.size() / dim / num_tokens;
      for (size_t head = 0; head < heads; ++head) {
        const size_t vector = static_cast<size_t>(token) * heads + head;
        sum += Variance(of_layer.subspan(vector * dim, dim));
      }
    }
    return sum / static_cast<double>(shape_.NumStreams());
  }

  static void Append(const std::string& name, const std::vector<double>& values,
                     size_t thought_tokens, std::vector<ThoughtSignal>* signals) {
    for (const Smoothing smoothing :
         {Smoothing::kRaw, Smoothing::kExponential, Smoothing::kRolling}) {
      const std::vector<double> smooth = Smoothed(values, smoothing);
      const auto begin = smooth.end() - static_cast<ptrdiff_t>(thought_tokens);
      signals->push_back({fmt::format("{} {}", name, SmoothingName(smoothing)),
                          std::vector<double>(begin, smooth.end())});
    }
  }

  const ModelShape shape_;
  std::vector<std::vector<double>> hidden_;  // [layers][tokens]
  std::vector<std::vector<float>> last_;     // [layers][embed_dim]: of the token before
  std::vector<double> keys_, keys_before_rope_, values_, entropy_;
};

// Bystanders has scorers that observe every step of a session but decide nothing about its rows.
class Bystanders {
 public:
  Status Make(const ModelShape& shape) {
    for (const ScorerInfo& info : BuiltinScorers()) {
      if (info.name == "oracle" || info.name == "dms") continue;
      const PolicySpec spec = {.name = "attention",
                               .scorer = std::string(info.name),
                               .budget = {Budget::Unit::kPercent, 100},
                               .granularity = Granularity::kToken};
      EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy(spec, {.shape = shape}));
      needs_ = Union(needs_, policy.scorer->Needs());
      names_.emplace_back(info.name);
      scorers_.push_back(std::move(policy.scorer));
    }
    return OkStatus();
  }
  [[nodiscard]] const SignalNeeds& needs() const { return needs_; }

  void Append(std::span<const Position> positions) {
    for (const auto& scorer : scorers_) scorer->Append(0, positions);
  }
  void Observe(const GroupSignals& signals, const StepSignals& step) {
    for (const auto& scorer : scorers_) {
      if (!scorer->Needs().Empty()) scorer->Observe({&signals, 1}, step);
    }
  }
  void EndFirstPrefill() {
    for (const auto& scorer : scorers_) scorer->EndFirstPrefill();
  }
  void AppendTo(size_t thought_tokens, std::vector<ThoughtSignal>* signals) {
    for (size_t i = 0; i < scorers_.size(); ++i) {
      const std::span<const float> scores = scorers_[i]->Scores(0).last(thought_tokens);
      signals->push_back({names_[i], std::vector<double>(scores.begin(), scores.end())});
    }
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Scorer>> scorers_;  // [names]
  SignalNeeds needs_;
};

}  // namespace

Result<std::vector<ThoughtSignal>> ReadSignals(Engine* engine, const ImportanceLabels& labels) {
  const ModelShape& shape = engine->model().shape();
  if (shape.SmallestWindow() > 0) {
    return Unsupported(
        "signals of importance are of tokens that all layers see; this model has sliding windows");
  }
  RawSignals raw(shape);
  Bystanders scorers;
  EBB_RETURN_IF_ERROR(scorers.Make(shape));
  SessionOptions options;
  options.extra_signals = Union(raw.Needs(), scorers.needs());
  options.on_signals = [&](int, std::span<const Position> positions, const GroupSignals& signals,
                           const StepSignals& step) {
    scorers.Append(positions.last(step.num_tokens));
    scorers.Observe(signals, step);
    raw.Observe(signals, step);
  };
  EBB_ASSIGN_OR_RETURN(const auto session, engine->OpenSession(options));
  const auto tokens = std::span(labels.tokens);
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(labels.thought_begin)).status);
  scorers.EndFirstPrefill();
  for (const Token token : tokens.subspan(labels.thought_begin)) {
    EBB_RETURN_IF_ERROR(session->Decode(token).status);
  }
  const auto thought_tokens = static_cast<size_t>(labels.boundary - labels.thought_begin);
  std::vector<ThoughtSignal> signals;
  raw.AppendTo(thought_tokens, &signals);
  scorers.AppendTo(thought_tokens, &signals);
  return signals;
}

}  // namespace ebb
