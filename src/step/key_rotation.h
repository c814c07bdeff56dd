// Keys that are rotated anew where they are, by ggml's own RoPE.
#ifndef EBB_STEP_KEY_ROTATION_H_
#define EBB_STEP_KEY_ROTATION_H_

#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "ggml-backend.h"
#include "src/attention/attention.h"
#include "src/kv/sequence_cache.h"
#include "src/model/loaded_model.h"

namespace ebb {

struct KeyRotator {
  const LoadedModel& model;
  const AttentionKernel& kernel;
  RowType type;
  ggml_backend_t backend;
};

// Turns the key of each visible row of a stream by so many positions, [rows]. ResourceExhausted
// before any key of the stream turned; Internal when ggml fails.
[[nodiscard]] Status RotateKeysOfStream(const KeyRotator& by, SequenceCache* cache, int layer,
                                        int kv_head, std::span<const Position> turns);

}  // namespace ebb

#endif  // EBB_STEP_KEY_ROTATION_H_
