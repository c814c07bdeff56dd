// Chooses where in a prompt a sequence keeps checkpoints, so that another prompt which begins alike
// and one whose last message differs read only their own tokens.
#ifndef EBB_SEQUENCE_CHECKPOINT_PLAN_H_
#define EBB_SEQUENCE_CHECKPOINT_PLAN_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace ebb {

struct CheckpointPlan {
  std::vector<size_t> positions;  // ascending; how many tokens of the prompt stand before each
  // The first of them, if the first message of the prompt ends there; 0: the prompt has no
  // messages, or the end of its first one is read already.
  size_t first_message_end = 0;
};
// Plans checkpoints where the first message ends, where the last two begin, and shortly before the
// end, for the same prompt again.
// Control tokens stand at the ends of messages in every chat template. Steps of a prompt may end at
// a checkpoint without changing bits: no part of a chunk of `chunk` tokens is a single token.
// num_read: the tokens of the prompt that are read already.
[[nodiscard]] CheckpointPlan PlanCheckpoints(std::span<const Token> prompt, size_t num_read,
                                             size_t chunk,
                                             const std::function<bool(Token)>& is_control);

// Returns the most checkpoints in a sequence's first prompt after so many tokens of it: those that
// were planned, and the ends of chunks.
[[nodiscard]] size_t MostCheckpointsIn(size_t num_tokens, size_t chunk);

}  // namespace ebb

#endif  // EBB_SEQUENCE_CHECKPOINT_PLAN_H_
