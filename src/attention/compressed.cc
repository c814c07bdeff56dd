#include "src/attention/compressed.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "src/attention/ggml_records.h"

namespace ebb {
namespace {

// kTiny is the magnitude below which numbers are stored as 0, because the inverse of the scale
// would overflow.
constexpr float kTiny = 1e-30f;
using Row = std::array<float, kMaxHeadDim>;
using Integers = std::array<int32_t, kMaxHeadDim>;

// Returns the nearest bf16, as a float. A row that is decompressed and compressed again then gets
// the same scale and minimum, although its f16 copy added an error; rounding to one side would
// drift.
float NearestBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

// Scaling maps integers n, from `smallest` to `largest`, to minimum + n * scale.
struct Scaling {
  float scale = 0;
  float minimum = 0;
  int smallest = 0;
  int largest = 0;
};
constexpr Scaling kNotFinite = {.scale = std::numeric_limits<float>::quiet_NaN()};

uint32_t WordOf(float high, float low) {
  return (std::bit_cast<uint32_t>(high) & 0xffff0000) | std::bit_cast<uint32_t>(low) >> 16;
}
float HighOf(uint32_t word) { return std::bit_cast<float>(word & 0xffff0000); }
float LowOf(uint32_t word) { return std::bit_cast<float>(word << 16); }

void StoreWord(uint32_t word, std::byte* to) { std::memcpy(to, &word, sizeof(word)); }
uint32_t LoadWord(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Computes n[i] = (x[i] - minimum) / scale, rounded to nearest and clamped to the scaling's range.
void Round(const float* x, int count, const Scaling& by, int32_t* n) {
  const float inverse = by.scale > 0 ? 1 / by.scale : 0;  // 0 if the scale is NaN
  // Adding 1.5 * 2^23 leaves the rounded integer in the lowest bits.
  constexpr float kShift = 12582912;
  for (int i = 0; i < count; ++i) {
    const float shifted = (x[i] - by.minimum) * inverse + kShift;
    const int nearest = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
    n[i] = by.scale > 0 ? std::clamp(nearest, by.smallest, by.largest) : 0;
  }
}

Scaling Symmetric(const float* x, int count, int largest) {
  float magnitude = 0;
  float sum = 0;  // NaN if an element is not finite
  for (int i = 0; i < count; ++i) {
    magnitude = std::max(magnitude, std::fabs(x[i]));
    sum += 0 * x[i];
  }
  if (std::isnan(sum)) return kNotFinite;
  if (magnitude < kTiny) return {};
  return {.scale = NearestBf16(magnitude / static_cast<float>(largest)),
          .smallest = -largest,
          .largest = largest};
}

Scaling Asymmetric(const float* x, int count, int largest) {
  float low = x[0], high = x[0];
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum += 0 * x[i];
  }
  const float minimum = NearestBf16(low);
  const float range = high - minimum;
  if (std::isnan(sum) || !std::isfinite(range)) return kNotFinite;
  if (range < kTiny) return {.minimum = minimum};
  return {.scale = NearestBf16(range / static_cast<float>(largest)),
          .minimum = minimum,
          .largest = largest};
}

void RotateBlock(float* x, int size) {
  for (int half = 1; half < size; half *= 2) {
    for (int i = 0; i < size; i += 2 * half) {
      float* __restrict low = x + i;
      float* __restrict high = x + i + half;
      for (int j = 0; j < half; ++j) {
        const float a = low[j], b = high[j];
        low[j] = a + b;
        high[j] = a - b;
      }
    }
  }
  const float norm = 1 / std::sqrt(static_cast<float>(size));
  for (int i = 0; i < size; ++i) x[i] *= norm;
}

float CompressInt8(const float* x, int head_dim, std::byte* to, Integers* n) {
  const Scaling by = Symmetric(x, head_dim, kInt8Max);
  Round(x, head_dim, by, n->data());
  for (int i = 0; i < head_dim; ++i) to[i] = static_cast<std::byte>((*n)[i]);
  return by.scale;
}

float CompressByTrellis(const float* x, int head_dim, KeyMetric metric, bool is_key,
                        std::byte* to) {
  const Scaling by = Symmetric(x, head_dim, 1);
  if (!(by.scale > 0)) {
    const int bytes = is_key ? kTrellisKeyBytes : kTrellisValueBytes;
    std::memset(to, 0, size_t(head_dim / kTrellisGroup) * bytes);
    return by.scale;
  }
  // Squares of the elements must be floats.
  Row scaled;
  for (int i = 0; i < head_dim; ++i) scaled[i] = x[i] / by.scale;
  const float scale = is_key ? WriteTrellisKey(scaled.data(), head_dim, metric, to)
                             : WriteTrellisValue(scaled.data(), head_dim, to);
  return NearestBf16(scale * by.scale);
}

// Rounds the elements of a key in the order of a KeyMetric, each less what the errors of those
// before it count there.
void RoundByMetric(const float* x, int head_dim, const Scaling& by, KeyMetric metric, int32_t* n) {
  std::array<float, kMetricBlock> error, sum;
  for (int first = 0; first < head_dim; first += kMetricBlock) {
    const int size = std::min(kMetricBlock, head_dim - first);
    sum.fill(0);
    for (int t = 0; t < size; ++t) {
      const int at = first + KeyOfBlockAtTime(t);
      const float wanted = x[at] + sum[t];
      Round(&wanted, 1, by, n + at);
      error[t] = x[at] - (by.minimum + static_cast<float>(n[at]) * by.scale);
      const float* const counts = metric + t * size;
      for (int i = t + 1; i < size; ++i) sum[i] += error[t] * counts[i];
    }
    metric += size * size;
  }
}

// Compresses the key of an int4 or int3 row.
void CompressKeys(CompressedType type, const float* x, int head_dim, KeyMetric metric,
                  std::byte* to, std::byte* scale, Integers* n) {
  const bool six_bits = type == CompressedType::kInt4;
  const int group_bytes = KeyGroupBytes(type);
  const Scaling by = Asymmetric(x, head_dim, six_bits ? kKey6Max : kKey4Max);
  StoreWord(WordOf(by.scale, by.minimum), scale);
  if (metric != nullptr && by.scale > 0) {
    RoundByMetric(x, head_dim, by, metric, n->data());
  } else {
    Round(x, head_dim, by, n->data());
  }
  int first = 0;
  for (; first + kKeyGroup <= head_dim; first += kKeyGroup, to += group_bytes) {
    std::memset(to, 0, group_bytes);
    for (int i = 0; i < kKeyGroup; ++i) {
      const KeyPlace place = PlaceOfKey(i);
      const int key = (*n)[first + i];
      to[place.low] |= static_cast<std::byte>((key & 15) << place.low_shift);
      if (six_bits) to[place.high] |= static_cast<std::byte>(key >> 4 << place.high_shift);
    }
  }
  for (; first < head_dim; ++first) *to++ = static_cast<std::byte>((*n)[first]);
}

// BlockPlace locates the int4 values of a block.
struct BlockPlace {
  int bytes = 0;  // offset of the block
  int count = 0;  // number of elements
  int shift = 0;  // 0 or 4: low or high nibbles
  enum class Kind { kOfPair, kAlone, kTail } kind = Kind::kOfPair;
};
BlockPlace PlaceOfBlock(int block, int head_dim) {
  const int first = block * kValueBlock;
  const int of_pair = block / 2 * kValueBlock;
  if (head_dim - first < kValueBlock) {
    return {.bytes = first / 2, .count = kValueTail, .kind = BlockPlace::Kind::kTail};
  }
  if (block % 2 == 0 && head_dim - first < 2 * kValueBlock) {
    return {.bytes = of_pair, .count = kValueBlock, .kind = BlockPlace::Kind::kAlone};
  }
  return {.bytes = of_pair, .count = kValueBlock, .shift = block % 2 * 4};
}
// ValuePlace locates a value in a block: its byte, and its bits there.
struct ValuePlace {
  int byte, shift, mask;
};
ValuePlace PlaceOfValue(const BlockPlace& block, int i) {
  switch (block.kind) {
    case BlockPlace::Kind::kTail:
      return {.byte = block.bytes + i, .shift = 0, .mask = kTailMax};
    case BlockPlace::Kind::kAlone:
      return {.byte = block.bytes + i % 16, .shift = i / 16 * 4, .mask = kValue4Max};
    case BlockPlace::Kind::kOfPair:
      break;
  }
  return {.byte = block.bytes + i, .shift = block.shift, .mask = kValue4Max};
}

void CompressValue4(const float* x, int head_dim, std::byte* to, std::byte* scales, Integers* n) {
  const CompressedLayout layout = LayoutOf(CompressedType::kInt4, head_dim);
  std::memset(to, 0, layout.scales - layout.values);
  for (int b = 0; b < layout.num_blocks; ++b) {
    const BlockPlace block = PlaceOfBlock(b, head_dim);
    const float* from = x + b * kValueBlock;
    const Scaling by = Asymmetric(from, block.count, PlaceOfValue(block, 0).mask);
    StoreWord(WordOf(by.scale, by.minimum), scales + b * kScaleBytes);
    Round(from, block.count, by, n->data());
    for (int i = 0; i < block.count; ++i) {
      const ValuePlace place = PlaceOfValue(block, i);
      to[place.byte] |= static_cast<std::byte>((*n)[i] << place.shift);
    }
  }
}

void CompressValue3(const float* x, int head_dim, std::byte* to, std::byte* scales, Integers* n) {
  for (int first = 0; first < head_dim; first += kInt3ValueBlock, scales += kScaleBytes) {
    const int count = std::min(kInt3ValueBlock, head_dim - first);
    const bool packed = count == kInt3ValueBlock;
    const Scaling by = Asymmetric(x + first, count, packed ? kValue3Max : kTailMax);
    StoreWord(WordOf(by.scale, by.minimum), scales);
    Round(x + first, count, by, n->data());
    if (!packed) {
      for (int i = 0; i < count; ++i) to[i] = static_cast<std::byte>((*n)[i]);
      return;
    }
    std::memset(to, 0, kInt3ValueBytes);
    for (int i = 0; i < count; ++i) {
      const int value = (*n)[i];
      to[i % 16] |= static_cast<std::byte>((value & 3) << (i / 16 * 2));
      to[16 + i % 8] |= static_cast<std::byte>(value >> 2 << (i / 8));
    }
    to += kInt3ValueBytes;
  }
}

void DecompressKeys(CompressedType type, const std::byte* from, int head_dim, uint32_t word,
                    float* x) {
  const bool six_bits = type == CompressedType::kInt4;
  const float scale = HighOf(word), minimum = LowOf(word);
  const auto number = [&](int n) { return minimum + static_cast<float>(n) * scale; };
  int first = 0;
  for (; first + kKeyGroup <= head_dim; first += kKeyGroup, from += KeyGroupBytes(type)) {
    for (int i = 0; i < kKeyGroup; ++i) {
      const KeyPlace place = PlaceOfKey(i);
      const int low = std::to_integer<int>(from[place.low]) >> place.low_shift & 15;
      const int high =
          six_bits ? std::to_integer<int>(from[place.high]) >> place.high_shift & 3 : 0;
      x[first + i] = number(low | high << 4);
    }
  }
  for (; first < head_dim; ++first) x[first] = number(std::to_integer<int>(*from++));
}

void DecompressValue4(const std::byte* from, int head_dim, const std::byte* scales, float* x) {
  const int num_blocks = LayoutOf(CompressedType::kInt4, head_dim).num_blocks;
  for (int b = 0; b < num_blocks; ++b) {
    const BlockPlace block = PlaceOfBlock(b, head_dim);
    const uint32_t word = LoadWord(scales + b * kScaleBytes);
    for (int i = 0; i < block.count; ++i) {
      const ValuePlace place = PlaceOfValue(block, i);
      const int n = std::to_integer<int>(from[place.byte]) >> place.shift & place.mask;
      x[b * kValueBlock + i] = LowOf(word) + static_cast<float>(n) * HighOf(word);
    }
  }
}

void DecompressValue3(const std::byte* from, int head_dim, const std::byte* scales, float* x) {
  for (int first = 0; first < head_dim; first += kInt3ValueBlock, scales += kScaleBytes) {
    const int count = std::min(kInt3ValueBlock, head_dim - first);
    const uint32_t word = LoadWord(scales);
    for (int i = 0; i < count; ++i) {
      int n = std::to_integer<int>(from[i % 16]) >> (i / 16 * 2) & 3;
      n |= (std::to_integer<int>(from[16 + i % 8]) >> (i / 8) & 1) << 2;
      if (count < kInt3ValueBlock) n = std::to_integer<int>(from[i]);
      x[first + i] = LowOf(word) + static_cast<float>(n) * HighOf(word);
    }
    from += kInt3ValueBytes;
  }
}

// Unpacks a key, relative to its centre, and a value. Both stay rotated.
void UnpackRow(const CompressedFormat& format, const std::byte* row, float* key, float* value) {
  const int dim = format.head_dim;
  const CompressedLayout layout = LayoutOf(format);
  const uint32_t word = LoadWord(row + layout.scales);
  if (IsInt8(format.type)) {
    for (int i = 0; i < dim; ++i) {
      const std::byte* value_row = row + layout.values;
      key[i] = static_cast<float>(static_cast<int8_t>(row[i])) * LowOf(word);
      value[i] = static_cast<float>(static_cast<int8_t>(value_row[i])) * HighOf(word);
    }
    return;
  }
  if (format.type == CompressedType::kInt2) {
    int levels[kTrellisGroup];
    for (int first = 0; first < dim; first += kTrellisGroup) {
      const int group = first / kTrellisGroup;
      UnpackTrellisKeys(row + group * kTrellisKeyBytes, levels);
      for (int i = 0; i < kTrellisGroup; ++i) {
        key[first + i] = static_cast<float>(levels[i] - kKeyTrellis.centre) * LowOf(word);
      }
      if (!format.has_values) continue;
      UnpackTrellisValues(row + layout.values + group * kTrellisValueBytes, levels);
      for (int i = 0; i < kTrellisGroup; ++i) {
        value[first + i] = static_cast<float>(levels[i] - kValueTrellis.centre) * HighOf(word);
      }
    }
    return;
  }
  DecompressKeys(format.type, row, dim, word, key);
  if (!format.has_values) return;
  const auto decompress_values =
      format.type == CompressedType::kInt4 ? DecompressValue4 : DecompressValue3;
  decompress_values(row + layout.values, dim, row + layout.scales + kScaleBytes, value);
}

}  // namespace

size_t CompressedFormat::RowStride() const {
  if (!in_ggml_blocks) return LayoutOf(*this).row_stride;
  return GgmlRowBytes(type, head_dim) * (has_values ? 2 : 1);
}

void Rotate(float* x, int head_dim) {
  for (int first = 0; first < head_dim;) {
    const int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(head_dim - first)));
    RotateBlock(x + first, size);
    first += size;
  }
}

void RoundQuery(CompressedType type, const float* q, int head_dim, RoundedQuery* to) {
  // Use lanes, so that the compiler vectorizes the loop.
  constexpr int kLanes = 8;
  float largest[kLanes] = {}, faults[kLanes] = {};
  for (int i = 0; i < head_dim; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float magnitude = std::fabs(q[i + j]);
      largest[j] = largest[j] < magnitude ? magnitude : largest[j];
      faults[j] += 0 * q[i + j];
    }
  }
  const float top = *std::max_element(largest, largest + kLanes);
  const float fault = std::accumulate(faults, faults + kLanes, 0.0f);
  const bool int8 = IsInt8(type);
  const auto most = static_cast<float>(int8 ? kQuery16Max : kQuery8Max);
  Integers n;
  const int limit = static_cast<int>(most);
  Round(q, head_dim,
        {.scale = top < kTiny || std::isnan(fault) ? 0 : top / most,
         .smallest = -limit,
         .largest = limit},
        n.data());
  int64_t sum = 0;
  for (int i = 0; i < head_dim; ++i) {
    to->n[i] = static_cast<int16_t>(n[i]);
    sum += n[i];
  }
  std::fill(to->n + head_dim, std::end(to->n), int16_t{0});
  to->scale = top / most + fault;
  to->sum = static_cast<float>(sum) * to->scale;
  to->sum_of_n = static_cast<int32_t>(sum);
  if (int8) {
    for (int i = 0; i < head_dim; ++i) {
      to->low[i] = static_cast<int8_t>(n[i]);
      to->high[i] = static_cast<int8_t>((n[i] - to->low[i]) / 256);
    }
    return;
  }
  for (int first = 0; first + kKeyGroup <= head_dim; first += kKeyGroup) {
    for (int i = 0; i < kKeyGroup / 2; ++i) {
      to->unpacked[first + 2 * i] = static_cast<int8_t>(n[first + i]);
      to->unpacked[first + 2 * i + 1] = static_cast<int8_t>(n[first + 32 + i]);
    }
  }
}

float CentreDot(const float* q, const float* key_centre, int head_dim) {
  // Use lanes, so that the compiler vectorizes the loop.
  constexpr int kLanes = 8;
  double sums[kLanes] = {};
  for (int i = 0; i < head_dim; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) sums[j] += double{q[i + j]} * key_centre[i + j];
  }
  return static_cast<float>(std::accumulate(sums, sums + kLanes, 0.0));
}

void CompressRow(const CompressedFormat& format, const KeyFrame& frame, const float* key,
                 const float* value, std::byte* row) {
  const int dim = format.head_dim;
  Row k, v;
  Integers n;
  for (int i = 0; i < dim; ++i) k[i] = frame.centre == nullptr ? key[i] : key[i] - frame.centre[i];
  if (IsRotated(format.type)) Rotate(k.data(), dim);
  if (format.has_values) {
    std::copy_n(value, dim, v.data());
    if (IsRotated(format.type)) Rotate(v.data(), dim);
  }
  if (format.in_ggml_blocks) {
    StoreGgmlRow(format.type, k.data(), dim, row);
    if (!format.has_values) return;
    StoreGgmlRow(format.type, v.data(), dim, row + GgmlRowBytes(format.type, dim));
    return;
  }
  const CompressedLayout layout = LayoutOf(format);
  if (HasScalesAlone(format.type)) {
    const auto compress = [&](const float* x, KeyMetric metric, bool is_key, std::byte* to) {
      return IsInt8(format.type) ? CompressInt8(x, dim, to, &n)
                                 : CompressByTrellis(x, dim, metric, is_key, to);
    };
    const float key_scale = compress(k.data(), frame.metric, true, row);
    const float value_scale =
        format.has_values ? compress(v.data(), nullptr, false, row + layout.values) : key_scale;
    StoreWord(WordOf(value_scale, key_scale), row + layout.scales);
    return;
  }
  CompressKeys(format.type, k.data(), dim, frame.metric, row, row + layout.scales, &n);
  if (!format.has_values) return;
  const auto compress_values =
      format.type == CompressedType::kInt4 ? CompressValue4 : CompressValue3;
  compress_values(v.data(), dim, row + layout.values, row + layout.scales + kScaleBytes, &n);
}

void DecompressRow(const CompressedFormat& format, const float* key_centre, const std::byte* row,
                   float* key, float* value) {
  const int dim = format.head_dim;
  if (format.in_ggml_blocks) {
    LoadGgmlRow(format.type, row, dim, key);
    if (format.has_values) {
      LoadGgmlRow(format.type, row + GgmlRowBytes(format.type, dim), dim, value);
    }
  } else {
    UnpackRow(format, row, key, value);
  }
  if (IsRotated(format.type)) {
    Rotate(key, dim);
    if (format.has_values) Rotate(value, dim);
  }
  for (int i = 0; i < dim && key_centre != nullptr; ++i) key[i] += key_centre[i];
  if (!format.has_values) std::copy_n(key, dim, value);
}

}  // namespace ebb
