#include "ebb/fit.h"
#include "src/model/loaded_model.h"

namespace ebb {

FitModel FitModelOf(const Model& model) {
  return {.shape = model.shape(),
          .feed_forward_dim = model.loaded().hparams.feed_forward_dim,
          .weight_bytes = model.weight_bytes(),
          .expert_bytes = model.loaded().expert_bytes,
          .expert_share = model.loaded().expert_share,
          .lookup_bytes = model.loaded().lookup_bytes,
          .state_bytes = model.loaded().hparams.state_bytes};
}

}  // namespace ebb
