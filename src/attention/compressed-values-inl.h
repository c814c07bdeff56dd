// Sums the weighted values of a chunk of compressed rows. Compiled once per instruction set
// (cpu_kernels.h).
#if defined(EBB_ATTENTION_COMPRESSED_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_VALUES_INL_H_
#undef EBB_ATTENTION_COMPRESSED_VALUES_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_VALUES_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/attention/compressed-keys-inl.h"
#include "src/attention/compressed.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// ValueWeights has each row's softmax weight times the scale of each block of its value, and the
// sums of weights times minima.
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

// Computes the ValueWeights of int4 and int3 rows. `first` is the index in `scales` of the first
// block.
HWY_INLINE void WeighBlocks(const ChunkScales& scales, int first, int num_blocks, const float* p,
                            size_t p_stride, int heads, int num_rows, ValueWeights* to) {
  const F32 d;
  for (int b = 0; b < num_blocks; ++b) {
    for (int g = 0; g < heads; ++g) {
      VecF offset = hn::Zero(d);
      for (int r = 0; r < num_rows; r += kLanes) {
        const VecF weight = hn::LoadU(d, p + g * p_stride + r);
        hn::Store(hn::Mul(weight, scales.High(first + b, r)), d, to->of_rows[b][g] + r);
        offset = hn::MulAdd(weight, scales.Low(first + b, r), offset);
      }
      to->offset[b][g] = hn::GetLane(hn::SumOfLanes(d, offset));
    }
  }
}

// WholeBytes and Nibbles load kLanes bytes of values and convert them to kVecs vectors of floats.
template <typename Byte>
struct WholeBytes {
  static constexpr int kVecs = 1;
  static HWY_INLINE void Load(const std::byte* at, VecF* v) {
    const hn::Rebind<Byte, F32> d8;
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const Byte*>(at));
    v[0] = hn::ConvertTo(F32(), hn::PromoteTo(I32(), bytes));
  }
};
struct Nibbles {
  static constexpr int kVecs = 2;
  static HWY_INLINE void Load(const std::byte* at, VecF* v) {
    const hn::Rebind<uint8_t, F32> d8;
    const I32 di;
    const auto n = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(at)));
    v[0] = hn::ConvertTo(F32(), hn::And(n, hn::Set(di, 15)));
    v[1] = hn::ConvertTo(F32(), hn::ShiftRight<4>(n));
  }
};

// ValueRun describes a range of bytes within each row's values, and which channels a load of it
// yields.
struct ValueRun {
  size_t offset = 0;  // offset of the first byte in a row
  int num_bytes = 0;
  int channel = 0;    // channel of the first byte
  int block[2] = {};  // block of the first and of the second vector of a load
  int second = 0;     // channels between the first and the second vector
};

// Computes o[g] = sum over rows of weight * value, for the channels of kLoads loads from byte
// `first` of a run on. A number that is not finite makes l[g] NaN.
template <class Values, int kLoads, int kHeads>
HWY_NOINLINE void CompressedValuePass(const CompressedFoldInput& in, const ValueRun& run, int first,
                                      const ValueWeights& weights, float* o, float* l,
                                      size_t l_stride) {
  const F32 d;
  constexpr int kVecs = Values::kVecs;
  VecF sum[kHeads][kLoads][kVecs];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    EBB_UNROLL
    for (int i = 0; i < kLoads * kVecs; ++i) sum[g][i / kVecs][i % kVecs] = hn::Zero(d);
  }
  for (int r = 0; r < in.num_rows; ++r) {
    const std::byte* from = in.rows[r] + run.offset + first;
    VecF v[kLoads][kVecs];
    EBB_UNROLL
    for (int i = 0; i < kLoads; ++i) Values::Load(from + i * kLanes, v[i]);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      EBB_UNROLL
      for (int k = 0; k < kVecs; ++k) {
        const VecF weight = hn::Set(d, weights.of_rows[run.block[k]][g][r]);
        EBB_UNROLL
        for (int i = 0; i < kLoads; ++i) sum[g][i][k] = hn::MulAdd(v[i][k], weight, sum[g][i][k]);
      }
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    VecF faults = hn::Zero(d);  // 0 * x is NaN if x is not finite
    EBB_UNROLL
    for (int i = 0; i < kLoads * kVecs; ++i) {
      const int load = i / kVecs, k = i % kVecs;
      const VecF offset = hn::Set(d, weights.offset[run.block[k]][g]);
      const VecF whole = hn::Add(sum[g][load][k], offset);
      const int channel = run.channel + first + load * kLanes + k * run.second;
      hn::StoreU(whole, d, o + g * in.format.head_dim + channel);
      faults = hn::MulAdd(whole, hn::Zero(d), faults);
    }
    if (!hn::AllFalse(d, hn::IsNaN(faults))) {
      l[g * l_stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

// Chooses the number of loads per pass such that the sums of all heads stay in registers.
template <class Values, int kHeads>
HWY_INLINE void CompressedValueRun(const CompressedFoldInput& in, const ValueRun& run,
                                   const ValueWeights& weights, float* o, float* l,
                                   size_t l_stride) {
  constexpr int kMost = (kHeads <= 3 || kHasManyRegisters ? 4 : 2) / Values::kVecs;
  int first = 0;
  for (; first + kMost * kLanes <= run.num_bytes; first += kMost * kLanes) {
    CompressedValuePass<Values, kMost, kHeads>(in, run, first, weights, o, l, l_stride);
  }
  for (; first < run.num_bytes; first += kLanes) {
    CompressedValuePass<Values, 1, kHeads>(in, run, first, weights, o, l, l_stride);
  }
}

template <int kHeads>
HWY_INLINE void Int4ValueRuns(const CompressedFoldInput& in, const ValueWeights& weights, float* o,
                              float* l, size_t l_stride) {
  const int dim = in.format.head_dim;
  ValueRun run = {.offset = LayoutOf(in.format).values};
  while (run.channel + kValueBlock <= dim) {
    const bool pair = run.channel + 2 * kValueBlock <= dim;
    run.num_bytes = pair ? kValueBlock : kValueBlock / 2;
    run.second = run.num_bytes;
    run.block[1] = run.block[0] + (pair ? 1 : 0);
    CompressedValueRun<Nibbles, kHeads>(in, run, weights, o, l, l_stride);
    run.offset += run.num_bytes;
    run.channel += 2 * run.num_bytes;
    run.block[0] = run.block[1] + 1;
  }
  run.num_bytes = dim - run.channel;
  CompressedValueRun<WholeBytes<uint8_t>, kHeads>(in, run, weights, o, l, l_stride);
}

// Unpacks a block of 64 values of int3 to one byte each.
HWY_INLINE void UnpackInt3Values(const std::byte* from, uint8_t* to) {
  const U8 d;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  uint64_t high_bits;
  std::memcpy(&high_bits, bytes + 16, sizeof(high_bits));
  const auto low = hn::BitCast(U32(), hn::LoadDup128(d, bytes));
  const auto high = hn::BitCast(d, hn::Set(hn::Repartition<uint64_t, U8>(), high_bits));
  // The high bit of value i is bit i / 8 of byte i % 8.
  constexpr uint64_t kBytesOfOnes = 0x0101010101010101;
  HWY_ALIGN static constexpr uint64_t kBits[8] = {
      kBytesOfOnes,      kBytesOfOnes << 1, kBytesOfOnes << 2, kBytesOfOnes << 3,
      kBytesOfOnes << 4, kBytesOfOnes << 5, kBytesOfOnes << 6, kBytesOfOnes << 7};
  for (int i = 0; i < 64; i += kVectorBytes) {
    const auto two_bits =
        hn::And(hn::BitCast(d, low >> hn::Load(U32(), kQuarterShifts + i / 4)), hn::Set(d, 3));
    const auto bit = hn::Load(d, reinterpret_cast<const uint8_t*>(kBits) + i);
    const auto is_set = hn::VecFromMask(d, hn::And(high, bit) == bit);
    hn::StoreU(hn::Or(two_bits, hn::And(is_set, hn::Set(d, 4))), d, to + i);
  }
}

// Stores levels of int2 less the centre, a signed byte each.
HWY_INLINE void StoreLevels(const UnpackedGroup& group, int centre, uint8_t* to) {
  const U8 d;
  EBB_UNROLL
  for (int i = 0; i < kKeyGroup / kVectorBytes; ++i) {
    const auto levels = hn::Sub(group.v[i], hn::Set(d, static_cast<uint8_t>(centre)));
    hn::StoreU(levels, d, to + i * kVectorBytes);
  }
}

// Unpacks a group of 64 keys of int4, int3 or int2 to one byte each.
template <CompressedType kType>
HWY_INLINE void UnpackKeys(const std::byte* from, uint8_t* to) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  uint8_t unpacked[kKeyGroup];  // in the order of KeyPlace::unpacked
  if constexpr (kType == CompressedType::kInt2) {
    StoreLevels(UnpackTrellisGroupOfKeys(from), kKeyTrellis.centre, unpacked);
  } else {
    for (int i = 0; i < 32; ++i) {
      unpacked[i] = bytes[i] & 15;
      unpacked[32 + i] = bytes[i] >> 4;
    }
  }
  if constexpr (kType == CompressedType::kInt4) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 16; ++i) {
        unpacked[16 * quarter + i] |= (bytes[32 + i] >> (2 * quarter) & 3) << 4;
      }
    }
  }
  for (int i = 0; i < 32; ++i) {
    to[i] = unpacked[2 * i];
    to[32 + i] = unpacked[2 * i + 1];
  }
}

// ElementGroups describes a row's groups of 64 elements, which are followed by one byte for each of
// the remaining elements.
struct ElementGroups {
  size_t offset = 0;        // offset of the first group in a row
  int bytes = 0;            // size of a group
  bool has_scales = false;  // each group is a block; false: all are block 0
};

// Sums weighted values that unpack(from, to) writes as one Byte each.
template <typename Byte, int kHeads, class Unpack>
HWY_INLINE void UnpackedValueRuns(const CompressedFoldInput& in, const ElementGroups& groups,
                                  const Unpack& unpack, const ValueWeights& weights, float* o,
                                  float* l, size_t l_stride) {
  constexpr int kGroup = 64;
  static_assert(kGroup == kInt3ValueBlock && kGroup == kKeyGroup);
  alignas(64) uint8_t bytes[kChunkRows][kGroup];
  const std::byte* rows[kChunkRows];
  for (int r = 0; r < in.num_rows; ++r) rows[r] = reinterpret_cast<const std::byte*>(bytes[r]);
  CompressedFoldInput unpacked = in;
  unpacked.rows = rows;
  const int num_groups = in.format.head_dim / kGroup;
  for (int group = 0; group < num_groups; ++group) {
    for (int r = 0; r < in.num_rows; ++r) {
      unpack(in.rows[r] + groups.offset + group * groups.bytes, bytes[r]);
    }
    const int block = groups.has_scales ? group : 0;
    const ValueRun run = {.num_bytes = kGroup, .channel = group * kGroup, .block = {block, block}};
    CompressedValueRun<WholeBytes<Byte>, kHeads>(unpacked, run, weights, o, l, l_stride);
  }
  const int block = groups.has_scales ? num_groups : 0;
  const ValueRun tail = {.offset = groups.offset + size_t(num_groups) * groups.bytes,
                         .num_bytes = in.format.head_dim % kGroup,
                         .channel = num_groups * kGroup,
                         .block = {block, block}};
  CompressedValueRun<WholeBytes<Byte>, kHeads>(in, tail, weights, o, l, l_stride);
}

template <class Rows, int kHeads>
HWY_INLINE void CompressedValues(const CompressedFoldInput& in, const ChunkScales& scales,
                                 const float* p, size_t p_stride, float* o, float* l,
                                 size_t l_stride) {
  ValueWeights weights;
  const CompressedLayout layout = LayoutOf(in.format);
  if constexpr (Rows::kType == CompressedType::kInt8) {
    WeighInt8(scales, p, p_stride, kHeads, in.num_rows, &weights);
    const ValueRun run = {.offset = layout.values, .num_bytes = in.format.head_dim};
    CompressedValueRun<WholeBytes<int8_t>, kHeads>(in, run, weights, o, l, l_stride);
  } else if constexpr (Rows::kType == CompressedType::kInt2) {
    WeighInt8(scales, p, p_stride, kHeads, in.num_rows, &weights);
    const bool has_values = in.format.has_values;
    const ElementGroups groups = {.offset = layout.values,
                                  .bytes = has_values ? kTrellisValueBytes : kTrellisKeyBytes};
    const auto unpack = [has_values](const std::byte* from, uint8_t* to) HWY_ATTR {
      if (!has_values) return UnpackKeys<Rows::kType>(from, to);
      StoreLevels(UnpackTrellisGroupOfValues(from), kValueTrellis.centre, to);
    };
    UnpackedValueRuns<int8_t, kHeads>(in, groups, unpack, weights, o, l, l_stride);
  } else {
    if (!in.format.has_values) {
      // Without values, the key is the value, with one scale for all elements.
      WeighBlocks(scales, 0, 1, p, p_stride, kHeads, in.num_rows, &weights);
      const ElementGroups keys = {.bytes = KeyGroupBytes(Rows::kType), .has_scales = false};
      const auto unpack = [](const std::byte* from, uint8_t* to)
                              HWY_ATTR { UnpackKeys<Rows::kType>(from, to); };
      return UnpackedValueRuns<uint8_t, kHeads>(in, keys, unpack, weights, o, l, l_stride);
    }
    WeighBlocks(scales, 1, layout.num_blocks, p, p_stride, kHeads, in.num_rows, &weights);
    if constexpr (Rows::kType == CompressedType::kInt4) {
      Int4ValueRuns<kHeads>(in, weights, o, l, l_stride);
    } else {
      const ElementGroups values = {
          .offset = layout.values, .bytes = kInt3ValueBytes, .has_scales = true};
      const auto unpack = [](const std::byte* from, uint8_t* to)
                              HWY_ATTR { UnpackInt3Values(from, to); };
      UnpackedValueRuns<uint8_t, kHeads>(in, values, unpack, weights, o, l, l_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_COMPRESSED_VALUES_INL_H_
