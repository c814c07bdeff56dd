// Implements the reference kernel's compressed rows from the description in compressed.h, bit by
// bit and in double, so that it shares no mistake with the other kernels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/attention/compressed.h"

namespace ebb {
namespace {

using Doubles = std::vector<double>;

double Bf16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
int ByteAt(const std::byte* row, size_t at) { return std::to_integer<int>(row[at]); }

// Returns element i of a group of int2, by the definitions of trellis.h.
double TrellisElement(const std::byte* group, bool is_key, int i) {
  const int place = is_key ? 2 * (i % 32) + i / 32 : i;
  const int t = 4 * (place % 16) + place / 16;
  const auto two_bits = [&](int at) {
    return at < 0 ? 0 : ByteAt(group, at / 4) >> at % 4 * 2 & 3;
  };
  const auto third_bit = [&](int at) {
    return at < 0 ? 0 : ByteAt(group, 16 + at % 32 / 4) >> (at / 32 * 4 + at % 4) & 1;
  };
  const int pair = 4 * two_bits(t) + two_bits(t - 1);
  if (!is_key) {
    const int other = 4 * two_bits(t - 2) + two_bits(t - 3);
    return kValueTrellis.first[pair] + kValueTrellis.second[other] - kValueTrellis.centre;
  }
  const int bits =
      8 * third_bit(t) + 4 * third_bit(t - 1) + 2 * third_bit(t - 2) + third_bit(t - 3);
  return kKeyTrellis.first[pair] + kKeyTrellis.second[bits] - kKeyTrellis.centre;
}

// Returns an element of a key as it is stored, still rotated; ValueElement() does the same for
// values.
double KeyElement(const CompressedFormat& format, const std::byte* row, int i) {
  const CompressedLayout layout = LayoutOf(format);
  const std::byte* scales = row + layout.scales;
  if (IsInt8(format.type)) {
    return static_cast<int8_t>(ByteAt(row, i)) * Bf16(scales);
  }
  if (format.type == CompressedType::kInt2) {
    return TrellisElement(row + i / 64 * 24, true, i % 64) * Bf16(scales);
  }
  const int packed = format.head_dim / 64 * 64;
  const bool six_bits = format.type == CompressedType::kInt4;
  const int group_bytes = six_bits ? 48 : 32;
  int n = 0;
  if (i < packed) {
    const size_t group = i / 64 * group_bytes;
    const int at = i % 64 < 32 ? 2 * (i % 64) : 2 * (i % 64 - 32) + 1;
    n = at < 32 ? ByteAt(row, group + at) & 15 : ByteAt(row, group + at - 32) >> 4;
    if (six_bits) n += 16 * (ByteAt(row, group + 32 + at % 16) >> (at / 16 * 2) & 3);
  } else {
    n = ByteAt(row, packed / 64 * group_bytes + i - packed);
  }
  return Bf16(scales) + n * Bf16(scales + 2);
}

double ValueElement(const CompressedFormat& format, const std::byte* row, int i) {
  if (!format.has_values) return KeyElement(format, row, i);
  const CompressedLayout layout = LayoutOf(format);
  const std::byte* values = row + layout.values;
  const std::byte* scales = row + layout.scales;
  if (IsInt8(format.type)) {
    return static_cast<int8_t>(ByteAt(values, i)) * Bf16(scales + 2);
  }
  if (format.type == CompressedType::kInt2) {
    return TrellisElement(values + i / 64 * 16, false, i % 64) * Bf16(scales + 2);
  }
  const int dim = format.head_dim;
  if (format.type == CompressedType::kInt3) {
    const int of = i / 64;
    const std::byte* minimum = scales + 4 + 4 * of;
    int n = 0;
    if (i < dim / 64 * 64) {
      n = (ByteAt(values, 24 * of + i % 16) >> (i % 64 / 16 * 2) & 3) +
          4 * (ByteAt(values, 24 * of + 16 + i % 8) >> (i % 64 / 8) & 1);
    } else {
      n = ByteAt(values, 24 * of + i % 64);
    }
    return Bf16(minimum) + n * Bf16(minimum + 2);
  }
  const int block = i / 32;
  const std::byte* of_block = scales + 4 + 4 * block;
  int n = 0;
  if (i < dim / 64 * 64) {
    n = ByteAt(values, i / 64 * 32 + i % 32) >> (i % 64 < 32 ? 0 : 4) & 15;
  } else if (i < dim / 32 * 32) {
    n = ByteAt(values, dim / 64 * 32 + i % 16) >> (i % 32 < 16 ? 0 : 4) & 15;
  } else {
    n = ByteAt(values, dim / 32 * 16 + i % 16);
  }
  return Bf16(of_block) + n * Bf16(of_block + 2);
}

// Rotates by the matrix in Sylvester's order: the sign of entry (i, j) is -1 to the power of the
// number of bits that i and j share.
Doubles Rotated(const Doubles& x) {
  Doubles y;
  while (y.size() < x.size()) {
    const size_t first = y.size();
    const size_t size = std::bit_floor(x.size() - first);
    for (size_t i = 0; i < size; ++i) {
      double sum = 0;
      for (size_t j = 0; j < size; ++j) {
        sum += std::popcount(i & j) % 2 == 0 ? x[first + j] : -x[first + j];
      }
      y.push_back(sum / std::sqrt(static_cast<double>(size)));
    }
  }
  return y;
}

double Logit(const CompressedFoldInput& in, int row, int head) {
  const RoundedQuery& q = in.queries[head];
  double sum = 0;
  for (int i = 0; i < in.format.head_dim; ++i) {
    sum += q.n[i] * KeyElement(in.format, in.rows[row], i);
  }
  return ReferenceSoftCapped((sum * q.scale + q.centre_dot) * in.scale, in.soft_cap);
}

}  // namespace

void ReferenceRotate(float* x, int head_dim) {
  const Doubles y = Rotated(Doubles(x, x + head_dim));
  for (int i = 0; i < head_dim; ++i) x[i] = static_cast<float>(y[i]);
}

void ReferenceDecompressRow(const CompressedFormat& format, const float* key_centre,
                            const std::byte* row, float* key, float* value) {
  if (format.in_ggml_blocks) return DecompressRow(format, key_centre, row, key, value);
  const int dim = format.head_dim;
  Doubles k(dim), v(dim);
  for (int i = 0; i < dim; ++i) {
    k[i] = KeyElement(format, row, i);
    v[i] = ValueElement(format, row, i);
  }
  if (IsRotated(format.type)) {
    k = Rotated(k);
    v = Rotated(v);
  }
  for (int i = 0; i < dim && key_centre != nullptr; ++i) k[i] += key_centre[i];
  std::copy(k.begin(), k.end(), key);
  const Doubles& of_value = format.has_values ? v : k;
  std::copy(of_value.begin(), of_value.end(), value);
}

void ReferenceFoldCompressed(const CompressedFoldInput& in, const FoldOutput& out) {
  const int dim = in.format.head_dim;
  for (int g = 0; g < in.num_heads; ++g) {
    Doubles logits;
    double m = -std::numeric_limits<double>::infinity();
    for (int r = 0; r < in.num_rows; ++r) {
      logits.push_back(Logit(in, r, g));
      m = std::isnan(logits.back()) ? logits.back() : std::max(m, logits.back());
    }
    double l = 0;
    Doubles o(dim, 0.0);
    for (int r = 0; r < in.num_rows; ++r) {
      const double p = std::exp(logits[r] - m);
      l += p;
      for (int i = 0; i < dim; ++i) o[i] += p * ValueElement(in.format, in.rows[r], i);
      out.p[g * out.p_stride + r] = static_cast<float>(p);
    }
    out.m[g * out.head_stride] = static_cast<float>(m);
    if (!std::ranges::all_of(o, [](double x) { return std::isfinite(x); })) l = NAN;
    out.l[g * out.head_stride] = static_cast<float>(l);
    std::copy(o.begin(), o.end(), out.o + g * dim);
  }
}

}  // namespace ebb
