// Scores rows as R-KV does (Cai et al., 2025, as in its published code): per layer and kv head, for
// n rows and the last 8 queries, logits = max over the head's query heads, before softmax,
//   a = maxpool7(mean over those queries of softmax(logits over all rows but the last 8))
//   C = cosine similarity of the keys, after RoPE; its diagonal is 0
//   for each row i: j* = the last j with C[i,j] > 0.5, else 0;  C[i,j*] = 0
//   r = softmax over j of mean over i of C[i,j]
//   score = lambda a - (1 - lambda) r;  the last 8 rows stay in any case
// lambda is 0.07, the value in the code (its README says 0.1). A row without a similar row zeroes a
// number in column 0, which protects row 0 by accident; this scorer does the same, because rankings
// depend on it. The published code stores n^2 similarities. Here the means come from the sum of all
// keys, and each j* from a search among the rows that are new since the last search, so memory is
// O(n).
//
// At layer and token granularity the score is the mean over the (layer, kv head) pairs [ours]. The
// last 8 rows score 1, above all others [ours: placements other than its own need a number].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/stored_keys.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

constexpr size_t kWindow = 8;
constexpr size_t kPoolReach = 3;  // to each side: 7 rows
constexpr float kDefaultLambda = 0.07f;
constexpr float kSimilar = 0.5f;
constexpr size_t kLanes = 8;

// Sums in lanes of fixed order, because the compiler may not reorder a float sum and could not
// vectorise it otherwise.
float Dot(const float* a, const float* b, size_t dim) {
  float lanes[kLanes] = {};
  size_t c = 0;
  for (; c + kLanes <= dim; c += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[c + lane] * b[c + lane];
  }
  for (; c < dim; ++c) lanes[0] += a[c] * b[c];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void Softmax(std::span<float> x) {
  if (x.empty()) return;
  const float most = *std::ranges::max_element(x);
  float sum = 0;
  for (float& v : x) sum += v = std::exp(v - most);
  for (float& v : x) v /= sum;
}

class RkvScorer final : public ColumnScorer {
 public:
  explicit RkvScorer(const ScorerContext& context)
      : ColumnScorer(context),
        lambda_(context.params.Number("lambda", kDefaultLambda)),
        similar_(this, FirstStreams()),
        keys_(this, FirstStreams(), layout_.head_dim()),
        stale_(num_groups(), 0) {}

  std::string Name() const override { return fmt::format("rkv:lambda={:g}", lambda_); }
  SignalNeeds Needs() const override {
    return {.num_recent_queries = static_cast<int>(kWindow), .keys = true};
  }

  bool ComparesKeys() const override { return true; }

  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
      for (int token = 0; token < step.num_tokens; ++token) {
        keys_.Store(stream, step.num_tokens - token, VectorOf(step.keys, layout_, stream, token));
      }
    }
    queries_ = step.recent_queries;
    num_queries_ = std::min<size_t>(step.num_recent, kWindow);
    num_shown_ = step.num_recent;
    stale_[group] = 1;
  }

  // Removes rows. Scores that are not computed yet stay uncomputed if the newest rows are removed,
  // since the stored queries may belong to a step that is being rolled back. Rows that expire from
  // a layer's window are removed before the placement asks for the step's scores, which are then
  // computed among the remaining rows.
  void Retain(int group, std::span<const uint32_t> kept) override {
    const bool newest_went = kept.empty() || size_t{kept.back()} + 1 != scores_.num_rows(group);
    ColumnScorer::Retain(group, kept);
    if (newest_went) stale_[group] = 0;
  }

  std::span<const float> Scores(int group) override {
    if (stale_[group] != 0) Score(group);
    stale_[group] = 0;
    return scores_[group];
  }

 protected:
  // Begins a step. Its queries replace the stored ones, so scores that were not computed from those
  // never will be.
  void InitRows(int group, std::span<const Position> positions) override {
    std::ranges::fill(stale_, 0);
    for (float& serial : serials_[group].last(positions.size())) serial = next_serial_[group]++;
  }

 private:
  // Returns the group's first stream; its streams end before Begin(group + 1).
  [[nodiscard]] int Begin(int group) const { return layout_.FirstStreamOf(group); }

  void Score(int group) {
    const std::span<float> scores = scores_[group];
    const size_t num_scored = scores.size() - std::min(scores.size(), kWindow);
    std::ranges::fill(scores.first(num_scored), 0.0f);
    std::ranges::fill(scores.subspan(num_scored), 1.0f);
    if (num_scored == 0) return;
    const auto num_streams = static_cast<float>(layout_.NumStreamsOf(group));
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
      FindAttention(stream, num_scored);
      FindRedundancy(group, stream, scores.size());
      for (size_t i = 0; i < num_scored; ++i) {
        const float score = lambda_ * Pooled(i, num_scored) - (1 - lambda_) * redundancy_[i];
        scores[i] += FiniteOr0(score) / num_streams;
      }
    }
    searched_[group] = serials_[group].back();
  }

  // Computes the attention of the stored queries into attention_, before pooling.
  void FindAttention(int stream, size_t num_scored) {
    const size_t dim = layout_.head_dim();
    const int layer = layout_.LayerOf(stream);
    const size_t per_kv = layout_.QueryHeadsPerKvHead(layer);
    const size_t first_head = layout_.KvHeadOf(stream) * per_kv;
    const size_t first_query = num_shown_ - num_queries_;
    logits_.resize(num_queries_ * num_scored);
    row_.resize(dim);
    for (size_t i = 0; i < num_scored; ++i) {
      keys_.Read(stream, i, 1.0f / std::sqrt(static_cast<float>(dim)), row_);
      for (size_t q = 0; q < num_queries_; ++q) {
        float most = -std::numeric_limits<float>::infinity();
        for (size_t h = 0; h < per_kv; ++h) {
          const size_t at = ((first_query + q) * layout_.num_q_heads() + first_head + h) * dim;
          most = std::max(most, Dot(queries_[layer].data() + at, row_.data(), dim));
        }
        logits_[q * num_scored + i] = most;
      }
    }
    attention_.assign(num_scored, 0.0f);
    for (size_t q = 0; q < num_queries_; ++q) {
      const std::span<float> of_query = std::span(logits_).subspan(q * num_scored, num_scored);
      Softmax(of_query);
      AddMass(of_query, 1.0f / static_cast<float>(num_queries_), attention_);
    }
  }

  [[nodiscard]] float Pooled(size_t row, size_t num_scored) const {
    const size_t begin = row - std::min(row, kPoolReach);
    const size_t end = std::min(row + kPoolReach + 1, num_scored);
    return *std::max_element(attention_.begin() + begin, attention_.begin() + end);
  }

  void FindRedundancy(int group, int stream, size_t num_rows) {
    const size_t dim = layout_.head_dim();
    const int16_t* units = keys_.units(stream);
    std::vector<int64_t>& sum = key_sum_;
    sum.assign(dim, 0);
    for (size_t i = 0; i < num_rows; ++i) {
      for (size_t c = 0; c < dim; ++c) sum[c] += units[i * dim + c];
    }
    redundancy_.resize(num_rows);
    for (size_t j = 0; j < num_rows; ++j) {
      int64_t of_all = 0;
      for (size_t c = 0; c < dim; ++c) of_all += sum[c] * units[j * dim + c];
      redundancy_[j] =
          StoredKeys::Cosine(of_all - DotOfUnits(units + j * dim, units + j * dim, dim));
    }
    for (size_t i = 0; i < num_rows; ++i) {
      const size_t j = LastSimilar(group, stream, i);
      if (i != j) redundancy_[j] -= CosineOf(units, i, j);
    }
    for (float& r : redundancy_) r /= static_cast<float>(num_rows);
    Softmax(redundancy_);
  }

  [[nodiscard]] float CosineOf(const int16_t* units, size_t i, size_t j) const {
    const size_t dim = layout_.head_dim();
    return StoredKeys::Cosine(DotOfUnits(units + i * dim, units + j * dim, dim));
  }

  // Returns j* of row i: the last row that is similar to it, or 0. A row of the last search
  // remembers its result, so only newer rows are compared; if the remembered row was removed, all
  // rows before it.
  size_t LastSimilar(int group, int stream, size_t i) {
    const std::span<const float> serials = serials_[group];
    float& known = similar_[stream][i];
    const size_t num_rows = serials.size();
    const bool is_new = serials[i] > searched_[group];
    const auto first_new = std::ranges::upper_bound(serials, searched_[group]);
    size_t found = SearchDown(stream, i, num_rows, is_new ? 0 : first_new - serials.begin());
    if (found == 0 && !is_new && known > 0) {
      const auto at = std::ranges::lower_bound(serials, known);
      found = at - serials.begin();
      if (at == serials.end() || *at != known) found = SearchDown(stream, i, found, 0);
    }
    known = found == 0 ? 0.0f : serials[found];
    return found;
  }

  // Returns the last row j with begin <= j < end and j >= 1 that is similar to row i; 0 if there is
  // none.
  [[nodiscard]] size_t SearchDown(int stream, size_t i, size_t end, size_t begin) const {
    const size_t dim = layout_.head_dim();
    const int16_t* units = keys_.units(stream);
    const auto threshold = static_cast<int32_t>(kSimilar * StoredKeys::kOne * StoredKeys::kOne);
    for (size_t j = end; j-- > std::max<size_t>(begin, 1);) {
      if (j != i && DotOfUnits(units + i * dim, units + j * dim, dim) > threshold) return j;
    }
    return 0;
  }

  const float lambda_;
  Column<float> serials_{this};  // of a group's rows, from 1 on, exact up to 2^24
  Column<float> similar_;        // [streams], serial of the last similar row, 0: none
  GroupNumbers<float> next_serial_{this, 1};
  GroupNumbers<float> searched_{this};  // the newest row of the last search
  StoredKeys keys_;                     // of each stream
  std::vector<uint8_t> stale_;          // [num_groups]: scores are of an earlier step
  // Refers to StepSignals::recent_queries of the last step, by layer: [num_shown_, query heads,
  // head_dim], oldest first. Scores are computed from the last num_queries_ of the num_shown_.
  std::vector<std::span<const float>> queries_;
  size_t num_shown_ = 0;
  size_t num_queries_ = 0;
  std::vector<float> logits_, row_, attention_, redundancy_;
  std::vector<int64_t> key_sum_;
};

}  // namespace

std::unique_ptr<Scorer> MakeRkvScorer(const ScorerContext& context) {
  return std::make_unique<RkvScorer>(context);
}

}  // namespace ebb
