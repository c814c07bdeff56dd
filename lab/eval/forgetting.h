// ForgettingShadow measures the error that evicted rows cause in a session's decode steps. It keeps
// every key and value that the session has computed, and reads the session's own signals, so that
// queries, keys and values are those of the steps themselves.
#ifndef EBB_LAB_EVAL_FORGETTING_H_
#define EBB_LAB_EVAL_FORGETTING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/forgetting.h"
#include "ebb/signals.h"
#include "ebb/types.h"

namespace ebb {

// Returns the signals that a shadow needs from its session.
[[nodiscard]] SignalNeeds ForgettingNeeds();

// ForgettingCosts collects costs, in 20 bytes per (step, layer, head), and summarises them.
class ForgettingCosts {
 public:
  ForgettingCosts(int num_layers, int num_heads)
      : num_heads_(num_heads), heads_(static_cast<size_t>(num_layers) * num_heads) {}
  void Add(int layer, int head, const ForgettingCost& cost);
  void EndStep();
  [[nodiscard]] ForgettingReport Report() const;

 private:
  struct Costs {
    std::vector<float> error, relative_error, mass, eq4, bound;
  };
  const int num_heads_;
  std::vector<Costs> heads_;  // [layers * query heads]
  ForgettingReport counts_;
  double step_mass_ = 0;
  double step_error_ = 0;
  int64_t step_costs_ = 0;
};

class ForgettingShadow {
 public:
  // Begins to follow a session. REQUIRES: all arguments outlive this; the session was opened with
  // ForgettingNeeds() among its extra_signals, and has no tokens yet.
  ForgettingShadow(const Session& session, const Model& model, ForgettingCosts* costs);

  // Keeps the rows of a prefill's chunk. Must be called after each chunk.
  void AddPrefill();
  // BeforeDecode() must be called before each decode step: it records which rows the step will see.
  // AfterDecode() must be called after the step, and measures it.
  void BeforeDecode();
  void AfterDecode();

 private:
  void AppendRows();
  void MeasureLayer(int layer);

  // Stream is the (layer, kv head) of some keys and values; layers may have different numbers of
  // heads.
  struct Stream {
    int layer = 0;
    int kv_head = 0;
    int group = 0;
  };

  const Session& session_;
  const ModelShape shape_;
  const double scale_;
  ForgettingCosts* const costs_;
  int num_rows_ = 0;
  std::vector<Stream> streams_;                    // in the order of layers
  std::vector<std::vector<float>> keys_, values_;  // [streams][rows, head_dim]
  std::vector<std::vector<uint8_t>> is_left_;      // [groups][rows]: 0: evicted
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_FORGETTING_H_
