// Records of T2 as rows of ggml's quantised types, for devices whose backend runs operations of
// ggml alone: its get_rows() dequantises them. A record is one row: the key, then the value, both
// rotated and the key less its centre, as compressed.h says.
//
//   int8, int8_naive  q8_0, 8.5 bits an element
//   int4              q5_0, 5.5 bits
//   int3              q4_0, 4.5 bits
//
// These types have a scale for each block of 32 elements and no minimum: keys that are rotated and
// centred lie around zero. A key or value that is not finite gets scales that are NaN.
#ifndef EBB_ATTENTION_GGML_RECORDS_H_
#define EBB_ATTENTION_GGML_RECORDS_H_

#include <cstddef>

#include "ggml.h"
#include "src/attention/rows.h"

namespace ebb {

inline constexpr int kGgmlBlock = 32;  // elements of a block of each of these types

// Whether a key or value of so many elements is a number of whole blocks.
[[nodiscard]] constexpr bool FitsGgmlBlocks(int head_dim) { return head_dim % kGgmlBlock == 0; }
[[nodiscard]] ggml_type GgmlTypeOf(CompressedType type);
// Bytes of a key or a value. REQUIRES: FitsGgmlBlocks(head_dim).
[[nodiscard]] size_t GgmlRowBytes(CompressedType type, int head_dim);

// x: [head_dim], a rotated key or value.
void StoreGgmlRow(CompressedType type, const float* x, int head_dim, std::byte* row);
void LoadGgmlRow(CompressedType type, const std::byte* row, int head_dim, float* x);

}  // namespace ebb

#endif  // EBB_ATTENTION_GGML_RECORDS_H_
