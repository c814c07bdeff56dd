// RotateKeysOfStream() re-rotates keys in place, by ggml's RoPE.
#ifndef EBB_STEP_ROTATION_KEY_ROTATION_H_
#define EBB_STEP_ROTATION_KEY_ROTATION_H_

#include <cstddef>
#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "ggml-backend.h"
#include "src/attention/attention.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

struct KeyRotator {
  const LoadedModel& model;
  const AttentionKernel& kernel;
  RowType type;
  ggml_backend_t backend;
};

// Rotates keys[i], a key of the layer, by turns[i] positions; keys[i] may be null if turns[i] is 0.
// Errors: OutOfMemory, before any key was rotated; Internal if ggml fails.
[[nodiscard]] Status RotateKeysOfStream(const KeyRotator& by, int layer,
                                        std::span<std::byte* const> keys,
                                        std::span<const Position> turns);

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_KEY_ROTATION_H_
