#ifndef EBB_POLICY_SCORERS_SHAPE_FOR_TEST_H_
#define EBB_POLICY_SCORERS_SHAPE_FOR_TEST_H_

#include "ebb/types.h"

namespace ebb {

inline constexpr ModelShape kTwoLayers = {.num_layers = 2, .num_q_heads = 4, .num_kv_heads = 2};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_SHAPE_FOR_TEST_H_
