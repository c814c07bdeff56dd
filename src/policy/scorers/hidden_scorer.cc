// The hidden-state policies of "EpiKV" (002): a number per token from how much the outputs of some
// blocks changed at it (hidden_change.h), computed when it is read or generated, then frozen; the
// same in every group. Layers are of its model of 32, scaled by depth, and can be given.
//   epikv          z_10 - z_21, z over the trailing 64 tokens (Eq. 3)
//   hs_variance    mean of g_10 - mean of g_21 over the same window (Eq. 2)
//   band_adaptive  mean of z over band A, layers 7 to 13, minus that over band B, 18 to 25 [ours:
//                  Table 1 names the bands alone]
//   attn_hs        cumulative attention + z_10: a sum, although it is called Attn x HS (Table 1)
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/scorers/hidden_change.h"
#include "src/policy/scorers/row_scorer.h"

namespace ebb {
namespace {

constexpr int kBandA[] = {7, 10, 13};  // first, the one of Eq. 2, last
constexpr int kBandB[] = {18, 21, 25};

// Layers a.first to a.last speak for a token, b's against it.
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

// A layer that the model has not stays one that it has not: the session is refused then.
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

class HiddenScorer final : public RowScorer {
 public:
  HiddenScorer(const ScorerContext& context, std::string name, const Bands& bands, Use use)
      : RowScorer(context),
        name_(std::move(name)),
        bands_(bands),
        use_(use),
        change_(bands.Layers(), context.shape.embed_dim) {}

  std::string Name() const override { return name_; }
  SignalNeeds Needs() const override { return {.hidden_layers = change_.layers()}; }

  // All groups see the same.
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    change_.BeginStep(step);
    of_step_.resize(step.num_tokens);
    for (int token = 0; token < step.num_tokens; ++token) {
      change_.Take(step, token);
      of_step_[token] = Mean(bands_.a_first, bands_.a_last) - Mean(bands_.b_first, bands_.b_last);
    }
    for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
      std::ranges::copy(of_step_, scores_[group].last(of_step_.size()).begin());
    }
  }

  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(RowScorer::SaveState(to));
    change_.Save(to);
    return OkStatus();
  }
  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(RowScorer::LoadState(from));
    return change_.Load(from);
  }

 private:
  [[nodiscard]] float Mean(int first, int last) const {
    float sum = 0;
    for (size_t l = 0; l < change_.layers().size(); ++l) {
      if (change_.layers()[l] < first || change_.layers()[l] > last) continue;
      const Rolling& window = change_.windows()[l];
      sum += use_ == Use::kZScore ? window.ZScore() : window.Mean();
    }
    return sum / static_cast<float>(std::max(1, last - first + 1));
  }

  const std::string name_;
  const Bands bands_;
  const Use use_;
  HiddenChange change_;
  std::vector<float> of_step_;  // [num_tokens]
};

class AttnHsScorer final : public Scorer {
 public:
  explicit AttnHsScorer(const ScorerContext& context)
      : num_groups_(context.NumGroups()),
        scores_(context.NumGroups()),
        attention_(MakeAttentionScorer(context)) {
    Bands bands = OneOfEach(context);
    bands.b_last = -1;
    bands.b_first = 0;
    name_ = fmt::format("attn_hs:a={}", bands.a_first);
    hidden_ = std::make_unique<HiddenScorer>(context, name_, bands, Use::kZScore);
  }

  std::string Name() const override { return name_; }
  SignalNeeds Needs() const override { return Union(attention_->Needs(), hidden_->Needs()); }
  void Append(int group, std::span<const Position> positions) override {
    scores_.Append(group, positions.size());
    attention_->Append(group, positions);
    hidden_->Append(group, positions);
  }
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    attention_->Observe(groups, step);
    hidden_->Observe(groups, step);
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    scores_.Retain(group, kept);
    attention_->Retain(group, kept);
    hidden_->Retain(group, kept);
  }
  void EndFirstPrefill() override { attention_->EndFirstPrefill(); }
  std::span<const float> Scores(int group) override {
    const std::span<const float> attention = attention_->Scores(group);
    const std::span<const float> hidden = hidden_->Scores(group);
    const std::span<float> scores = scores_[group];
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = attention[i] + hidden[i];
    return scores;
  }
  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(scores_.Save(to));
    EBB_RETURN_IF_ERROR(attention_->SaveState(to));
    return hidden_->SaveState(to);
  }
  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(scores_.Load(from));
    EBB_RETURN_IF_ERROR(attention_->LoadState(from));
    EBB_RETURN_IF_ERROR(hidden_->LoadState(from));
    for (int group = 0; group < num_groups_; ++group) {
      for (Scorer* part : {attention_.get(), hidden_.get()}) {
        if (part->Scores(group).size() != scores_.num_rows(group)) {
          from->Fail("parts of scores of different lengths");
        }
      }
    }
    return from->status();
  }

 private:
  const int num_groups_;
  RowScores scores_;
  std::string name_;
  std::unique_ptr<Scorer> attention_, hidden_;
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
