// The plain words that every part of ebb shares. See docs/glossary.md.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_TYPES_H_
#define EBB_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

using Token = int32_t;
// The index of a token in its sequence, from 0, and its RoPE position until keys are re-rotated.
using Position = int32_t;

// The rows from `begin` up to, but not including, `end`.
struct RowRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const RowRange&) const = default;
};

// The number format of full-precision rows.
enum class RowType { kF16, kBf16, kF32 };

// Which (layer, kv head) pairs share one token table: all of them, those of a layer, or none.
enum class Granularity { kToken, kLayer, kHead };

// The place of a row: fast memory, capacity memory, compressed, evicted.
enum class Tier : uint8_t { kT0 = 0, kT1, kT2, kT3 };
inline constexpr int kNumTiers = 4;

// A prefill step reads given text; a decode step reads the model's own last token.
enum class StepKind { kPrefill, kDecode };

// Whether a token was given (prompt, user turns) or generated.
enum class TokenKind : uint8_t { kGiven = 0, kGenerated = 1 };

[[nodiscard]] size_t RowTypeBytes(RowType type);  // bytes of one element: 2, 2, 4
[[nodiscard]] std::string_view RowTypeName(RowType type);
[[nodiscard]] Result<RowType> ParseRowType(std::string_view name);
[[nodiscard]] std::string_view GranularityName(Granularity granularity);
[[nodiscard]] Result<Granularity> ParseGranularity(std::string_view name);
[[nodiscard]] std::string_view TierName(Tier tier);
// Reads a size: a number, which may have a fraction or an exponent, and a unit in letters of either
// case. KiB, MiB, GiB, TiB, or Ki, Mi, Gi, Ti, are powers of 1024; kB, MB, GB, TB, or k, M, G, T,
// are powers of 1000; B or nothing are bytes. "512MiB", "1.5Gi", "2G", "1e9". A part of a byte is
// cut off. Fails on anything else, on less than 1 byte and on 2^64 and more.
[[nodiscard]] Result<uint64_t> ParseBytes(std::string_view text);

// The sizes of a model that the cache and the policies need to know. Layers may differ in their kv
// heads and in their windows, in nothing else: query heads and head size are those of every layer.
struct ModelShape {
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;  // of every layer; where kv_heads_by_layer differ, the most of any
  int head_dim = 0;      // of keys and of values, in elements
  // false: latent attention, where the value of a row is the beginning of its key and is not stored
  // a second time.
  bool has_values = true;
  int embed_dim = 0;  // of the hidden state
  int vocab_size = 0;
  int trained_context = 0;  // in tokens
  // [num_layers], each a divisor of num_q_heads; empty: num_kv_heads in every layer.
  std::vector<int> kv_heads_by_layer = {};
  // Sliding windows in tokens, [num_layers]: the row at position p is seen by the queries at p to
  // p + window - 1; 0: by every query from p on. Empty: no layer has a window.
  std::vector<int> windows = {};
  // The layer whose rows each attention of a token reads, in the order of the model; the first one
  // that names a layer stores its row. Layers appear in their order; later attentions may read a
  // layer again. Empty: each layer is read once.
  std::vector<int> layers_read = {};

  [[nodiscard]] int NumKvHeads(int layer) const {
    return kv_heads_by_layer.empty() ? num_kv_heads : kv_heads_by_layer[layer];
  }
  [[nodiscard]] int Window(int layer) const { return windows.empty() ? 0 : windows[layer]; }
  [[nodiscard]] int NumAttentions() const {
    return layers_read.empty() ? num_layers : static_cast<int>(layers_read.size());
  }
  [[nodiscard]] int LayerRead(int attention) const {
    return layers_read.empty() ? attention : layers_read[attention];
  }
  // The smallest window of any layer; 0: no layer has one.
  [[nodiscard]] int SmallestWindow() const;
  // Query heads that share one kv head.
  [[nodiscard]] int QueryHeadsPerKvHead(int layer) const { return num_q_heads / NumKvHeads(layer); }
  // (layer, kv head) pairs, which are numbered layer by layer.
  [[nodiscard]] int NumStreams() const;
  // Groups at a granularity: 1, num_layers, or one per (layer, kv head) pair.
  [[nodiscard]] int NumGroups(Granularity granularity) const;
};

}  // namespace ebb

#endif  // EBB_TYPES_H_
