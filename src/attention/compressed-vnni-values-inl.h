// Sums the weighted values of a chunk of compressed rows in integers, for head sizes that are a
// multiple of 64: four rows are interleaved byte by byte and multiplied by four weights at once.
// Compiled once per instruction set (cpu_kernels.h).
#if defined(EBB_ATTENTION_COMPRESSED_VNNI_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_VNNI_VALUES_INL_H_
#undef EBB_ATTENTION_COMPRESSED_VNNI_VALUES_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_VNNI_VALUES_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "src/attention/compressed-keys-inl.h"
#include "src/attention/compressed.h"
#include "src/attention/vnni-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// kLargestWeight is the largest weight as an integer: 2^16 less the most that rounding may add. A
// weight is scale * (256 * high + low).
inline constexpr float kLargestWeight = 65528;
struct WeightsOfFour {  // for four rows
  uint8_t high[4], low[4];
  uint8_t unused[8];  // padding, so that one vector store writes a weight
};
struct ByteWeights {
  alignas(64) WeightsOfFour rows[kMaxValueBlocks][kMaxHeadBlock][kChunkRows / 4];
  float scale[kMaxValueBlocks];
  float offset[kMaxValueBlocks][kMaxHeadBlock];  // sums of weights times minima
};

// Computes the bytes of the rows' weights: p times the scale of one block. `part` is the index of
// the block's scales in `scales`.
template <class Rows, int kHeads>
HWY_INLINE void WeighBytes(const ChunkScales& scales, int part, int block, const float* p,
                           size_t p_stride, int num_rows, ByteWeights* to) {
  const F32 d;
  VecF largest = hn::Zero(d), faults = hn::Zero(d);
  for (int r = 0; r < num_rows; r += kLanes) {
    largest = hn::Max(largest, scales.High(part, r));
    faults = hn::MulAdd(scales.High(part, r), hn::Zero(d), faults);
  }
  // `top` is at least every weight, because p is at most 1.
  const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
  const float fault = hn::AllFalse(d, hn::IsNaN(faults)) ? 0.0f : std::nanf("");
  to->scale[block] = top / kLargestWeight + fault;
  const VecF inverse = hn::Set(d, top > 1e-30f ? kLargestWeight / top : 0.0f);
  HWY_ALIGN static constexpr uint8_t kParts[16] = {1, 5, 9, 13, 0, 4, 8, 12,
                                                   0, 0, 0, 0,  0, 0, 0, 0};
  const auto parts = hn::LoadDup128(U8(), kParts);
  VecF offset[kHeads];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) offset[g] = hn::Zero(d);
  for (int r = 0; r < num_rows; r += kLanes) {
    const VecF scale = hn::Mul(scales.High(part, r), inverse);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const VecF weight = hn::LoadU(d, p + g * p_stride + r);
      // Use the plain instruction instead of NearestInt(), which also handles numbers that are too
      // large.
      const hn::Vec<U32> n{_mm512_cvtps_epi32(hn::Mul(weight, scale).raw)};
      hn::Store(hn::TableLookupBytes(hn::BitCast(U8(), n), parts), U8(),
                reinterpret_cast<uint8_t*>(to->rows[block][g] + r / 4));
      if (Rows::kType != CompressedType::kInt8) {
        offset[g] = hn::MulAdd(weight, scales.Low(part, r), offset[g]);
      }
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    to->offset[block][g] =
        Rows::kType != CompressedType::kInt8 ? hn::GetLane(hn::SumOfLanes(d, offset[g])) : 0.0f;
  }
}

// Loads four rows interleaved byte by byte: lane i has the bytes 4 * i to 4 * i + 3 of a sixteenth,
// each of the four rows in turn.
template <class D>
HWY_INLINE void Interleave(D d, const std::byte* const* rows, size_t offset, hn::Vec<D>* v) {
  hn::Vec<D> row[4];
  EBB_UNROLL
  for (int i = 0; i < 4; ++i) {
    row[i] = hn::LoadU(d, reinterpret_cast<const uint8_t*>(rows[i] + offset));
  }
  InterleaveFour(d, row, v);
}

// QuadsOfInt8, QuadsOfInt4 and QuadsOfInt3 load 64 channels of four rows as four vectors. Block()
// returns the block of a vector; Channel() returns the first channel of a vector's four lanes.
struct QuadsOfInt8 {
  static constexpr size_t kBytes = 64;
  static HWY_INLINE void Load(const std::byte* const* rows, size_t offset, hn::Vec<U8>* v) {
    Interleave(U8(), rows, offset, v);
  }
  static constexpr int Block(int) { return 0; }
  static constexpr int Channel(int vec, int quarter) { return 16 * quarter + 4 * vec; }
};
struct QuadsOfInt4 {
  static constexpr size_t kBytes = 32;
  static HWY_INLINE void Load(const std::byte* const* rows, size_t offset, hn::Vec<U8>* v) {
    const U8 d;
    const auto nibble = hn::Set(d, 0x0f);
    hn::Vec<hn::Half<U8>> halves[4];
    Interleave(hn::Half<U8>(), rows, offset, halves);
    EBB_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto both = hn::Combine(d, halves[2 * i + 1], halves[2 * i]);
      v[i] = hn::And(both, nibble);
      v[2 + i] = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(U16(), both))), nibble);
    }
  }
  static constexpr int Block(int vec) { return vec / 2; }
  static constexpr int Channel(int vec, int quarter) {
    return 32 * (vec / 2) + 8 * (vec % 2) + 16 * (quarter % 2) + 4 * (quarter / 2);
  }
};

struct QuadsOfInt3 {
  static constexpr size_t kBytes = kInt3ValueBytes;
  static HWY_INLINE void Load(const std::byte* const* rows, size_t offset, hn::Vec<U8>* v) {
    const U8 d;
    const hn::Repartition<uint64_t, U8> d64;
    HWY_ALIGN static constexpr uint32_t kShifts[16] = {0, 0, 0, 0, 2, 2, 2, 2,
                                                       4, 4, 4, 4, 6, 6, 6, 6};
    const auto low_shifts = hn::Load(U32(), kShifts);
    const auto high_shifts = hn::Iota(d64, 0);
    hn::Vec<U8> row[4];
    EBB_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto* const from = reinterpret_cast<const uint8_t*>(rows[i] + offset);
      uint64_t high_bits;
      std::memcpy(&high_bits, from + 16, sizeof(high_bits));
      const auto low = hn::BitCast(U32(), hn::LoadDup128(d, from)) >> low_shifts;
      const auto high = hn::ShiftLeft<2>(hn::Set(d64, high_bits) >> high_shifts);
      row[i] = hn::OrAnd(hn::And(hn::BitCast(d, low), hn::Set(d, 0x03)), hn::BitCast(d, high),
                         hn::Set(d, 0x04));
    }
    InterleaveFour(d, row, v);
  }
  static constexpr int Block(int) { return 0; }
  static constexpr int Channel(int vec, int quarter) { return 16 * quarter + 4 * vec; }
};

// Sums weighted values as CompressedValuePass() does, for 64 channels and at most 3 heads from
// `head` on, whose sums fill the registers.
template <class Quads, int kHeads>
HWY_NOINLINE void QuadsPass(const CompressedFoldInput& in, size_t row_offset, int block, int head,
                            const ByteWeights& weights, float* o, float* l, size_t l_stride) {
  const F32 d;
  const hn::RebindToSigned<U8> d8;
  VecI high[kHeads][4], low[kHeads][4];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    EBB_UNROLL
    for (int c = 0; c < 4; ++c) high[g][c] = low[g][c] = hn::Zero(I32());
  }
  const auto four = [](const uint8_t* from) HWY_ATTR {
    uint32_t weights_of_rows;
    std::memcpy(&weights_of_rows, from, sizeof(weights_of_rows));
    return hn::BitCast(U8(), hn::Set(U32(), weights_of_rows));
  };
  // Rows are read four at a time: weights beyond the last row are 0, and `rows` repeats the last
  // row there.
  for (int r = 0; r < in.num_rows; r += 4) {
    hn::Vec<U8> v[4];
    Quads::Load(in.rows + r, row_offset, v);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      EBB_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int b = block + Quads::Block(c);
        const WeightsOfFour& of_rows = weights.rows[b][head + g][r / 4];
        high[g][c] = AddQuads(high[g][c], four(of_rows.high), hn::BitCast(d8, v[c]));
        low[g][c] = AddQuads(low[g][c], four(of_rows.low), hn::BitCast(d8, v[c]));
      }
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    VecF faults = hn::Zero(d);  // 0 * x is NaN if x is not finite
    EBB_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int b = block + Quads::Block(c);
      const VecI n = hn::Add(hn::ShiftLeft<8>(high[g][c]), low[g][c]);
      const VecF sum = hn::MulAdd(hn::ConvertTo(d, n), hn::Set(d, weights.scale[b]),
                                  hn::Set(d, weights.offset[b][head + g]));
      faults = hn::MulAdd(sum, hn::Zero(d), faults);
      HWY_ALIGN float lanes[16];
      hn::Store(sum, d, lanes);
      EBB_UNROLL
      for (int quarter = 0; quarter < 4; ++quarter) {
        std::memcpy(o + (head + g) * in.format.head_dim + Quads::Channel(c, quarter),
                    lanes + 4 * quarter, 4 * sizeof(float));
      }
    }
    if (!hn::AllFalse(d, hn::IsNaN(faults))) {
      l[(head + g) * l_stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

template <class Rows, int kHeads>
HWY_INLINE void VnniValues(const CompressedFoldInput& in, const ChunkScales& scales, const float* p,
                           size_t p_stride, float* o, float* l, size_t l_stride) {
  constexpr bool kInt8 = Rows::kType == CompressedType::kInt8;
  constexpr bool kInt4 = Rows::kType == CompressedType::kInt4;
  using OfBlocks = std::conditional_t<kInt4, QuadsOfInt4, QuadsOfInt3>;
  using Quads = std::conditional_t<kInt8, QuadsOfInt8, OfBlocks>;
  constexpr int kChannels = kInt4 ? kValueBlock : kInt3ValueBlock;  // channels of a block
  const CompressedLayout layout = LayoutOf(in.format);
  ByteWeights weights;
  const int num_blocks = kInt8 ? 1 : layout.num_blocks;
  for (int b = 0; b < num_blocks; ++b) {
    WeighBytes<Rows, kHeads>(scales, kInt8 ? 0 : 1 + b, b, p, p_stride, in.num_rows, &weights);
  }
  for (int channel = 0; channel < in.format.head_dim; channel += 64) {
    const size_t offset = layout.values + channel / 64 * Quads::kBytes;
    const int block = kInt8 ? 0 : channel / kChannels;
    if constexpr (kHeads <= 3) {
      QuadsPass<Quads, kHeads>(in, offset, block, 0, weights, o + channel, l, l_stride);
    } else {
      QuadsPass<Quads, 2>(in, offset, block, 0, weights, o + channel, l, l_stride);
      QuadsPass<Quads, 2>(in, offset, block, 2, weights, o + channel, l, l_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // EBB_ATTENTION_COMPRESSED_VNNI_VALUES_INL_H_
