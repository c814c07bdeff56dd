// Computes the logits of a chunk of compressed rows. Compiled once per instruction set
// (cpu_kernels.h).
#if defined(EBB_ATTENTION_COMPRESSED_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_KEYS_INL_H_
#undef EBB_ATTENTION_COMPRESSED_KEYS_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_KEYS_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/attention/compressed.h"
#include "src/attention/fold-inl.h"
#include "src/attention/vnni-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// kMaxHeadBlock is how many query heads share a pass over compressed rows.
inline constexpr int kMaxHeadBlock = kVectorBytes == 32 ? 6 : 4;

// ChunkScales has a chunk's words of scale and minimum, by row: first the keys' words, then those
// of each block of values.
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
  return LayoutOf(Rows::kType, kDim != 0 ? kDim : in.format.head_dim, in.format.has_values);
}

// Loads four words at offset `at` of every fourth row.
template <class D>
HWY_INLINE hn::Vec<D> LoadFourths(D d, const std::byte* const* rows, size_t at) {
  constexpr size_t kWordsOfD = hn::MaxLanes(D());
  if constexpr (kWordsOfD == 4) {
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(rows[0] + at));
  } else {
    const hn::Half<D> dh;
    return hn::Combine(d, LoadFourths(dh, rows + kWordsOfD / 2, at), LoadFourths(dh, rows, at));
  }
}

// Transposes four vectors: to[i] gets the i-th quarter of each 16 bytes, with the elements of x[0]
// to x[3] interleaved.
template <class D>
HWY_INLINE void InterleaveFour(D d, const hn::Vec<D>* x, hn::Vec<D>* to) {
  const hn::RepartitionToWide<D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, x[0], x[1]));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, x[0], x[1]));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, x[2], x[3]));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, x[2], x[3]));
  to[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  to[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  to[2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  to[3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
}

// Loads four words at offset `at` of kLanes rows, transposed: word w of row i is lane i of to[w].
HWY_INLINE void TransposeWords(const std::byte* const* rows, size_t at, hn::Vec<U32>* to) {
  hn::Vec<U32> x[4];
  EBB_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = LoadFourths(U32(), rows + i, at);
  InterleaveFour(U32(), x, to);
}

// Copies the scales of all rows in whole vectors. REQUIRES: in.rows is padded with the last row.
template <class Rows, int kDim>
HWY_INLINE void GatherScales(const CompressedFoldInput& in, ChunkScales* to) {
  const CompressedLayout layout = LayoutFor<Rows, kDim>(in);
  if (LayoutOf(Rows::kType, kDim).num_blocks == 2 && in.format.has_values) {
    for (int r = 0; r < in.num_rows; r += kLanes) {
      hn::Vec<U32> words[4];  // the last four of a row
      TransposeWords(in.rows + r, layout.row_stride - 4 * kScaleBytes, words);
      EBB_UNROLL
      for (int part = 0; part < 3; ++part) {
        hn::Store(words[part + 1], U32(), to->words[part] + r);
      }
    }
    return;
  }
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

template <Dots kDots, int kHeads>
HWY_INLINE void AddProducts(hn::Vec<I16> keys, const RoundedQuery* queries, int at,
                            HeadInts<kHeads>* sum) {
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    const auto query = hn::LoadU(I16(), queries[g].n + at);
    if constexpr (kDots == Dots::kVnni) {
      sum->v[g] = AddPairs(sum->v[g], keys, query);
    } else {
      VecI other = hn::Zero(I32());  // used by some instruction sets only
      sum->v[g] = hn::ReorderWidenMulAccumulate(I32(), keys, query, sum->v[g], other);
      sum->v[g] = hn::Add(sum->v[g], other);
    }
  }
}

template <Dots kDots, int kHeads>
HWY_INLINE void AddBytes(const std::byte* keys, const RoundedQuery* queries, int at,
                         HeadInts<kHeads>* sum) {
  const hn::Rebind<int8_t, I16> d8;
  const auto bytes = hn::LoadU(d8, reinterpret_cast<const int8_t*>(keys));
  AddProducts<kDots>(hn::PromoteTo(I16(), bytes), queries, at, sum);
}

// kQuarterShifts moves the pair of bits of each quarter of 64 elements to the bottom, by words.
HWY_ALIGN inline constexpr uint32_t kQuarterShifts[16] = {0, 0, 0, 0, 2, 2, 2, 2,
                                                          4, 4, 4, 4, 6, 6, 6, 6};

// Unpacks vector number kVector of a group of 64 keys of int4 or int3.
template <CompressedType kType, int kVector>
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
  const auto nibbles = hn::And(low, hn::Set(d, 0x0f));
  if constexpr (kType == CompressedType::kInt3) return nibbles;
  const auto all = hn::BitCast(U32(), hn::LoadDup128(d, from + 32));
  const auto high = all >> hn::Load(U32(), kQuarterShifts + kVector * kLanes);
  const auto placed = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(U16(), high)));
  return hn::OrAnd(nibbles, placed, hn::Set(d, 0x30));
}

#if HWY_TARGET == HWY_AVX2
inline constexpr bool kMultipliesBytes = true;
// Adds the products of 64 keys, each at most 63, and the bytes of a query, so that the sum of four
// products fits into 16 bits.
HWY_INLINE VecI AddProductsOfBytes(VecI sum, hn::Vec<U8> first, hn::Vec<U8> second,
                                   const int8_t* query) {
  const auto* const bytes = reinterpret_cast<const __m256i*>(query);
  const __m256i pairs =
      _mm256_add_epi16(_mm256_maddubs_epi16(first.raw, _mm256_load_si256(bytes)),
                       _mm256_maddubs_epi16(second.raw, _mm256_load_si256(bytes + 1)));
  return VecI{_mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
}
#else
inline constexpr bool kMultipliesBytes = false;
inline VecI AddProductsOfBytes(VecI sum, hn::Vec<U8>, hn::Vec<U8>, const int8_t*) { return sum; }
#endif

// TwoBitPairs unpacks the two bits of the codes of a group (trellis.h): a nibble of the code at a
// time and of the one before, by PlaceOfTime(), a vector of 32 bytes or less in each half.
struct TwoBitPairs {
  // D has at most 32 bytes.
  static constexpr int kBytes = kVectorBytes < 32 ? kVectorBytes : 32;
  using D = hn::CappedTag<uint8_t, kBytes>;
  using D16 = hn::Repartition<uint16_t, D>;
  static constexpr int kNumVectors = kKeyGroup / kBytes, kNumHalf = kNumVectors / 2;
  hn::Vec<D> v[kNumVectors];

  explicit HWY_INLINE TwoBitPairs(const std::byte* group) {
    const D d;
    const auto codes = hn::LoadDup128(d, reinterpret_cast<const uint8_t*>(group));
    const auto high = hn::BitCast(d, hn::ShiftLeft<2>(hn::BitCast(D16(), codes)));
    const auto before = hn::ShiftLeftBytes<1>(d, codes);
    const auto low = hn::BitCast(d, hn::ShiftRight<6>(hn::BitCast(D16(), before)));
    const auto even = hn::Or(hn::And(high, hn::Set(d, 0xfc)), hn::And(low, hn::Set(d, 3)));
    const auto nibble = hn::Set(d, 15);
    if constexpr (kNumHalf == 1) {
      const auto both = hn::ConcatUpperLower(d, codes, even);
      v[0] = hn::And(both, nibble);
      v[1] = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(D16(), both))), nibble);
    } else {
      v[0] = hn::And(even, nibble);
      v[1] = hn::And(codes, nibble);
      v[2] = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(D16(), even))), nibble);
      v[3] = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(D16(), codes))), nibble);
    }
  }
};

// UnpackedGroup holds a group of 64 elements, a byte each.
struct UnpackedGroup {
  hn::Vec<U8> v[kKeyGroup / kVectorBytes];
};

using TrellisD = TwoBitPairs::D;
// Adds the levels of both tables. `second`: the nibbles of the second window, as TwoBitPairs::v.
template <class D>
HWY_INLINE UnpackedGroup AddLevels(D d, const TrellisTable& table, const hn::Vec<D>* first,
                                   const hn::Vec<D>* second) {
  const auto of_first = hn::LoadDup128(d, table.first), of_second = hn::LoadDup128(d, table.second);
  constexpr int kNumVectors = kKeyGroup / static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> levels[kNumVectors];
  EBB_UNROLL
  for (int i = 0; i < kNumVectors; ++i) {
    levels[i] = hn::Add(hn::TableLookupBytes(of_first, first[i]),
                        hn::TableLookupBytes(of_second, second[i]));
  }
  UnpackedGroup group;
  if constexpr (hn::MaxLanes(D()) < kVectorBytes) {
    group.v[0] = hn::Combine(U8(), levels[1], levels[0]);
  } else {
    EBB_UNROLL
    for (int i = 0; i < kNumVectors; ++i) group.v[i] = levels[i];
  }
  return group;
}

// Unpacks a group of 64 values of int2 to levels.
HWY_INLINE UnpackedGroup UnpackTrellisGroupOfValues(const std::byte* from) {
  const TrellisD d;
  const TwoBitPairs pairs(from);
  constexpr int kHalf = TwoBitPairs::kNumHalf;
  hn::Vec<TrellisD> second[TwoBitPairs::kNumVectors];
  EBB_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    second[i] = hn::ShiftLeftBytes<1>(d, pairs.v[kHalf + i]);
    second[kHalf + i] = pairs.v[i];
  }
  return AddLevels(d, kValueTrellis, pairs.v, second);
}

// Unpacks a group of 64 keys of int2 to levels.
HWY_INLINE UnpackedGroup UnpackTrellisGroupOfKeys(const std::byte* from) {
  const TrellisD d;
  using D16 = TwoBitPairs::D16;
  const hn::Repartition<uint64_t, TrellisD> d64;
  // Two words of third bits, for bytes 0 to 7 and 8 to 15 of each 16.
  HWY_ALIGN static constexpr uint64_t kHalves[4] = {0, 4, 0, 4};
  uint64_t third_bits;
  std::memcpy(&third_bits, from + 16, sizeof(third_bits));
  const auto nibble = hn::Set(d, 15);
  const auto now =
      hn::And(hn::BitCast(d, hn::Set(d64, third_bits) >> hn::Load(d64, kHalves)), nibble);
  const auto high = hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(D16(), now)));
  const auto bits = hn::BitCast(D16(), hn::Or(high, hn::ShiftLeftBytes<1>(d, now)));
  const auto window = [&](auto by) HWY_ATTR {
    return hn::And(hn::BitCast(d, hn::ShiftRight<decltype(by)::value>(bits)), nibble);
  };
  using std::integral_constant;
  const auto w0 = window(integral_constant<int, 1>()), w1 = window(integral_constant<int, 2>());
  const auto w2 = window(integral_constant<int, 3>()), w3 = window(integral_constant<int, 4>());
  hn::Vec<TrellisD> second[TwoBitPairs::kNumVectors];
  if constexpr (TwoBitPairs::kNumHalf == 1) {
    second[0] = hn::ConcatUpperLower(d, w1, w0);
    second[1] = hn::ConcatUpperLower(d, w3, w2);
  } else {
    second[0] = w0;
    second[1] = w1;
    second[2] = w2;
    second[3] = w3;
  }
  return AddLevels(d, kKeyTrellis, TwoBitPairs(from).v, second);
}

template <CompressedType kType, int kVector>
HWY_INLINE void UnpackVectors(const std::byte* group, UnpackedGroup* to) {
  if constexpr (kVector * kVectorBytes < kKeyGroup) {
    to->v[kVector] = UnpackKeys<kType, kVector>(group);
    UnpackVectors<kType, kVector + 1>(group, to);
  }
}
// Unpacks a group of 64 keys, in the order of compressed.h.
template <CompressedType kType>
HWY_INLINE UnpackedGroup UnpackGroup(const std::byte* group) {
  if constexpr (kType == CompressedType::kInt2) return UnpackTrellisGroupOfKeys(group);
  UnpackedGroup keys;
  UnpackVectors<kType, 0>(group, &keys);
  return keys;
}

template <Dots kDots, int kHeads>
HWY_INLINE void AddGroup(const UnpackedGroup& keys, const RoundedQuery* queries, int at,
                         HeadInts<kHeads>* sum) {
  if constexpr (kDots == Dots::kVnni) {
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const hn::RebindToSigned<U8> d;
      sum->v[g] = AddQuads(sum->v[g], keys.v[0], hn::LoadU(d, queries[g].unpacked + at));
    }
  } else if constexpr (kMultipliesBytes) {
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      sum->v[g] = AddProductsOfBytes(sum->v[g], keys.v[0], keys.v[1], queries[g].unpacked + at);
    }
  } else {
    EBB_UNROLL
    for (int i = 0; i < kKeyGroup / kVectorBytes; ++i) {
      const auto pairs = hn::BitCast(U16(), keys.v[i]);
      const auto even = hn::BitCast(I16(), hn::And(pairs, hn::Set(U16(), 0xff)));
      const auto odd = hn::BitCast(I16(), hn::ShiftRight<8>(pairs));
      AddProducts<kDots>(even, queries, at + i * kWords, sum);
      AddProducts<kDots>(odd, queries, at + 32 + i * kWords, sum);
    }
  }
}

// Int8Rows computes products of queries with keys of int8 rows.
struct Int8Rows {
  static constexpr CompressedType kType = CompressedType::kInt8;
  template <Dots kDots, int kHeads>
  static HWY_INLINE void AddKeys(const std::byte* row, int dim, const RoundedQuery* queries,
                                 HeadInts<kHeads>* sum) {
    for (int i = 0; i < dim; i += kWords) AddBytes<kDots>(row + i, queries, i, sum);
  }
};

// PackedRows computes products of queries with keys of int4, int3 or int2 rows.
template <CompressedType kOf>
struct PackedRows {
  static constexpr CompressedType kType = kOf;
  template <Dots kDots, int kHeads>
  static HWY_INLINE void AddKeys(const std::byte* row, int dim, const RoundedQuery* queries,
                                 HeadInts<kHeads>* sum) {
    int i = 0;
    for (; i + kKeyGroup <= dim; i += kKeyGroup, row += KeyGroupBytes(kType)) {
      AddGroup<kDots>(UnpackGroup<kType>(row), queries, i, sum);
    }
    for (; i < dim; i += kWords, row += kWords) AddBytes<kDots>(row, queries, i, sum);
  }
};

// Adds lanes as AddAcross() does; for integers this takes one instruction less.
template <int kLevel>
HWY_INLINE VecI AddIntsAcross(VecI a, VecI b) {
  const I32 d;
  if constexpr (kLevel == 0) {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  } else if constexpr (kLevel == 1) {
    const hn::Repartition<uint64_t, I32> d64;
    const auto a64 = hn::BitCast(d64, a);
    const auto b64 = hn::BitCast(d64, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  } else {
    return AddAcross<kLevel>(a, b);
  }
}

template <class Rows, int kDim>
HWY_INLINE void FetchCompressed(const CompressedFoldInput& in, const std::byte* row) {
  const size_t bytes = LayoutFor<Rows, kDim>(in).row_stride;
  for (size_t b = 0; b < bytes; b += 64) FetchLine(row + b);
  FetchLine(row + bytes - 1);
}

// DotCompressed computes dot products of queries with several rows, as DotRows does, but in
// integers.
template <class Rows, Dots kDots, int kDim, int kHeads, Fetch kFetch, int kLevels>
struct DotCompressed {
  static HWY_INLINE HeadInts<kHeads> Run(const CompressedFoldInput& in, int row,
                                         const RoundedQuery* queries) {
    using Half = DotCompressed<Rows, kDots, kDim, kHeads, kFetch, kLevels - 1>;
    const auto low = Half::Run(in, row, queries);
    const auto high = Half::Run(in, row + (1 << (kLevels - 1)), queries);
    HeadInts<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = AddIntsAcross<kLevels - 1>(low.v[g], high.v[g]);
    return sum;
  }
};

template <class Rows, Dots kDots, int kDim, int kHeads, Fetch kFetch>
struct DotCompressed<Rows, kDots, kDim, kHeads, kFetch, 0> {
  static HWY_INLINE HeadInts<kHeads> Run(const CompressedFoldInput& in, int row,
                                         const RoundedQuery* queries) {
    const int dim = kDim != 0 ? kDim : in.format.head_dim;
    if (kFetch == Fetch::kAhead) FetchCompressed<Rows, kDim>(in, in.next_rows[row]);
    HeadInts<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = hn::Zero(I32());
    Rows::template AddKeys<kDots>(in.rows[row], dim, queries, &sum);
    return sum;
  }
};

// Stores the logits of kLanes rows, from row `row` on.
template <class Rows>
HWY_INLINE void StoreLogits(VecI dots, const RoundedQuery& query, float scale,
                            const ChunkScales& scales, int row, float* logits) {
  const F32 d;
  const VecF high = scales.High(0, row), low = scales.Low(0, row);
  const VecF query_scale = hn::Set(d, query.scale * scale);
  if constexpr (Rows::kType == CompressedType::kInt2) {
    dots = hn::Sub(dots, hn::Set(I32(), kKeyTrellis.centre * query.sum_of_n));
  }
  const VecF dot = hn::ConvertTo(d, dots);
  VecF logit;
  const VecF centre = hn::Set(d, query.centre_dot * scale);
  if constexpr (HasScalesAlone(Rows::kType)) {
    logit = hn::MulAdd(dot, hn::Mul(low, query_scale), centre);
  } else {
    const VecF query_sum = hn::Set(d, query.sum * scale);
    logit = hn::MulAdd(dot, hn::Mul(high, query_scale), hn::MulAdd(low, query_sum, centre));
  }
  hn::StoreU(logit, d, logits + row);
}

// Computes logits[g][r] for kHeads query heads, and prefetches the next chunk.
template <class Rows, Dots kDots, int kDim, int kHeads, Fetch kFetch>
HWY_NOINLINE void CompressedKeyPass(const CompressedFoldInput& in, const RoundedQuery* queries,
                                    const ChunkScales& scales, float* logits, size_t stride) {
  using Dot = DotCompressed<Rows, kDots, kDim, kHeads, kFetch, kLaneLevels>;
  for (int r = 0; r < in.num_rows; r += kLanes) {
    const auto dots = Dot::Run(in, r, queries);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      StoreLogits<Rows>(dots.v[g], queries[g], in.scale, scales, r, logits + g * stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_COMPRESSED_KEYS_INL_H_
