// Folding a chunk of compressed rows (compressed.h). Included once per instruction set by cpu.cc.
//
// Keys meet queries as integers: a query is rounded to 16 bits, 1/8 of what f16 leaves out, and its
// products with a key are summed exactly, so that every instruction set has the same sums. 8-bit
// queries would double the error of int8. Scales never enter the loops over elements: a key's
// multiplies the logit, a value's the weight.
#if defined(EBB_ATTENTION_COMPRESSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_INL_H_
#undef EBB_ATTENTION_COMPRESSED_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "src/attention/attention.h"
#include "src/attention/compressed.h"
#include "src/attention/fold-inl.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<int16_t, F32>;
using U16 = hn::Repartition<uint16_t, F32>;
using U8 = hn::Repartition<uint8_t, F32>;
using VecI = hn::Vec<I32>;
inline constexpr int kWords = 2 * kLanes;      // 16-bit numbers in a vector
inline constexpr int kVectorBytes = 4 * kLanes;

inline constexpr int kMaxHeadBlock = 4;  // of ForHeadBlocks()
// Keys are read by whole vectors, into the values where head_dim ends within one; there a query
// is 0.
inline constexpr int kQueryStride = kMaxHeadDim + 32;

struct IntQueries {
  HWY_ALIGN int16_t n[kMaxHeadBlock * kQueryStride];  // [heads, kQueryStride]
  float scale[kMaxHeadBlock];                         // of n, times that of the logits
  float sum[kMaxHeadBlock];  // of a query's elements, times the logits' scale
};

HWY_INLINE void RoundQueries(const CompressedFoldInput& in, int first_head, int heads,
                             IntQueries* to) {
  const F32 d;
  const hn::Rebind<int16_t, F32> d16;
  const int dim = in.format.head_dim;
  for (int g = 0; g < heads; ++g) {
    const float* q = in.q + (first_head + g) * dim;
    int16_t* n = to->n + g * kQueryStride;
    VecF largest = hn::Zero(d), sum = hn::Zero(d);
    for (int i = 0; i < dim; i += kLanes) {
      const VecF x = hn::LoadU(d, q + i);
      largest = hn::Max(largest, hn::Abs(x));
      sum = hn::Add(sum, x);
    }
    const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
    const float total = hn::GetLane(hn::SumOfLanes(d, sum));
    const VecF inverse = hn::Set(d, top > 1e-30f ? 32767.0f / top : 0.0f);
    for (int i = 0; i < dim; i += kLanes) {
      const VecI rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, q + i), inverse));
      hn::StoreU(hn::DemoteTo(d16, rounded), d16, n + i);
    }
    for (int i = dim; i < dim + 32; i += kLanes) hn::StoreU(hn::Zero(d16), d16, n + i);
    // The sum is not finite where an element is not; the maximum may hide it.
    to->scale[g] = std::isfinite(total) ? top / 32767.0f * in.scale
                                        : std::numeric_limits<float>::quiet_NaN();
    to->sum[g] = total * in.scale;
  }
}

// The words of scale and minimum of a chunk's rows: of the keys, then of each block of values.
struct ChunkScales {
  HWY_ALIGN uint32_t words[1 + kMaxValueBlocks][kChunkRows];

  [[nodiscard]] HWY_INLINE VecF High(int part, int row) const {
    const U32 d;
    return hn::BitCast(F32(), hn::And(hn::Load(d, words[part] + row), hn::Set(d, 0xffff0000)));
  }
  [[nodiscard]] HWY_INLINE VecF Low(int part, int row) const {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::Load(U32(), words[part] + row)));
  }
};

template <class Rows, int kDim>
HWY_INLINE CompressedLayout LayoutFor(const CompressedFoldInput& in) {
  return LayoutOf(Rows::kType, kDim != 0 ? kDim : in.format.head_dim);
}

// To whole vectors; the rest of `rows` is filled with the last one.
template <class Rows, int kDim>
HWY_INLINE void GatherScales(const CompressedFoldInput& in, ChunkScales* to) {
  const CompressedLayout layout = LayoutFor<Rows, kDim>(in);
  const int padded = (in.num_rows + kLanes - 1) / kLanes * kLanes;
  for (int r = 0; r < padded; ++r) {
    const std::byte* from = in.rows[r] + layout.scales;
    for (int part = 0; part <= layout.num_blocks; ++part) {
      std::memcpy(&to->words[part][r], from + part * kScaleBytes, kScaleBytes);
    }
  }
}

template <int kHeads>
struct HeadInts {
  VecI v[kHeads];
};

template <int kHeads>
HWY_INLINE void AddProducts(hn::Vec<I16> keys, const int16_t* q, HeadInts<kHeads>* sum) {
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    const auto query = hn::LoadU(I16(), q + g * kQueryStride);
    VecI other = hn::Zero(I32());  // used by some instruction sets only
    sum->v[g] = hn::ReorderWidenMulAccumulate(I32(), keys, query, sum->v[g], other);
    sum->v[g] = hn::Add(sum->v[g], other);
  }
}

template <int kHeads>
HWY_INLINE void AddBytes(const std::byte* keys, const int16_t* q, HeadInts<kHeads>* sum) {
  const hn::Rebind<int8_t, I16> d8;
  const auto bytes = hn::LoadU(d8, reinterpret_cast<const int8_t*>(keys));
  AddProducts(hn::PromoteTo(I16(), bytes), q, sum);
}

// Bytes [kVector * kVectorBytes, ...) of a group of 64 keys, as compressed.h orders them.
template <int kVector>
HWY_INLINE hn::Vec<U8> UnpackKeys(const std::byte* group) {
  const U8 d;
  const auto* from = reinterpret_cast<const uint8_t*>(group);
  hn::Vec<U8> low;
  if constexpr (kVectorBytes == 64) {
    const hn::Half<U8> dh;
    const hn::Repartition<uint16_t, decltype(dh)> dh16;
    const auto half = hn::LoadU(dh, from);
    low = hn::Combine(d, hn::BitCast(dh, hn::ShiftRight<4>(hn::BitCast(dh16, half))), half);
  } else {
    constexpr int kAt = kVector * kVectorBytes;
    low = hn::LoadU(d, from + kAt % 32);
    if constexpr (kAt >= 32) low = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(U16(), low)));
  }
  HWY_ALIGN static constexpr uint32_t kShifts[16] = {0, 0, 0, 0, 2, 2, 2, 2,
                                                     4, 4, 4, 4, 6, 6, 6, 6};
  const auto all = hn::BitCast(U32(), hn::LoadDup128(d, from + 32));
  const auto high = all >> hn::Load(U32(), kShifts + kVector * kLanes);
  const auto placed = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(U16(), high)));
  return hn::OrAnd(hn::And(low, hn::Set(d, 0x0f)), placed, hn::Set(d, 0x30));
}

template <int kVector, int kHeads>
HWY_INLINE void AddGroup(const std::byte* group, const int16_t* q, HeadInts<kHeads>* sum) {
  if constexpr (kVector * kVectorBytes < kKeyGroup) {
    const auto pairs = hn::BitCast(U16(), UnpackKeys<kVector>(group));
    const auto even = hn::BitCast(I16(), hn::And(pairs, hn::Set(U16(), 0xff)));
    AddProducts(even, q + kVector * kWords, sum);
    AddProducts(hn::BitCast(I16(), hn::ShiftRight<8>(pairs)), q + 32 + kVector * kWords, sum);
    AddGroup<kVector + 1>(group, q, sum);
  }
}

// Int8Rows and Int4Rows: how a row's keys are multiplied and its values read.
struct Int8Rows {
  static constexpr CompressedType kType = CompressedType::kInt8;
  template <int kHeads>
  static HWY_INLINE void AddKeys(const std::byte* row, int dim, const int16_t* q,
                                 HeadInts<kHeads>* sum) {
    for (int i = 0; i < dim; i += kWords) AddBytes(row + i, q + i, sum);
  }
};

struct Int4Rows {
  static constexpr CompressedType kType = CompressedType::kInt4;
  template <int kHeads>
  static HWY_INLINE void AddKeys(const std::byte* row, int dim, const int16_t* q,
                                 HeadInts<kHeads>* sum) {
    int i = 0;
    for (; i + kKeyGroup <= dim; i += kKeyGroup, row += kKeyGroup / 4 * 3) {
      AddGroup<0>(row, q + i, sum);
    }
    for (; i < dim; i += kWords, row += kWords) AddBytes(row, q + i, sum);
  }
};

// As DotRows, in integers.
template <class Rows, int kDim, int kHeads, Fetch kFetch, int kLevels>
struct DotCompressed {
  static HWY_INLINE HeadInts<kHeads> Run(const CompressedFoldInput& in, int row,
                                         const int16_t* q) {
    using Half = DotCompressed<Rows, kDim, kHeads, kFetch, kLevels - 1>;
    const auto low = Half::Run(in, row, q);
    const auto high = Half::Run(in, row + (1 << (kLevels - 1)), q);
    HeadInts<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = AddAcross<kLevels - 1>(low.v[g], high.v[g]);
    return sum;
  }
};

template <class Rows, int kDim, int kHeads, Fetch kFetch>
struct DotCompressed<Rows, kDim, kHeads, kFetch, 0> {
  static HWY_INLINE HeadInts<kHeads> Run(const CompressedFoldInput& in, int row,
                                         const int16_t* q) {
    const int dim = kDim != 0 ? kDim : in.format.head_dim;
    if (kFetch == Fetch::kAhead) {
      const size_t bytes = LayoutFor<Rows, kDim>(in).row_stride;
      const std::byte* next = in.next_rows[row];
      for (size_t b = 0; b < bytes; b += 64) hwy::Prefetch(next + b);
      hwy::Prefetch(next + bytes - 1);
    }
    HeadInts<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = hn::Zero(I32());
    Rows::AddKeys(in.rows[row], dim, q, &sum);
    return sum;
  }
};

// logits[g][r] for kHeads heads; fetches the next chunk.
template <class Rows, int kDim, int kHeads, Fetch kFetch>
HWY_NOINLINE void CompressedKeyPass(const CompressedFoldInput& in, const IntQueries& q,
                                    const ChunkScales& scales, float* logits, size_t stride) {
  const F32 d;
  constexpr bool kInt8 = Rows::kType == CompressedType::kInt8;
  for (int r = 0; r < in.num_rows; r += kLanes) {
    const auto dots = DotCompressed<Rows, kDim, kHeads, kFetch, kLaneLevels>::Run(in, r, q.n);
    const VecF scale = kInt8 ? scales.Low(0, r) : scales.High(0, r);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      VecF logit = hn::Mul(hn::ConvertTo(d, dots.v[g]), hn::Mul(scale, hn::Set(d, q.scale[g])));
      if (!kInt8) logit = hn::MulAdd(scales.Low(0, r), hn::Set(d, q.sum[g]), logit);
      hn::StoreU(logit, d, logits + g * stride + r);
    }
  }
}

// What multiplies the integers of each block of values, and what the minima add up to.
struct ValueWeights {
  HWY_ALIGN float of_rows[kMaxValueBlocks][kMaxHeadBlock][kChunkRows];
  float offset[kMaxValueBlocks][kMaxHeadBlock];
};

HWY_INLINE void WeighInt8(const ChunkScales& scales, const float* p, size_t p_stride, int heads,
                          int num_rows, ValueWeights* to) {
  const F32 d;
  for (int g = 0; g < heads; ++g) {
    to->offset[0][g] = 0;
    for (int r = 0; r < num_rows; r += kLanes) {
      const VecF weight = hn::LoadU(d, p + g * p_stride + r);
      hn::Store(hn::Mul(weight, scales.High(0, r)), d, to->of_rows[0][g] + r);
    }
  }
}

HWY_INLINE void WeighInt4(const ChunkScales& scales, int num_blocks, const float* p,
                          size_t p_stride, int heads, int num_rows, ValueWeights* to) {
  const F32 d;
  for (int b = 0; b < num_blocks; ++b) {
    for (int g = 0; g < heads; ++g) {
      VecF offset = hn::Zero(d);
      for (int r = 0; r < num_rows; r += kLanes) {
        const VecF weight = hn::LoadU(d, p + g * p_stride + r);
        hn::Store(hn::Mul(weight, scales.High(1 + b, r)), d, to->of_rows[b][g] + r);
        offset = hn::MulAdd(weight, scales.Low(1 + b, r), offset);
      }
      to->offset[b][g] = hn::GetLane(hn::SumOfLanes(d, offset));
    }
  }
}

// How kLanes bytes of values become vectors of numbers.
template <typename Byte>
struct WholeBytes {
  static constexpr int kVecs = 1;
  static constexpr int kLoadsPerBlock = 1 << 16;
  static HWY_INLINE void Load(const std::byte* at, VecF* v) {
    const hn::Rebind<Byte, F32> d8;
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const Byte*>(at));
    v[0] = hn::ConvertTo(F32(), hn::PromoteTo(I32(), bytes));
  }
  static constexpr int Channel(int load, int) { return load * kLanes; }
};
struct Nibbles {
  static constexpr int kVecs = 2;
  static constexpr int kLoadsPerBlock = 16 / kLanes;
  static HWY_INLINE void Load(const std::byte* at, VecF* v) {
    const hn::Rebind<uint8_t, F32> d8;
    const I32 di;
    const auto n = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(at)));
    v[0] = hn::ConvertTo(F32(), hn::And(n, hn::Set(di, 15)));
    v[1] = hn::ConvertTo(F32(), hn::ShiftRight<4>(n));
  }
  static constexpr int Channel(int load, int vec) {
    return load / kLoadsPerBlock * kValueBlock + load % kLoadsPerBlock * kLanes + vec * 16;
  }
};

// Where a run of loads of values lies.
struct ValueRun {
  size_t offset = 0;  // of load 0 in a row
  int channel = 0;    // of load 0
  int block = 0;      // of load 0
  int first_load = 0;
};

// o[g] = sum over rows of weight * value, for the channels of kLoads loads. What is not finite shows
// in l[g].
template <class Values, int kLoads, int kHeads>
HWY_NOINLINE void CompressedValuePass(const CompressedFoldInput& in, const ValueRun& run,
                                      const ValueWeights& weights, float* o, float* l,
                                      size_t l_stride) {
  const F32 d;
  constexpr int kVecs = kLoads * Values::kVecs;
  constexpr int kBlocks = (kLoads + Values::kLoadsPerBlock - 1) / Values::kLoadsPerBlock;
  const int block = run.block + run.first_load / Values::kLoadsPerBlock;
  VecF sum[kHeads][kVecs];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    EBB_UNROLL
    for (int c = 0; c < kVecs; ++c) sum[g][c] = hn::Zero(d);
  }
  const size_t offset = run.offset + run.first_load * kLanes;
  for (int r = 0; r < in.num_rows; ++r) {
    const std::byte* from = in.rows[r] + offset;
    VecF v[kVecs];
    EBB_UNROLL
    for (int i = 0; i < kLoads; ++i) Values::Load(from + i * kLanes, v + i * Values::kVecs);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      EBB_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        constexpr int kVecsOfBlock = kVecs / kBlocks;
        const VecF weight = hn::Set(d, weights.of_rows[block + b][g][r]);
        EBB_UNROLL
        for (int i = 0; i < kVecsOfBlock; ++i) {
          const int c = b * kVecsOfBlock + i;
          sum[g][c] = hn::MulAdd(v[c], weight, sum[g][c]);
        }
      }
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    VecF faults = hn::Zero(d);  // 0 * x is NaN for what is not finite
    EBB_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      const VecF whole =
          hn::Add(sum[g][c], hn::Set(d, weights.offset[block + c / (kVecs / kBlocks)][g]));
      const int channel = Values::Channel(run.first_load + c / Values::kVecs, c % Values::kVecs);
      hn::StoreU(whole, d, o + g * in.format.head_dim + run.channel + channel);
      faults = hn::MulAdd(whole, hn::Zero(d), faults);
    }
    if (!hn::AllFalse(d, hn::IsNaN(faults))) {
      l[g * l_stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

// All `num_bytes` of a run, as many vectors at once as keep 4 heads' sums in registers.
template <class Values, int kHeads>
HWY_INLINE void CompressedValueRun(const CompressedFoldInput& in, ValueRun run, int num_bytes,
                                   const ValueWeights& weights, float* o, float* l,
                                   size_t l_stride) {
  constexpr int kMost = 4 / Values::kVecs;
  const int loads = num_bytes / kLanes;
  for (; run.first_load + kMost <= loads; run.first_load += kMost) {
    CompressedValuePass<Values, kMost, kHeads>(in, run, weights, o, l, l_stride);
  }
  for (; run.first_load < loads; ++run.first_load) {
    CompressedValuePass<Values, 1, kHeads>(in, run, weights, o, l, l_stride);
  }
}

template <class Rows, int kHeads>
HWY_INLINE void CompressedValues(const CompressedFoldInput& in, const ChunkScales& scales,
                                 const float* p, size_t p_stride, float* o, float* l,
                                 size_t l_stride) {
  const int dim = in.format.head_dim;
  const CompressedLayout layout = LayoutOf(in.format);
  ValueWeights weights;
  if constexpr (Rows::kType == CompressedType::kInt8) {
    WeighInt8(scales, p, p_stride, kHeads, in.num_rows, &weights);
    CompressedValueRun<WholeBytes<int8_t>, kHeads>(in, {.offset = layout.values}, dim, weights, o,
                                                   l, l_stride);
  } else {
    WeighInt4(scales, layout.num_blocks, p, p_stride, kHeads, in.num_rows, &weights);
    const int tail = dim % kValueBlock;
    const int packed = dim - tail;
    CompressedValueRun<Nibbles, kHeads>(in, {.offset = layout.values}, packed / 2, weights, o, l,
                                        l_stride);
    CompressedValueRun<WholeBytes<uint8_t>, kHeads>(in,
                                                    {.offset = layout.values + packed / 2,
                                                     .channel = packed,
                                                     .block = packed / kValueBlock},
                                                    tail, weights, o, l, l_stride);
  }
}

template <class Rows, int kDim>
void FoldCompressedRows(const CompressedFoldInput& in, const FoldOutput& out) {
  ChunkScales scales;
  GatherScales<Rows, kDim>(in, &scales);
  ForHeadBlocks(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    float* p = out.p + head * out.p_stride;
    float* l = out.l + head * out.head_stride;
    IntQueries q;
    RoundQueries(in, head, kHeads, &q);
    if (head == 0) {
      CompressedKeyPass<Rows, kDim, kHeads, Fetch::kAhead>(in, q, scales, p, out.p_stride);
    } else {
      CompressedKeyPass<Rows, kDim, kHeads, Fetch::kNothing>(in, q, scales, p, out.p_stride);
    }
    for (int g = 0; g < kHeads; ++g) {
      SoftmaxChunk(p + g * out.p_stride, in.num_rows, out.m + (head + g) * out.head_stride,
                   l + g * out.head_stride);
    }
    CompressedValues<Rows, kHeads>(in, scales, p, out.p_stride,
                                   out.o + head * in.format.head_dim, l, out.head_stride);
  });
}

template <class Rows>
void FoldCompressedType(const CompressedFoldInput& in, const FoldOutput& out) {
  switch (in.format.head_dim) {
    case 64:
      return FoldCompressedRows<Rows, 64>(in, out);
    case 128:
      return FoldCompressedRows<Rows, 128>(in, out);
    default:
      return FoldCompressedRows<Rows, 0>(in, out);
  }
}

void FoldCompressed(const CompressedFoldInput& in, const FoldOutput& out) {
  if (in.format.type == CompressedType::kInt8) return FoldCompressedType<Int8Rows>(in, out);
  FoldCompressedType<Int4Rows>(in, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_COMPRESSED_INL_H_
