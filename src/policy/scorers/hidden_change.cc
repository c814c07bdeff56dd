#include "src/policy/scorers/hidden_change.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

constexpr int kPaperLayers = 32;

}  // namespace

int LayerAtDepth(int of_32, int num_layers) {
  const double at = static_cast<double>(of_32) * num_layers / kPaperLayers;
  return std::clamp(static_cast<int>(std::lround(at)), 0, std::max(0, num_layers - 1));
}

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
  const std::vector<float> last = from->Numbers<float>();
  if (last.size() != last_.size()) {
    from->Fail("hidden states of another width");
  } else {
    last_ = last;
  }
  next_ = from->Number<Position>();
  return from->status();
}

}  // namespace ebb
