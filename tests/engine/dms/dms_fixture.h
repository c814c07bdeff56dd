// Models that mark rows, and which rows the rule leaves of a sequence.
#ifndef EBB_TESTS_ENGINE_DMS_DMS_FIXTURE_H_
#define EBB_TESTS_ENGINE_DMS_DMS_FIXTURE_H_

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
        streams_(shape.NumGroups(granularity)),
        window_(window),
        shift_(shift),
        logits_(streams_.size()),
        left_(streams_.size()) {
    for (int layer = 0, stream = 0; layer < shape.num_layers; ++layer) {
      for (int head = 0; head < shape.NumKvHeads(layer); ++head, ++stream) {
        const int group = granularity == Granularity::kToken   ? 0
                          : granularity == Granularity::kLayer ? layer
                                                               : stream;
        streams_[group].emplace_back(layer, head);
      }
    }
  }

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
    for (const auto& [layer, head] : streams_[group]) {
      sum += step.eviction_logits[layer][token * shape_.NumKvHeads(layer) + head];
    }
    return sum;
  }

  const ModelShape shape_;
  std::vector<std::vector<std::pair<int, int>>> streams_;  // [groups]: (layer, kv head) pairs
  const int window_;                                       // tokens
  const int shift_;                                        // tokens
  std::vector<std::vector<float>> logits_;                 // [groups][tokens]
  std::vector<std::set<Position>> left_;                   // [groups]
};

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_DMS_DMS_FIXTURE_H_
