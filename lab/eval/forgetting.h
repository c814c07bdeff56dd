// Follows a session that evicts rows: stores every key and value that the session ever computed,
// and measures what the evicted ones cost its decode steps. It reads the session's own signals, so
// queries, keys and values are those of the step itself.
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

// Returns the signals of the session's steps that a shadow reads.
[[nodiscard]] SignalNeeds ForgettingNeeds();

// ForgettingCosts collects costs and summarises them, in 20 bytes per (step, layer, head).
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
  // Begins to follow a session. REQUIRES: all arguments outlive the shadow; the session was opened
  // with ForgettingNeeds() among its extra_signals, and has no tokens yet.
  ForgettingShadow(const Session& session, const Model& model, ForgettingCosts* costs);

  // Records a chunk of a prefill. Called after each chunk.
  void AddPrefill();
  // BeforeDecode() records which rows a decode step sees, which is known only before the step;
  // AfterDecode() then measures the step.
  void BeforeDecode();
  void AfterDecode();

 private:
  void AppendRows();
  void MeasureLayer(int layer);

  // Stream names the (layer, kv head) of stored keys and values; layers may have different numbers
  // of heads.
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
  std::vector<Stream> streams_;                    // layer by layer
  std::vector<std::vector<float>> keys_, values_;  // [streams][num_rows, head_dim]
  std::vector<std::vector<uint8_t>> is_left_;      // by group, [num_rows]
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_FORGETTING_H_
