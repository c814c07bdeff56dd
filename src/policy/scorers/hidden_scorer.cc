// Scores tokens by hidden states, as the policies of "EpiKV" (002) do: by how much the outputs of
// some blocks changed from the token before. g_l is the change of layer l (HiddenChange), and z_l
// its z-score over the trailing 64 tokens. A token's score is computed when the token is read or
// generated, never changes, and is the same in every group. Layer numbers refer to the paper's
// model of 32 layers, scaled to the model's depth; the user can give others.
//   epikv          z_10 - z_21 (Eq. 3)
//   hs_variance    mean of g_10 - mean of g_21 over the same 64 tokens (Eq. 2)
//   band_adaptive  mean of z over band A, layers 7 to 13, minus that over band B, 18 to 25 [ours:
//                  Table 1 names the bands alone]
//   attn_hs        cumulative attention + z_10: a sum, although it is called Attn x HS (Table 1)
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/rolling.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

constexpr int kPaperLayers = 32;

// Returns the layer of a model with `num_layers` layers at the same relative depth as layer `of_32`
// of the paper's model, rounded [ours].
int LayerAtDepth(int of_32, int num_layers) {
  const double at = static_cast<double>(of_32) * num_layers / kPaperLayers;
  return std::clamp(static_cast<int>(std::lround(at)), 0, std::max(0, num_layers - 1));
}

// HiddenChange computes g_l(t) = |h_l(t) - h_l(t-1)|_2 for some layers, where h_l is the output of
// block l ("EpiKV", 002, Eq. 1), and keeps a window of the trailing 64 tokens. The first token has
// no g, nor has the first one after a roll-back, which empties the windows [ours].
class HiddenChange {
 public:
  // layers: ascending.
  HiddenChange(std::vector<int> layers, int embed_dim);

  // Processes the tokens of a step one by one; after Take(), windows() end with that token.
  // REQUIRES: StepSignals::hidden contains the layers.
  void BeginStep(const StepSignals& step);
  void Take(const StepSignals& step, int token);
  [[nodiscard]] const std::vector<int>& layers() const { return layers_; }
  [[nodiscard]] std::span<const Rolling> windows() const { return windows_; }  // [layers]
  void Save(StateWriter* to) const;
  [[nodiscard]] Status Load(StateReader* from);

 private:
  const std::vector<int> layers_;
  const size_t embed_dim_;
  std::vector<Rolling> windows_;  // [layers]
  std::vector<size_t> sources_;   // [layers], into StepSignals::hidden
  std::vector<float> last_;       // [layers, embed_dim], of the token before
  Position next_ = 0;             // that goes on with them; 0: there is none before
};

HiddenChange::HiddenChange(std::vector<int> layers, int embed_dim)
    : layers_(std::move(layers)),
      embed_dim_(embed_dim),
      windows_(layers_.size()),
      sources_(layers_.size()),
      last_(layers_.size() * embed_dim_) {}

void HiddenChange::BeginStep(const StepSignals& step) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto found = std::ranges::find(step.hidden_layers, layers_[l]);
    assert(found != step.hidden_layers.end());
    sources_[l] = found - step.hidden_layers.begin();
  }
  if (step.first_position == next_) return;
  next_ = 0;
  for (Rolling& window : windows_) window.Clear();
}

void HiddenChange::Take(const StepSignals& step, int token) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const std::span<const float> now =
        step.hidden[sources_[l]].subspan(token * embed_dim_, embed_dim_);
    const std::span<float> before = std::span(last_).subspan(l * embed_dim_, embed_dim_);
    double squares = 0;
    for (size_t c = 0; c < embed_dim_; ++c) {
      const float x = FiniteOr0(now[c]);
      squares += double{x - before[c]} * double{x - before[c]};
      before[c] = x;
    }
    if (next_ > 0) windows_[l].Push(FiniteOr0(static_cast<float>(std::sqrt(squares))));
  }
  next_ = step.first_position + token + 1;
}

void HiddenChange::Save(StateWriter* to) const {
  for (const Rolling& window : windows_) window.Save(to);
  to->Numbers<float>(last_);
  to->Number<Position>(next_);
}

Status HiddenChange::Load(StateReader* from) {
  for (Rolling& window : windows_) EBB_RETURN_IF_ERROR(window.Load(from));
  EBB_RETURN_IF_ERROR(LoadList(from, &last_));
  next_ = from->Number<Position>();
  return from->status();
}

constexpr int kBandA[] = {7, 10, 13};  // first, the one of Eq. 2, last
constexpr int kBandB[] = {18, 21, 25};

// Bands names two ranges of layers: a's raise a token's score, b's lower it.
struct Bands {
  int a_first = 0, a_last = 0;
  int b_first = 0, b_last = -1;  // none

  [[nodiscard]] std::vector<int> Layers() const {
    std::vector<int> layers;
    for (int l = a_first; l <= a_last; ++l) layers.push_back(l);
    for (int l = b_first; l <= b_last; ++l) layers.push_back(l);
    std::ranges::sort(layers);
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
    return layers;
  }
};

enum class Use { kZScore, kMean };

// Returns a layer that the user gave. A layer beyond the model's stays beyond it, so that opening
// the session fails.
int GivenLayer(const Params& params, std::string_view key, int otherwise, int num_layers) {
  return std::min(params.Int(key, otherwise), num_layers);
}

Bands OneOfEach(const ScorerContext& context) {
  const int layers = context.shape.num_layers;
  const auto at = [&](std::string_view key, int of_32) {
    return GivenLayer(context.params, key, LayerAtDepth(of_32, layers), layers);
  };
  const int a = at("a", kBandA[1]);
  const int b = at("b", kBandB[1]);
  return {a, a, b, b};
}

class HiddenScorer final : public ColumnScorer {
 public:
  HiddenScorer(const ScorerContext& context, std::string name, const Bands& bands, Use use)
      : ColumnScorer(context),
        name_(std::move(name)),
        bands_(bands),
        use_(use),
        change_(this, 1, HiddenChange(bands.Layers(), context.shape.embed_dim)) {}

  std::string Name() const override { return name_; }
  SignalNeeds Needs() const override { return {.hidden_layers = change_[0].layers()}; }

  // Computes the numbers once, since they are the same in every group.
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    HiddenChange& change = change_[0];
    change.BeginStep(step);
    of_step_.resize(step.num_tokens);
    for (int token = 0; token < step.num_tokens; ++token) {
      change.Take(step, token);
      of_step_[token] = Mean(bands_.a_first, bands_.a_last) - Mean(bands_.b_first, bands_.b_last);
    }
    for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
      std::ranges::copy(of_step_, scores_[group].last(of_step_.size()).begin());
    }
  }

 private:
  [[nodiscard]] float Mean(int first, int last) const {
    const HiddenChange& change = change_[0];
    float sum = 0;
    for (size_t l = 0; l < change.layers().size(); ++l) {
      if (change.layers()[l] < first || change.layers()[l] > last) continue;
      const Rolling& window = change.windows()[l];
      sum += use_ == Use::kZScore ? window.ZScore() : window.Mean();
    }
    return sum / static_cast<float>(std::max(1, last - first + 1));
  }

  const std::string name_;
  const Bands bands_;
  const Use use_;
  SavedList<HiddenChange> change_;  // [1]
  std::vector<float> of_step_;      // [num_tokens]
};

class AttnHsScorer final : public ColumnScorer {
 public:
  explicit AttnHsScorer(const ScorerContext& context)
      : ColumnScorer(context),
        bands_{.a_first = OneOfEach(context).a_first, .a_last = OneOfEach(context).a_last},
        attention_(this, MakeAttentionScorer(context)),
        hidden_(this, std::make_unique<HiddenScorer>(context, AttnHsScorer::Name(), bands_,
                                                     Use::kZScore)) {}

  std::string Name() const override { return fmt::format("attn_hs:a={}", bands_.a_first); }
  SignalNeeds Needs() const override { return Union(attention_->Needs(), hidden_->Needs()); }
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    attention_->Observe(groups, step);
    hidden_->Observe(groups, step);
  }
  void EndFirstPrefill() override { attention_->EndFirstPrefill(); }
  std::span<const float> Scores(int group) override {
    const std::span<const float> attention = attention_->Scores(group);
    const std::span<const float> hidden = hidden_->Scores(group);
    const std::span<float> scores = scores_[group];
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = attention[i] + hidden[i];
    return scores;
  }

 private:
  const Bands bands_;
  InnerScorer attention_, hidden_;
};

}  // namespace

std::unique_ptr<Scorer> MakeEpikvScorer(const ScorerContext& context) {
  const Bands bands = OneOfEach(context);
  return std::make_unique<HiddenScorer>(
      context, fmt::format("epikv:a={},b={}", bands.a_first, bands.b_first), bands, Use::kZScore);
}

std::unique_ptr<Scorer> MakeHsVarianceScorer(const ScorerContext& context) {
  const Bands bands = OneOfEach(context);
  return std::make_unique<HiddenScorer>(
      context, fmt::format("hs_variance:a={},b={}", bands.a_first, bands.b_first), bands,
      Use::kMean);
}

std::unique_ptr<Scorer> MakeBandAdaptiveScorer(const ScorerContext& context) {
  const int layers = context.shape.num_layers;
  const Params& params = context.params;
  const auto at = [&](std::string_view key, int of_32) {
    return GivenLayer(params, key, LayerAtDepth(of_32, layers), layers);
  };
  Bands bands = {at("a_first", kBandA[0]), at("a_last", kBandA[2]), at("b_first", kBandB[0]),
                 at("b_last", kBandB[2])};
  bands.a_last = std::max(bands.a_first, bands.a_last);
  bands.b_last = std::max(bands.b_first, bands.b_last);
  return std::make_unique<HiddenScorer>(context,
                                        fmt::format("band_adaptive:a={}-{},b={}-{}", bands.a_first,
                                                    bands.a_last, bands.b_first, bands.b_last),
                                        bands, Use::kZScore);
}

std::unique_ptr<Scorer> MakeAttnHsScorer(const ScorerContext& context) {
  return std::make_unique<AttnHsScorer>(context);
}

}  // namespace ebb
