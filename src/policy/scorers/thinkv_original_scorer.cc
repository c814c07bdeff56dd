// Scores rows by the eviction of ThinKV (Ramachandran et al., 2026), as far as second-hand sources
// describe it; no code was found. Thoughts are segments of tau = 128 tokens, typed by the sparsity
// of attention: the share of rows that receive less than 1 % of the largest mass that a row of the
// head receives [ours: 1 %, and all layers instead of those whose sparsity has three modes]. When a
// transition thought ends, every thought before it moves one step down the ladder {64, 32, 16, 8,
// 4} of rows that it may keep: the rows nearest to the centres of a k-means clustering of their
// keys, after RoPE.
//
// [ours: the keys are those of all kv heads of one layer, in the middle unless given; centres start
// at evenly spaced rows and move 4 times; rows that stay are ranked by cumulative attention; among
// distances that differ by less than a thousandth the first counts, since a centre between two rows
// is as near to both. ThinKV's 4-bit and 2-bit formats are not part of eviction: --t2 has them.]
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/scorers/segment_scorer.h"
#include "src/policy/scorers/stored_keys.h"

namespace ebb {
namespace {

constexpr int kDefaultTau = 128;
constexpr size_t kLadder[] = {64, 32, 16, 8, 4};
constexpr int kRounds = 4;
constexpr float kSparse = 0.01f;
constexpr float kNearer = 0.999f;  // of a squared distance

// Rungs holds how many steps each closed segment of a group has moved down the ladder.
struct Rungs {
  std::vector<uint8_t> of;

  void Save(StateWriter* to) const { to->Numbers<uint8_t>(of); }
  [[nodiscard]] Status Load(StateReader* from) {
    of = from->Numbers<uint8_t>();
    return from->status();
  }
};

class ThinkvOriginalScorer final : public AttentionSegmentScorer {
 public:
  explicit ThinkvOriginalScorer(const ScorerContext& context)
      : AttentionSegmentScorer(context, context.params.Int("tau", kDefaultTau)),
        shape_(context.shape),
        tau_(context.params.Int("tau", kDefaultTau)),
        layer_(std::min(context.params.Int("layer", shape_.num_layers / 2), shape_.num_layers - 1)),
        dim_(size_t(shape_.NumKvHeads(layer_)) * shape_.head_dim),
        keys_(this, {}, static_cast<int>(dim_)),
        rungs_(this, num_groups()) {}

  std::string Name() const override {
    return fmt::format("thinkv_original:tau={},layer={}", tau_, layer_);
  }
  SignalNeeds Needs() const override {
    return Union(AttentionSegmentScorer::Needs(), {.keys = true});
  }
  bool ComparesKeys() const override { return true; }
  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    for (int token = 0; token < step.num_tokens; ++token) {
      keys_.Store(group, step.num_tokens - token, step.keys[layer_].subspan(token * dim_, dim_));
    }
    AttentionSegmentScorer::ObserveGroup(group, signals, step);
  }

 protected:
  void CheckLoaded(StateReader* from) const override {
    AttentionSegmentScorer::CheckLoaded(from);
    for (int group = 0; group < num_groups(); ++group) {
      const std::vector<uint8_t>& rungs = rungs_[group].of;
      if (rungs.size() > static_cast<size_t>(segments(group).num_closed())) {
        from->Fail("steps of segments that are not there");
      }
      if (std::ranges::any_of(rungs, [](uint8_t rung) { return rung > std::size(kLadder); })) {
        from->Fail("a segment below the last step");
      }
    }
  }

  float Density(std::span<const float> mass) const override {
    float most = 0;
    for (const float m : mass) most = m > most ? m : most;
    size_t num_dense = 0;
    const float threshold = kSparse * most;
    for (const float m : mass) num_dense += m >= threshold ? 1 : 0;
    return static_cast<float>(num_dense) / static_cast<float>(std::max<size_t>(1, mass.size()));
  }

  void Reopen(int group, int num_closed) override {
    std::vector<uint8_t>& rungs = rungs_[group].of;
    rungs.resize(std::min(rungs.size(), static_cast<size_t>(num_closed)));
  }

  void ChooseRows(int group, int first_new) override {
    const int num_closed = segments(group).num_closed();
    std::vector<uint8_t>& rungs = rungs_[group].of;
    rungs.resize(num_closed, 0);
    int last_transition = -1;
    for (int segment = first_new; segment < num_closed; ++segment) {
      if (segments(group).TypeOf(segment) == Thought::kTransition) last_transition = segment;
    }
    for (int segment = 0; segment < last_transition; ++segment) {
      if (rungs[segment] == std::size(kLadder)) continue;
      KeepNearest(group, RowsOf(group, segment), kLadder[rungs[segment]++]);
    }
  }

 private:
  // Keeps `count` of the rows that still have room: those nearest to the centres.
  void KeepNearest(int group, const RowRange& rows, size_t count) {
    members_.clear();
    for (size_t row = rows.begin; row < rows.end; ++row) {
      if (rooms(group)[row] > 0) members_.push_back(row);
    }
    if (members_.size() <= count) return;
    points_.resize(members_.size() * dim_);
    for (size_t m = 0; m < members_.size(); ++m) {
      keys_.Read(group, members_[m], 1.0f, std::span(points_).subspan(m * dim_, dim_));
    }
    FindCentres(count);
    for (const size_t member : members_) rooms(group)[member] = 0;
    for (size_t c = 0; c < count; ++c) {
      size_t nearest = members_.size();
      float least = 0;
      for (size_t m = 0; m < members_.size(); ++m) {
        if (rooms(group)[members_[m]] > 0) continue;  // each centre keeps a row of its own
        const float distance = Distance(m, c);
        if (nearest == members_.size() || distance < kNearer * least) {
          nearest = m;
          least = distance;
        }
      }
      rooms(group)[members_[nearest]] = 1;
    }
  }

  void FindCentres(size_t count) {
    centres_.resize(count * dim_);
    for (size_t c = 0; c < count; ++c) {
      const size_t m = c * members_.size() / count;
      std::copy_n(points_.begin() + m * dim_, dim_, centres_.begin() + c * dim_);
    }
    nearest_.resize(members_.size());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t m = 0; m < members_.size(); ++m) {
        float least = 0;
        nearest_[m] = 0;
        for (size_t c = 0; c < count; ++c) {
          const float distance = Distance(m, c);
          if (c == 0 || distance < kNearer * least) {
            nearest_[m] = c;
            least = distance;
          }
        }
      }
      MoveCentres(count);
    }
  }

  // Moves each centre to the mean of its rows; a centre that is nearest to no row stays at the
  // place where it is.
  void MoveCentres(size_t count) {
    for (size_t c = 0; c < count; ++c) {
      const auto num_members = std::count(nearest_.begin(), nearest_.end(), c);
      if (num_members == 0) continue;
      float* centre = centres_.data() + c * dim_;
      std::fill_n(centre, dim_, 0.0f);
      for (size_t m = 0; m < members_.size(); ++m) {
        if (nearest_[m] != c) continue;
        for (size_t d = 0; d < dim_; ++d) centre[d] += points_[m * dim_ + d];
      }
      for (size_t d = 0; d < dim_; ++d) centre[d] /= static_cast<float>(num_members);
    }
  }

  [[nodiscard]] float Distance(size_t member, size_t centre) const {
    constexpr size_t kLanes = 8;
    const float* a = points_.data() + member * dim_;
    const float* b = centres_.data() + centre * dim_;
    float lanes[kLanes] = {};
    size_t d = 0;
    for (; d + kLanes <= dim_; d += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float difference = a[d + lane] - b[d + lane];
        lanes[lane] += difference * difference;
      }
    }
    for (; d < dim_; ++d) lanes[0] += (a[d] - b[d]) * (a[d] - b[d]);
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
  }

  const ModelShape shape_;
  const int tau_;
  const int layer_;
  const size_t dim_;        // of the layer's keys together
  StoredKeys keys_;         // of each group's rows
  SavedList<Rungs> rungs_;  // [num_groups]
  std::vector<size_t> members_, nearest_;
  std::vector<float> points_, centres_;  // [members, dim], [count, dim]
};

}  // namespace

std::unique_ptr<Scorer> MakeThinkvOriginalScorer(const ScorerContext& context) {
  return std::make_unique<ThinkvOriginalScorer>(context);
}

}  // namespace ebb
