// Stores records of T2 as rows of ggml's quantized types, for devices whose backend can only run
// operations of ggml: ggml's get_rows() dequantizes them. A record has one such row for the key and
// one for the value. Both are rotated, and the key is relative to its centre, as in compressed.h.
//
//   int8, int8_naive  q8_0, 8.5 bits per element
//   int4              q5_0, 5.5 bits
//   int3              q4_0, 4.5 bits
//
// These types have a scale for each block of 32 elements and no minimum, which is not needed
// because keys that are rotated and centred lie around zero. The scales of a key or value that is
// not finite are NaN.
#ifndef EBB_ATTENTION_GGML_RECORDS_H_
#define EBB_ATTENTION_GGML_RECORDS_H_

#include <cstddef>

#include "ggml.h"
#include "src/attention/rows.h"

namespace ebb {

inline constexpr int kGgmlBlock = 32;  // elements per block, in each of these types

// Returns whether a key or value of `head_dim` elements is a whole number of blocks.
[[nodiscard]] constexpr bool FitsGgmlBlocks(int head_dim) { return head_dim % kGgmlBlock == 0; }
[[nodiscard]] ggml_type GgmlTypeOf(CompressedType type);
// Returns the bytes of one key or one value. REQUIRES: FitsGgmlBlocks(head_dim).
[[nodiscard]] size_t GgmlRowBytes(CompressedType type, int head_dim);

// StoreGgmlRow() quantizes a rotated key or value, x: [head_dim]; LoadGgmlRow() dequantizes it.
void StoreGgmlRow(CompressedType type, const float* x, int head_dim, std::byte* row);
void LoadGgmlRow(CompressedType type, const std::byte* row, int head_dim, float* x);

}  // namespace ebb

#endif  // EBB_ATTENTION_GGML_RECORDS_H_
