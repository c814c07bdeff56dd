// A good model of the sizes that tests of model files speak of.
#ifndef EBB_TESTS_SUPPORT_SMALL_MODEL_H_
#define EBB_TESTS_SUPPORT_SMALL_MODEL_H_

#include "tests/support/random_gguf.h"

namespace ebb {

inline RandomGgufOptions SmallOptions() {
  RandomGgufOptions options;
  options.embed_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.head_dim = 16;
  options.feed_forward_dim = 96;
  options.num_tokens = 260;
  options.context = 1024;
  return options;
}

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_SMALL_MODEL_H_
