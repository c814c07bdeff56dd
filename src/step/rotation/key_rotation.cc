#include "src/step/rotation/key_rotation.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "ggml.h"
#include "src/base/ggml_deleter.h"

namespace ebb {
namespace {

// kLongRun is the number of rows, all rotated by the same amount, from which on they get their own
// graph node.
constexpr int64_t kLongRun = 32;

// TurnedRows is a range of adjacent rows to rotate: all by one amount, or each by its own.
struct TurnedRows {
  int64_t begin;
  int64_t end;
  bool alike;
};

std::vector<TurnedRows> PartsOf(std::span<const Position> turns) {
  std::vector<TurnedRows> parts;
  const auto num_rows = static_cast<int64_t>(turns.size());
  for (int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    while (end < num_rows && turns[end] == turns[begin]) ++end;
    if (turns[begin] == 0) continue;
    const bool alike = end - begin >= kLongRun;
    const bool joins = !alike && !parts.empty() && !parts.back().alike && parts.back().end == begin;
    if (joins) {
      parts.back().end = end;
    } else {
      parts.push_back({begin, end, alike});
    }
  }
  return parts;
}

// Adds a node that rotates the part's keys in place. ggml computes the angles once for all heads of
// a token, so that rows with the same amount are passed as heads of one token.
ggml_tensor* TurnNode(ggml_context* ctx, const LoadedModel& model, int layer, TurnedRows part,
                      ggml_tensor* keys, ggml_tensor* turns) {
  const Hyperparameters& h = model.hparams;
  const int64_t num_rows = part.end - part.begin;
  const int64_t tokens = part.alike ? 1 : num_rows, heads = num_rows / tokens;
  ggml_tensor* rows = ggml_view_3d(ctx, keys, h.head_dim, heads, tokens, keys->nb[1],
                                   keys->nb[1] * heads, keys->nb[1] * part.begin);
  ggml_tensor* by = ggml_view_1d(ctx, turns, tokens, turns->nb[0] * part.begin);
  // YaRN's RoPE also multiplies by a constant. Stored keys contain it already, so that it is
  // divided out.
  const float magnitude =
      h.yarn_ext_factor == 0 ? 1.0f : 1.0f + 0.1f * std::log(1.0f / h.rope_frequency_scale);
  return ggml_rope_ext_inplace(ctx, rows, by, model.layers[layer].rope_factors, h.rope_dims,
                               h.rope_mode, h.rope_original_context, h.rope_base,
                               h.rope_frequency_scale, h.yarn_ext_factor, 1.0f / magnitude,
                               h.yarn_beta_fast, h.yarn_beta_slow);
}

}  // namespace

// Rotates by RoPE, whose rotations add up: a key at position a, rotated by b, is the key at a + b,
// also with scaled frequencies.
Status RotateKeysOfStream(const KeyRotator& by, int layer, std::span<std::byte* const> rows,
                          std::span<const Position> turns) try {
  const int head_dim = by.model.hparams.head_dim;
  const std::vector<TurnedRows> parts = PartsOf(turns);
  if (parts.empty()) return OkStatus();
  const int64_t first = parts.front().begin;
  const int64_t num_rows = parts.back().end - first;
  const size_t tensors = 2 + 3 * parts.size();
  // One ggml context holds the keys, the amounts and the graph.
  const size_t num_bytes = (sizeof(float) * head_dim + sizeof(Position)) * num_rows +
                           tensors * (ggml_tensor_overhead() + GGML_MEM_ALIGN) +
                           ggml_graph_overhead_custom(2 * tensors, false) + 4096;
  // Allocates here, because ggml would abort the program if its own allocation failed.
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
  const std::unique_ptr<ggml_context, GgmlDeleter> ctx(
      ggml_init({.mem_size = num_bytes, .mem_buffer = memory.get(), .no_alloc = false}));
  ggml_tensor* keys = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, head_dim, num_rows);
  ggml_tensor* positions = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, num_rows);
  std::memcpy(positions->data, turns.data() + first, num_rows * sizeof(Position));
  ggml_cgraph* graph = ggml_new_graph_custom(ctx.get(), 2 * tensors, false);
  for (const TurnedRows& part : parts) {
    const TurnedRows at = {part.begin - first, part.end - first, part.alike};
    ggml_build_forward_expand(graph, TurnNode(ctx.get(), by.model, layer, at, keys, positions));
  }
  const auto for_each_key = [&](auto do_key) {
    for (const TurnedRows& part : parts) {
      for (int64_t row = part.begin; row < part.end; ++row) {
        do_key(rows[row], static_cast<float*>(keys->data) + (row - first) * head_dim);
      }
    }
  };
  for_each_key([&](std::byte* key, float* as_floats) {
    by.kernel.load_row(by.type, key, as_floats, head_dim);
  });
  const ggml_status status = ggml_backend_graph_compute(by.backend, graph);
  if (status != GGML_STATUS_SUCCESS) {
    return Internal(std::string("ggml failed to rotate keys: ") + ggml_status_to_string(status));
  }
  for_each_key([&](std::byte* key, const float* as_floats) {
    by.kernel.store_row(by.type, as_floats, key, head_dim);
  });
  return OkStatus();
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory to re-rotate keys");
}

}  // namespace ebb
