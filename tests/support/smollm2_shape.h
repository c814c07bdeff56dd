// SmolLM2-135M's.
#ifndef EBB_TESTS_SUPPORT_SMOLLM2_SHAPE_H_
#define EBB_TESTS_SUPPORT_SMOLLM2_SHAPE_H_

#include "ebb/types.h"

namespace ebb {

inline constexpr ModelShape kSmolLm2Shape = {.num_layers = 30,
                                             .num_q_heads = 9,
                                             .num_kv_heads = 3,
                                             .head_dim = 64,
                                             .embed_dim = 576,
                                             .vocab_size = 49152,
                                             .trained_context = 8192};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_SMOLLM2_SHAPE_H_
