// Models that mark rows, and which rows the rule leaves of a sequence.
#ifndef EBB_TESTS_ENGINE_DMS_FIXTURE_H_
#define EBB_TESTS_ENGINE_DMS_FIXTURE_H_

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace ebb {

inline constexpr int kMarksWindow = 24;
inline const PolicySpec kDms = {.name = "dms"};

using Marks = RandomGgufOptions::Marks;

inline RandomGgufOptions MarkingModelOptions(int shift, Marks marks = Marks::kQueryChannel) {
  RandomGgufOptions options = SmallModelOptions();
  options.eviction_window = kMarksWindow;
  options.eviction_shift = shift;
  options.marks = marks;
  return options;
}

// Each is written and loaded once.
inline std::shared_ptr<const Model> MarkingModel(int shift = 1,
                                                 Marks marks = Marks::kQueryChannel) {
  static std::map<std::pair<int, Marks>, std::shared_ptr<const Model>> models;
  std::shared_ptr<const Model>& model = models[{shift, marks}];
  if (model == nullptr) model = RandomModel(MarkingModelOptions(shift, marks));
  return model;
}

inline std::vector<std::vector<Position>> VisibleRows(const Session& session, int num_groups) {
  std::vector<std::vector<Position>> visible;
  for (int group = 0; group < num_groups; ++group) {
    const auto positions = session.visible_positions(group);
    visible.emplace_back(positions.begin(), positions.end());
  }
  return visible;
}

inline int NumGroups(const Session& session) {
  return MarkingModel()->shape().NumGroups(session.policy().granularity);
}

inline std::vector<std::vector<Position>> VisibleRows(const Session& session) {
  return VisibleRows(session, NumGroups(session));
}

// The rows that the rule leaves, from the logits that steps show: a row goes when the next token is
// more than `window` ahead of it and the logit of the token `shift` ahead of it is above 0.
class MarksRule {
 public:
  MarksRule(const ModelShape& shape, Granularity granularity, int window, int shift)
      : shape_(shape),
        streams_(shape.num_layers * shape.num_kv_heads / shape.NumGroups(granularity)),
        window_(window),
        shift_(shift),
        logits_(shape.NumGroups(granularity)),
        left_(logits_.size()) {}

  // After each step.
  void See(const StepSignals& step) {
    for (int t = 0; t < step.num_tokens; ++t) {
      for (size_t group = 0; group < logits_.size(); ++group) {
        logits_[group].push_back(MeanLogit(static_cast<int>(group), t, step));
        left_[group].insert(step.first_position + t);
      }
    }
    const auto next = static_cast<Position>(logits_.front().size());
    for (size_t group = 0; group < logits_.size(); ++group) {
      std::erase_if(left_[group], [&](Position p) {
        const Position decides = p + shift_;
        return decides < next && logits_[group][decides] > 0 && next - p > window_;
      });
    }
  }

  void TruncateTo(Position end) {
    for (auto& logits : logits_) logits.resize(end);
    for (auto& left : left_) left.erase(left.lower_bound(end), left.end());
  }

  [[nodiscard]] std::vector<std::vector<Position>> Visible() const {
    std::vector<std::vector<Position>> visible;
    for (const auto& left : left_) visible.emplace_back(left.begin(), left.end());
    return visible;
  }

 private:
  // In the order in which the policy adds them up.
  [[nodiscard]] float MeanLogit(int group, int token, const StepSignals& step) const {
    float sum = 0;
    for (int s = group * streams_; s < (group + 1) * streams_; ++s) {
      sum += step.eviction_logits[s / shape_.num_kv_heads]
                                 [token * shape_.num_kv_heads + s % shape_.num_kv_heads];
    }
    return sum;
  }

  const ModelShape shape_;
  const int streams_;                       // (layer, kv head) pairs of a group
  const int window_;                        // tokens
  const int shift_;                         // tokens
  std::vector<std::vector<float>> logits_;  // [groups][tokens]
  std::vector<std::set<Position>> left_;    // [groups]
};

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_DMS_FIXTURE_H_
