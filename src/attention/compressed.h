// Defines the format of T2's rows, the CompressedFormat::RowStride() bytes of a row, and the
// arithmetic on one row.
//
// Keys and values (except for int8_naive) are rotated by an orthonormal Hadamard matrix, which
// spreads outliers over all elements, and then rounded to integers. A query that is rotated the
// same way has the same logits, so only the merged output is rotated back. Keys are stored relative
// to a centre, one vector for all rows of a stream (layer and kv head): the keys of some models
// have a mean several times as long as their differences, and the integers would be spent on that
// mean. The centre does not change while the stream has rows. Kernels compute q * key as
// q * centre + q * (key - centre), in which the first term is the same for all rows. A row is one
// self-contained record, so that it can be moved and freed alone:
//
//   int8  keys [head_dim], values [head_dim], each int8; key scale, value scale
//   int8_naive  as int8, neither rotated nor centred: a control
//   int4  keys of 6 bits, values of 4 bits; key minimum, key scale; for each block of values
//         minimum, scale
//   int3  keys of 4 bits, values of 3 bits; scales and minima as in int4
//   int2  keys of 3 bits, values of 2 bits, both trellis codes (trellis.h); key scale, value scale
//
// Scales and minima are bf16, 2 bytes. An int8 element is n * scale, |n| <= 127: 8.25 bits per
// element at head size 64. An int4 element is minimum + n * scale. Keys are finer than values since
// errors in keys cost far more (docs/dev/tiers.md). int4 takes 5.75 bits per element at head size
// 64, 5.6 at 128:
//   - keys: n < 64, one scale per row. 64 elements take 48 bytes: the low nibbles of 32 bytes, the
//     high ones, and 16 bytes of 2 bits (PlaceOfKey). The rest of head_dim takes a byte per
//     element.
//   - values: n < 16, in blocks of 32 with a scale each. Two blocks share 32 bytes: the first lies
//     in the low nibbles, the second in the high ones. A block without a second takes 16 bytes, its
//     first half in the low nibbles. The remaining 16 elements, if any, are a block with a byte per
//     element and n < 128.
// int3 takes 4 bits per element at head size 64, 3.9 at 128:
//   - keys: n < 16, one scale per row. 64 elements take the low and the high nibbles of 32 bytes,
//     in int4's order; the rest of head_dim takes a byte per element.
//   - values: n < 8, in blocks of 64 with a scale each. The low 2 bits of value i of a block are
//     bits 2 * (i / 16) and above of byte i % 16; its high bit is bit i / 8 of byte 16 + i % 8. The
//     rest is a block with a byte per element and n < 128.
// int2 takes 2.75 bits per element at head size 64, 2.6 at 128: the groups of 64 keys, then those
// of values. Head sizes are multiples of 64. The scale of a key or value that is not finite is NaN.
//
// A row without values ends after the scale and the minimum of its key, which is its value too; in
// int8 and int2 the word of scales holds the key's scale twice. The weighted sum of such rows lacks
// the centre; the merged sum adds it once, times the sum of the rows' weights.
//
// Queries are rounded to integers too, so that their products with keys are summed exactly. For
// int8 they have 16 bits (less than half a percent of the range is unused, so that each number is
// two signed bytes), with an eighth of f16's rounding error; 8 bits would double the error. For
// int4, int3 and int2 they have 8 bits, which adds a fifteenth to the error of int4's keys and less
// to int3's.
#ifndef EBB_ATTENTION_COMPRESSED_H_
#define EBB_ATTENTION_COMPRESSED_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/attention/attention.h"
#include "src/attention/rows.h"
#include "src/attention/trellis.h"

namespace ebb {

inline constexpr int kKeyGroup = 64;        // keys of int4, int3 and int2 packed together
inline constexpr int kValueBlock = 32;      // int4 values that share a scale
inline constexpr int kInt3ValueBlock = 64;  // int3 values that share a scale
inline constexpr int kInt3ValueBytes = 24;  // bytes of an int3 block
inline constexpr int kValueTail = 16;  // elements of the last block of int4, if head_dim leaves any
inline constexpr int kMaxValueBlocks = kMaxHeadDim / kValueBlock + 1;
// kInt8Max is the largest integer n that an element of int8 is stored as; the constants below are
// the limits of other elements and of rounded queries.
inline constexpr int kInt8Max = 127;
inline constexpr int kKey6Max = 63;    // keys of int4
inline constexpr int kValue4Max = 15;  // values of int4
inline constexpr int kKey4Max = 15;    // keys of int3
inline constexpr int kValue3Max = 7;   // values of int3
inline constexpr int kTailMax = 127;   // elements beyond the last whole group or block
inline constexpr int kQuery16Max = 127 * 256 + 127;  // queries of int8 rows
inline constexpr int kQuery8Max = 127;               // queries of int4 and int3 rows

// kScaleBytes is the size of a word of scales: a scale in the high half and a minimum in the low
// half (in int8, the key's scale).
inline constexpr size_t kScaleBytes = 4;

[[nodiscard]] constexpr bool IsInt8(CompressedType type) {
  return type == CompressedType::kInt8 || type == CompressedType::kInt8Naive;
}
// Returns whether a row has one word of scales: the value's scale and the key's. Other types have
// words of a scale and a minimum.
[[nodiscard]] constexpr bool HasScalesAlone(CompressedType type) {
  return IsInt8(type) || type == CompressedType::kInt2;
}
// Returns the bytes of a group of 64 keys of int4, int3 or int2.
[[nodiscard]] constexpr int KeyGroupBytes(CompressedType type) {
  if (type == CompressedType::kInt2) return kTrellisKeyBytes;
  return type == CompressedType::kInt4 ? kKeyGroup / 4 * 3 : kKeyGroup / 2;
}
[[nodiscard]] constexpr bool IsRotated(CompressedType type) {
  return type != CompressedType::kInt8Naive;
}

// CompressedLayout has the byte offsets of the parts of a row.
struct CompressedLayout {
  size_t values = 0;
  size_t scales = 0;   // offset of the key's scales; in int8, of key and value
  int num_blocks = 0;  // blocks of values of int4 and int3; their scales follow the key's
  size_t row_stride = 0;
};
[[nodiscard]] constexpr CompressedLayout LayoutOf(CompressedType type, int head_dim,
                                                  bool has_values = true) {
  const size_t dim = head_dim;
  if (IsInt8(type)) {
    const size_t values = has_values ? dim : 0;
    const size_t scales = values + dim;
    return {
        .values = values, .scales = scales, .num_blocks = 0, .row_stride = scales + kScaleBytes};
  }
  if (type == CompressedType::kInt2) {
    const size_t groups = dim / kTrellisGroup;
    const size_t values = has_values ? groups * kTrellisKeyBytes : 0;
    const size_t scales = groups * (kTrellisKeyBytes + (has_values ? kTrellisValueBytes : 0));
    return {
        .values = values, .scales = scales, .num_blocks = 0, .row_stride = scales + kScaleBytes};
  }
  const bool int4 = type == CompressedType::kInt4;
  const size_t block = int4 ? kValueBlock : kInt3ValueBlock;
  const size_t block_bytes = int4 ? kValueBlock / 2 : kInt3ValueBytes;
  const size_t key_tail = dim % kKeyGroup;
  const size_t value_tail = dim % block;
  const size_t values = dim / kKeyGroup * KeyGroupBytes(type) + key_tail;
  if (!has_values) {
    return {.values = 0, .scales = values, .num_blocks = 0, .row_stride = values + kScaleBytes};
  }
  const size_t scales = values + dim / block * block_bytes + value_tail;
  const size_t blocks = (dim + block - 1) / block;
  return {.values = values,
          .scales = scales,
          .num_blocks = static_cast<int>(blocks),
          .row_stride = scales + (1 + blocks) * kScaleBytes};
}
// Returns the layout of a format. REQUIRES: !format.in_ggml_blocks.
[[nodiscard]] constexpr CompressedLayout LayoutOf(const CompressedFormat& format) {
  return LayoutOf(format.type, format.head_dim, format.has_values);
}

// KeyPlace locates key i in a group of 64 keys of int4: its low 4 bits are the nibble at bit
// `low_shift` of byte `low`, its high 2 bits begin at bit `high_shift` of byte `high`. int3 has
// only the low bits. If a group is unpacked to 64 bytes, low nibbles first, then the even bytes are
// keys 0..31 and the odd bytes keys 32..63, which gives two vectors of 16-bit numbers at once.
struct KeyPlace {
  int unpacked;  // index of the key in the unpacked 64 bytes
  int low, low_shift, high, high_shift;
};
[[nodiscard]] constexpr KeyPlace PlaceOfKey(int i) {
  const int at = 2 * (i % 32) + i / 32;
  return {.unpacked = at,
          .low = at % 32,
          .low_shift = at / 32 * 4,
          .high = 32 + at % 16,
          .high_shift = at / 16 * 2};
}

// RoundedQuery is a rotated query, rounded to integers: element i is n[i] * scale.
struct alignas(64) RoundedQuery {
  float scale;           // NaN if an element is not finite
  float sum;             // sum of all n[i]
  float centre_dot = 0;  // CentreDot() of the original query
  // n is padded with zeros, because kernels read keys in whole vectors: beyond the last key into
  // the values.
  alignas(64) int16_t n[kMaxHeadDim + 32];
  alignas(64) int8_t unpacked[kMaxHeadDim];  // for int4, int3 and int2, as KeyPlace::unpacked
  // high and low are for int8's keys: n = 256 * high + low.
  alignas(64) int8_t high[kMaxHeadDim];
  alignas(64) int8_t low[kMaxHeadDim];
  int32_t sum_of_n;
};
void RoundQuery(CompressedType type, const float* q, int head_dim, RoundedQuery* to);

// CompressedFoldInput is a chunk of compressed rows of one kv head, and the queries of all query
// heads that share the head.
struct CompressedFoldInput {
  CompressedFormat format;
  const std::byte* const* rows = nullptr;  // [kChunkRows], from LocateCompressed()
  int num_rows = 0;                        // from 1 to kChunkRows
  // next_rows are the rows that this thread reads next, for prefetching. REQUIRED: equal to `rows`
  // if there are none.
  const std::byte* const* next_rows = nullptr;  // [kChunkRows]
  const RoundedQuery* queries = nullptr;        // [num_heads]
  int num_heads = 0;
  float scale = 0;
  float soft_cap = 0;  // see AttentionShape
};

// Writes the addresses of compressed rows to `addresses`, as LocateKeys() does for keys.
void LocateCompressed(const CompressedRows& rows, const CompressedFormat& format, uint32_t begin,
                      uint32_t end, std::span<const std::byte*, kChunkRows> addresses);

// Rotate(), CompressRow() and DecompressRow() are in the table of every kernel but the reference's,
// and give the same bits on every machine. The reference compresses with CompressRow() too, because
// another rounding would change an integer by a whole step.
void Rotate(float* x, int head_dim);
void CompressRow(const CompressedFormat& format, const KeyFrame& frame, const float* key,
                 const float* value, std::byte* row);
void DecompressRow(const CompressedFormat& format, const float* key_centre, const std::byte* row,
                   float* key, float* value);
// Returns the product of q and key_centre, with the same bits on every machine.
[[nodiscard]] float CentreDot(const float* q, const float* key_centre, int head_dim);

// ReferenceRotate() and the functions below are in the table of the reference kernel. They compute
// in double.
void ReferenceRotate(float* x, int head_dim);
void ReferenceDecompressRow(const CompressedFormat& format, const float* key_centre,
                            const std::byte* row, float* key, float* value);
[[nodiscard]] double ReferenceSoftCapped(double logit, float soft_cap);
void ReferenceFoldCompressed(const CompressedFoldInput& in, const FoldOutput& out);

}  // namespace ebb

#endif  // EBB_ATTENTION_COMPRESSED_H_
