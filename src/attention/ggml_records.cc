#include "src/attention/ggml_records.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace ebb {
namespace {

// Sets the scales of all blocks to NaN. In these types every block begins with its scale.
void SpoilScales(CompressedType type, int head_dim, std::byte* row) {
  const size_t block_bytes = ggml_type_size(GgmlTypeOf(type));
  const ggml_fp16_t nan = ggml_fp32_to_fp16(std::numeric_limits<float>::quiet_NaN());
  std::memset(row, 0, GgmlRowBytes(type, head_dim));
  for (int first = 0; first < head_dim; first += kGgmlBlock) {
    std::memcpy(row, &nan, sizeof(nan));
    row += block_bytes;
  }
}

}  // namespace

ggml_type GgmlTypeOf(CompressedType type) {
  switch (type) {
    case CompressedType::kInt8:
    case CompressedType::kInt8Naive:
    case CompressedType::kInt2:  // refused on devices
      break;
    case CompressedType::kInt4:
      return GGML_TYPE_Q5_0;
    case CompressedType::kInt3:
      return GGML_TYPE_Q4_0;
  }
  return GGML_TYPE_Q8_0;
}

size_t GgmlRowBytes(CompressedType type, int head_dim) {
  return ggml_row_size(GgmlTypeOf(type), head_dim);
}

void StoreGgmlRow(CompressedType type, const float* x, int head_dim, std::byte* row) {
  if (!std::ranges::all_of(std::span(x, head_dim), [](float e) { return std::isfinite(e); })) {
    return SpoilScales(type, head_dim, row);
  }
  ggml_get_type_traits(GgmlTypeOf(type))->from_float_ref(x, row, head_dim);
}

void LoadGgmlRow(CompressedType type, const std::byte* row, int head_dim, float* x) {
  ggml_get_type_traits(GgmlTypeOf(type))->to_float(row, x, head_dim);
}

}  // namespace ebb
