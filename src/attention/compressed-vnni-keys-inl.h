// Computes the logits of a chunk of compressed rows for head sizes that are a multiple of 64. Each
// lane computes one of sixteen rows, so that nothing is left to add across lanes. Compiled once per
// instruction set (cpu_kernels.h).
#if defined(EBB_ATTENTION_COMPRESSED_VNNI_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_VNNI_KEYS_INL_H_
#undef EBB_ATTENTION_COMPRESSED_VNNI_KEYS_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_VNNI_KEYS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/attention/compressed-keys-inl.h"
#include "src/attention/compressed.h"
#include "src/attention/vnni-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Loads eight words at offset `at` of 16 rows, transposed: word w of row i is lane i of to[w].
HWY_INLINE void TransposeEightWords(const std::byte* const* rows, size_t at, hn::Vec<U32>* to) {
  const U32 d;
  const hn::Half<U32> dh;
  hn::Vec<U32> y[2][4];  // partly transposed words of eight rows each
  EBB_UNROLL
  for (int half = 0; half < 2; ++half) {
    hn::Vec<U32> x[4];
    EBB_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::byte* const* row = rows + 8 * half + i;
      x[i] = hn::Combine(d, hn::LoadU(dh, reinterpret_cast<const uint32_t*>(row[4] + at)),
                         hn::LoadU(dh, reinterpret_cast<const uint32_t*>(row[0] + at)));
    }
    InterleaveFour(d, x, y[half]);
  }
  EBB_UNROLL
  for (int w = 0; w < 4; ++w) {
    to[w].raw = _mm512_shuffle_i32x4(y[0][w].raw, y[1][w].raw, 0x88);
    to[4 + w].raw = _mm512_shuffle_i32x4(y[0][w].raw, y[1][w].raw, 0xdd);
  }
}

// NextRows prefetches the rows that this thread reads next, one at a time, because a burst would
// fill the queue of outstanding reads. Leaving half of each row to the pass over values gained
// nothing.
template <class Rows, int kDim, bool kFetches>
struct NextRows {
  HWY_INLINE void Fetch(int row) const {
    if (kFetches) FetchCompressed<Rows, kDim>(*in, in->next_rows[first + row]);
  }
  const CompressedFoldInput* in;
  int first;
};

// KeysOfInt8 computes products of kHeads queries with 64 keys, from element `at` on, of 16 int8
// rows. It prefetches a row of `next` after every four keys.
template <int kHeads>
struct KeysOfInt8 {
  static constexpr size_t kBytes = 64;
  static constexpr int kUnsigned = 128;  // added to make a byte of a key unsigned

  HWY_INLINE void Start(const RoundedQuery* queries) {
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      high[g] = hn::Zero(I32());
      low[g] = hn::Set(I32(), -kUnsigned * queries[g].sum_of_n);
    }
  }
  template <class Next>
  HWY_INLINE void Add(const std::byte* const* rows, size_t at, const RoundedQuery* queries,
                      int channel, const Next& next) {
    const U8 d;
    EBB_UNROLL
    for (int half = 0; half < 2; ++half) {
      hn::Vec<U32> words[8];
      TransposeEightWords(rows, at + 32 * half, words);
      EBB_UNROLL
      for (int w = 0; w < 8; ++w) {
        next.Fetch(8 * half + w);
        const auto keys = hn::Xor(hn::BitCast(d, words[w]), hn::Set(d, kUnsigned));
        const int from = channel + 32 * half + 4 * w;
        EBB_UNROLL
        for (int g = 0; g < kHeads; ++g) {
          high[g] = AddQuadsOfAll(high[g], keys, queries[g].high + from);
          low[g] = AddQuadsOfAll(low[g], keys, queries[g].low + from);
        }
      }
    }
  }
  [[nodiscard]] HWY_INLINE VecI Dot(int g) const {
    return hn::Add(hn::ShiftLeft<8>(high[g]), low[g]);
  }

  VecI high[kHeads], low[kHeads];
};

// PackedKeys does the same as KeysOfInt8 for rows of int4 or int3.
template <CompressedType kType, int kHeads>
struct PackedKeys {
  static constexpr size_t kBytes = KeyGroupBytes(kType);

  HWY_INLINE void Start(const RoundedQuery*) {
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum[g] = hn::Zero(I32());
  }
  template <class Next>
  HWY_INLINE void Add(const std::byte* const* rows, size_t at, const RoundedQuery* queries,
                      int channel, const Next& next) {
    const U8 d;
    hn::Vec<U32> nibbles[8], pairs[4];
    TransposeEightWords(rows, at, nibbles);
    if constexpr (kType == CompressedType::kInt4) TransposeWords(rows, at + 32, pairs);
    EBB_UNROLL
    for (int w = 0; w < 16; ++w) {
      next.Fetch(w);
      const auto low = w < 8 ? nibbles[w] : hn::ShiftRight<4>(nibbles[w % 8]);
      auto keys = hn::And(hn::BitCast(d, low), hn::Set(d, 0x0f));
      if constexpr (kType == CompressedType::kInt4) {
        const auto high = w / 4 == 0   ? hn::ShiftLeft<4>(pairs[w % 4])
                          : w / 4 == 1 ? hn::ShiftLeft<2>(pairs[w % 4])
                          : w / 4 == 2 ? pairs[w % 4]
                                       : hn::ShiftRight<2>(pairs[w % 4]);
        keys = hn::OrAnd(keys, hn::BitCast(d, high), hn::Set(d, 0x30));
      }
      EBB_UNROLL
      for (int g = 0; g < kHeads; ++g) {
        sum[g] = AddQuadsOfAll(sum[g], keys, queries[g].unpacked + channel + 4 * w);
      }
    }
  }
  [[nodiscard]] HWY_INLINE VecI Dot(int g) const { return sum[g]; }

  VecI sum[kHeads];
};

// Computes logits, as CompressedKeyPass() does.
template <class Rows, int kDim, int kHeads, Fetch kFetch>
HWY_NOINLINE void VnniKeyPass(const CompressedFoldInput& in, const RoundedQuery* queries,
                              const ChunkScales& scales, float* logits, size_t stride) {
  constexpr bool kInt8 = Rows::kType == CompressedType::kInt8;
  std::conditional_t<kInt8, KeysOfInt8<kHeads>, PackedKeys<Rows::kType, kHeads>> keys;
  const int dim = kDim != 0 ? kDim : in.format.head_dim;
  for (int r = 0; r < in.num_rows; r += kLanes) {
    // Hides the pointer's value from the compiler, which would otherwise keep the address of every
    // four elements in a register.
    const RoundedQuery* of = queries;
    __asm__("" : "+r"(of));
    keys.Start(of);
    keys.Add(in.rows + r, 0, of, 0,
             NextRows<Rows, kDim, kFetch == Fetch::kAhead>{.in = &in, .first = r});
    for (int channel = 64; channel < dim; channel += 64) {
      keys.Add(in.rows + r, channel / 64 * keys.kBytes, of, channel, NextRows<Rows, kDim, false>());
    }
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      StoreLogits<Rows>(keys.Dot(g), of[g], in.scale, scales, r, logits + g * stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // EBB_ATTENTION_COMPRESSED_VNNI_KEYS_INL_H_
