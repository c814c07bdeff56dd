// g_l(t) = |h_l(t) - h_l(t-1)|_2, h_l the output of block l ("EpiKV", 002, Eq. 1), and its window
// of the trailing 64 tokens, for some layers. The first token has no g; nor has the first one after
// a roll-back, after which the windows begin empty [ours].
#ifndef EBB_POLICY_SCORERS_HIDDEN_CHANGE_H_
#define EBB_POLICY_SCORERS_HIDDEN_CHANGE_H_

#include <span>
#include <vector>

#include "ebb/signals.h"
#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/policy/scorers/rolling.h"

namespace ebb {

// Layer `of_32` of the paper's model of 32 layers in one of `num_layers`: at the same share of the
// depth, rounded [ours].
[[nodiscard]] int LayerAtDepth(int of_32, int num_layers);

class HiddenChange {
 public:
  // layers: ascending.
  HiddenChange(std::vector<int> layers, int embed_dim);

  // Takes in the tokens of a step one by one; after each, windows() are those of that token.
  // REQUIRES: StepSignals::hidden has the layers.
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

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_HIDDEN_CHANGE_H_
