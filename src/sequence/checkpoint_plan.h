// Chooses the positions in a prompt at which a sequence keeps checkpoints, so that later prompts
// that share a beginning with it, or differ in the last message alone, need to read only their own
// tokens.
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
  // Holds the one of `positions` at which the first message of the prompt ends; 0: the prompt has
  // no messages, or the end of its first message was read before.
  size_t first_message_end = 0;
};
// Plans checkpoints where the first message ends, where the last two messages begin, and shortly
// before the end of the prompt, for the same prompt again. It finds the ends of messages by control
// tokens (is_control), which every chat template writes there. A step of a prompt may end at a
// planned checkpoint without changing bits, because no part of a chunk of `chunk` tokens becomes a
// single token. num_read: tokens of the prompt that were read before.
[[nodiscard]] CheckpointPlan PlanCheckpoints(std::span<const Token> prompt, size_t num_read,
                                             size_t chunk,
                                             const std::function<bool(Token)>& is_control);

// Returns the most checkpoints that a sequence's first prompt has after `num_tokens` of its tokens:
// the planned ones and the ends of chunks.
[[nodiscard]] size_t MostCheckpointsIn(size_t num_tokens, size_t chunk);

}  // namespace ebb

#endif  // EBB_SEQUENCE_CHECKPOINT_PLAN_H_
