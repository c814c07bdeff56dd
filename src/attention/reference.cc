// Implements the reference kernel: slow and plain. Everything but inputs and outputs is in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

double Element(RowType type, const std::byte* row, int i) {
  switch (type) {
    case RowType::kF32: {
      float value;
      std::memcpy(&value, row + sizeof(float) * i, sizeof(value));
      return value;
    }
    case RowType::kBf16: {
      uint16_t bits;
      std::memcpy(&bits, row + sizeof(bits) * i, sizeof(bits));
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
    case RowType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, row + sizeof(bits) * i, sizeof(bits));
      const double sign = bits & 0x8000 ? -1 : 1;
      const int exponent = bits >> 10 & 31;
      const int mantissa = bits & 1023;
      if (exponent == 31) {
        return mantissa ? std::numeric_limits<double>::quiet_NaN()
                        : sign * std::numeric_limits<double>::infinity();
      }
      if (exponent == 0) return sign * std::ldexp(mantissa, -24);
      return sign * std::ldexp(1024 + mantissa, exponent - 25);
    }
  }
  return 0;
}

uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 64);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Converts to f16, rounding to nearest even; overflow becomes infinity.
uint16_t RoundToF16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -14, -14);
  // Round in units in the last place; nearbyint() rounds to even in the default mode.
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<uint16_t>(sign | (units + ((exponent + 14) << 10)));
}

void StoreRow(RowType type, const float* from, std::byte* to, int head_dim) {
  for (int i = 0; i < head_dim; ++i) {
    if (type == RowType::kF32) {
      std::memcpy(to + sizeof(float) * i, from + i, sizeof(float));
      continue;
    }
    const uint16_t bits = type == RowType::kF16 ? RoundToF16(from[i]) : RoundToBf16(from[i]);
    std::memcpy(to + sizeof(bits) * i, &bits, sizeof(bits));
  }
}

void LoadRow(RowType type, const std::byte* from, float* to, int head_dim) {
  for (int i = 0; i < head_dim; ++i) to[i] = static_cast<float>(Element(type, from, i));
}

const std::byte* KeyAt(const PageFormat& format, const RowsView& rows, size_t index) {
  const Slot slot = rows.slots[index];
  return rows.pages[slot.page()] + slot.row() * format.RowStride();
}

double Logit(const PageFormat& format, const std::byte* key, const float* q, float scale,
             float soft_cap) {
  double sum = 0;
  for (int i = 0; i < format.head_dim; ++i) sum += q[i] * Element(format.type, key, i);
  return ReferenceSoftCapped(sum * scale, soft_cap);
}

void AddValue(const PageFormat& format, const std::byte* key, double weight,
              std::vector<double>* o) {
  const std::byte* value = key + format.ValueOffset();
  for (int i = 0; i < format.head_dim; ++i) (*o)[i] += weight * Element(format.type, value, i);
}

void Fold(const FoldInput& in, const FoldOutput& out) {
  for (int g = 0; g < in.num_heads; ++g) {
    std::vector<double> logits;
    double m = -std::numeric_limits<double>::infinity();
    for (int r = 0; r < in.num_rows; ++r) {
      logits.push_back(
          Logit(in.format, in.keys[r], in.q + g * in.format.head_dim, in.scale, in.soft_cap));
      m = std::isnan(logits.back()) ? logits.back() : std::max(m, logits.back());
    }
    double l = 0;
    std::vector<double> o(in.format.head_dim, 0.0);
    for (int r = 0; r < in.num_rows; ++r) {
      const double p = std::exp(logits[r] - m);
      l += p;
      AddValue(in.format, in.keys[r], p, &o);
      if (out.p != nullptr) out.p[g * out.p_stride + r] = static_cast<float>(p);
    }
    out.m[g * out.head_stride] = static_cast<float>(m);
    if (!std::ranges::all_of(o, [](double x) { return std::isfinite(x); })) l = NAN;
    out.l[g * out.head_stride] = static_cast<float>(l);
    std::copy(o.begin(), o.end(), out.o + g * in.format.head_dim);
  }
}

bool ChunkWeights(const MergeInput& in, float* weights) {
  double m = in.sink;
  for (int c = 0; c < in.num_chunks; ++c) m = std::max<double>(m, in.m[c]);
  double l = in.sink == kNoSink ? 0 : std::exp(in.sink - m);
  for (int c = 0; c < in.num_chunks; ++c) l += in.l[c] * std::exp(in.m[c] - m);
  for (int c = 0; c < in.num_chunks; ++c) {
    weights[c] = static_cast<float>(std::exp(in.m[c] - m) / l);
  }
  return std::isfinite(l);
}

void Merge(const MergeInput& in, const float* weights, float* out) {
  for (int i = 0; i < in.head_dim; ++i) {
    double sum = 0;
    for (int c = 0; c < in.num_chunks; ++c) {
      sum += static_cast<double>(weights[c]) * in.o[c * in.o_stride + i];
    }
    out[i] = static_cast<float>(sum);
  }
}

void AddMass(const MassInput& in, float* mass) {
  for (size_t r = in.begin; r < in.end; ++r) {
    const size_t chunk = r / kChunkRows;
    const float* p = in.p + chunk * in.p_chunk_stride + r % kChunkRows;
    double sum = mass[r];
    for (int g = 0; g < in.num_heads; ++g) {
      sum += static_cast<double>(in.weights[g * in.weights_stride + chunk]) * p[g * in.p_stride];
    }
    mass[r] = static_cast<float>(sum);
  }
}

bool Sees(const RowsView& rows, size_t index, Position query) {
  return rows.positions[index] <= query && query <= rows.LastVisible(index);
}

int QueryTile(int) { return 16; }
size_t PrefillScratchFloats(int, int) { return 0; }

bool Prefill(const PrefillInput& in, const PrefillOutput& out) {
  bool finite = true;
  for (int t = 0; t < in.num_queries; ++t) {
    for (int g = 0; g < in.num_heads; ++g) {
      const float* q = in.q + t * in.q_token_stride + g * in.q_head_stride;
      double m = in.sinks == nullptr ? kNoSink : in.sinks[g];
      double l = in.sinks == nullptr ? 0 : 1;
      std::vector<double> o(in.format.head_dim, 0.0);
      for (size_t r = 0; r < in.rows->size(); ++r) {
        if (!Sees(*in.rows, r, in.positions[t])) continue;
        const std::byte* key = KeyAt(in.format, *in.rows, r);
        const double logit = Logit(in.format, key, q, in.scale, in.soft_cap);
        const double next = std::max(m, logit);
        const double shrink = std::exp(m - next);
        for (double& x : o) x *= shrink;
        const double p = std::exp(logit - next);
        l = l * shrink + p;
        m = next;
        AddValue(in.format, key, p, &o);
      }
      float* to = out.o + t * out.o_token_stride + g * in.format.head_dim;
      for (int i = 0; i < in.format.head_dim; ++i) {
        to[i] = static_cast<float>(o[i] / l);
        finite = finite && std::isfinite(to[i]);
      }
      if (out.m == nullptr) continue;
      out.m[t * in.num_heads + g] = static_cast<float>(m);
      out.l[t * in.num_heads + g] = static_cast<float>(l);
    }
  }
  return finite;
}

void PrefillMass(const PrefillMassInput& in) {
  const PrefillInput& tile = in.tile;
  for (int g = 0; g < tile.num_heads; ++g) {
    for (uint32_t r = in.begin; r < in.end; ++r) {
      double sum = in.mass[g][r];
      for (int t = 0; t < tile.num_queries; ++t) {
        if (!Sees(*tile.rows, r, tile.positions[t])) continue;
        const float* q = tile.q + t * tile.q_token_stride + g * tile.q_head_stride;
        const std::byte* key = KeyAt(tile.format, *tile.rows, r);
        const double logit = Logit(tile.format, key, q, tile.scale, tile.soft_cap);
        const int at = t * tile.num_heads + g;
        sum += std::exp(logit - in.m[at]) / in.l[at];
      }
      in.mass[g][r] = static_cast<float>(sum);
    }
  }
}

}  // namespace

double ReferenceSoftCapped(double logit, float soft_cap) {
  if (soft_cap == 0) return logit;
  return std::isfinite(logit) ? soft_cap * std::tanh(logit / soft_cap) : NAN;
}

const AttentionKernel& ReferenceAttention() {
  static constexpr AttentionKernel kKernel = {
      .name = "reference",
      .store_row = StoreRow,
      .load_row = LoadRow,
      .fold = Fold,
      .chunk_weights = ChunkWeights,
      .merge = Merge,
      .add_mass = AddMass,
      .query_tile = QueryTile,
      .prefill_scratch_floats = PrefillScratchFloats,
      .rotate = ReferenceRotate,
      .compress_row = CompressRow,
      .decompress_row = ReferenceDecompressRow,
      .fold_compressed = ReferenceFoldCompressed,
      .prefill = Prefill,
      .prefill_mass = PrefillMass,
  };
  return kKernel;
}

}  // namespace ebb
