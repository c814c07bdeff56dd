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

// Token is the number of a token in the model's vocabulary, from 0.
using Token = int32_t;
// Position is the index of a token in its sequence, from 0. It is also the RoPE position of the
// token's keys until they are re-rotated (PastContext::kReRotate).
using Position = int32_t;

// RowRange holds the rows from `begin` up to, but not including, `end`.
struct RowRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const RowRange&) const = default;
};

// RowType is the number format of rows in full precision (T0 and T1).
enum class RowType { kF16, kBf16, kF32 };

// Granularity selects the (layer, kv head) pairs that share one token table and so evict the same
// tokens: all pairs, the pairs of one layer, or no two pairs.
enum class Granularity { kToken, kLayer, kHead };

// Tier names where a row lies: T0 is fast memory, T1 host memory or a file, T2 holds compressed
// rows, and rows of T3 are evicted.
enum class Tier : uint8_t { kT0 = 0, kT1, kT2, kT3 };
inline constexpr int kNumTiers = 4;

// StepKind: a prefill step reads given tokens; a decode step reads the token that was sampled last.
enum class StepKind { kPrefill, kDecode };

// TokenKind records whether the caller gave a token (prompt, user turns) or the model generated it.
enum class TokenKind : uint8_t { kGiven = 0, kGenerated = 1 };

[[nodiscard]] size_t RowTypeBytes(RowType type);  // bytes of one element: 2, 2, 4
[[nodiscard]] std::string_view RowTypeName(RowType type);
// Parses "f16", "bf16" or "f32". Errors: InvalidArgument, listing these names.
[[nodiscard]] Result<RowType> ParseRowType(std::string_view name);
// Returns "token", "layer" or "head".
[[nodiscard]] std::string_view GranularityName(Granularity granularity);
// Parses "token", "layer" or "head". Errors: InvalidArgument, listing these names.
[[nodiscard]] Result<Granularity> ParseGranularity(std::string_view name);
// Returns "T0", "T1", "T2" or "T3".
[[nodiscard]] std::string_view TierName(Tier tier);
// Parses a size in bytes: a number, which may have a fraction or an exponent, and a unit in upper
// or lower case. KiB, MiB, GiB, TiB (or Ki, Mi, Gi, Ti) are powers of 1024; kB, MB, GB, TB (or k,
// M, G, T) are powers of 1000; B or no unit means bytes. Examples: "512MiB", "1.5Gi", "2G", "1e9".
// Rounds down to whole bytes. Errors: InvalidArgument for other text, for less than 1 byte and for
// 2^64 bytes or more.
[[nodiscard]] Result<uint64_t> ParseBytes(std::string_view text);

// ModelShape holds the sizes of a model that the cache and the policies need. Layers may differ in
// their number of kv heads and in their sliding windows; all layers have the same query heads and
// the same head size.
struct ModelShape {
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;  // kv heads of every layer; if kv_heads_by_layer is set, their maximum
  int head_dim = 0;      // of keys and of values, in elements
  // has_values is false for latent attention (MLA): the value of a row is then the beginning of its
  // key, and the cache does not store the value a second time.
  bool has_values = true;
  int embed_dim = 0;  // of the hidden state
  int vocab_size = 0;
  int trained_context = 0;  // in tokens
  // Counts the kv heads of each layer, [num_layers]; each count divides num_q_heads. Empty: every
  // layer has num_kv_heads.
  std::vector<int> kv_heads_by_layer = {};
  // Holds the sliding window of each layer in tokens, [num_layers]. Queries at p to p + window - 1
  // see the row at position p; with window 0 every query from p on sees the row. Empty: no layer
  // has a window.
  std::vector<int> windows = {};
  // Names, for each attention of a token in the order of the model, the layer whose rows the
  // attention reads. The first attention that names a layer stores the layer's row; later
  // attentions may read the same layer again. Layers appear in ascending order. Empty: each layer
  // is read once.
  std::vector<int> layers_read = {};

  [[nodiscard]] int NumKvHeads(int layer) const {
    return kv_heads_by_layer.empty() ? num_kv_heads : kv_heads_by_layer[layer];
  }
  [[nodiscard]] int Window(int layer) const { return windows.empty() ? 0 : windows[layer]; }
  // Returns how many times attention is computed for a token: num_layers, unless layers_read says
  // otherwise.
  [[nodiscard]] int NumAttentions() const {
    return layers_read.empty() ? num_layers : static_cast<int>(layers_read.size());
  }
  // Returns the layer whose rows this attention reads.
  [[nodiscard]] int LayerRead(int attention) const {
    return layers_read.empty() ? attention : layers_read[attention];
  }
  // Returns the smallest window of any layer in tokens; 0 if no layer has a window.
  [[nodiscard]] int SmallestWindow() const;
  // Returns the number of query heads that share one kv head.
  [[nodiscard]] int QueryHeadsPerKvHead(int layer) const { return num_q_heads / NumKvHeads(layer); }
  // Returns the number of streams: (layer, kv head) pairs, numbered layer by layer.
  [[nodiscard]] int NumStreams() const;
  // Returns the number of groups at a granularity: 1 (kToken), num_layers (kLayer) or NumStreams()
  // (kHead).
  [[nodiscard]] int NumGroups(Granularity granularity) const;
};

}  // namespace ebb

#endif  // EBB_TYPES_H_
