// Folds a chunk of rows for all query heads of a kv head in decode attention: logits, softmax,
// weighted values. Compiled once per instruction set (cpu_kernels.h).
//
// A chunk of 64 rows of 64 f16 elements is 16 KiB of keys and values. While it is folded, the next
// chunk is prefetched. Of the memory's 50 GB/s, chunks of 128 rows use 42 and chunks of 64 rows 48.
#if defined(EBB_ATTENTION_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_FOLD_INL_H_
#undef EBB_ATTENTION_FOLD_INL_H_
#else
#define EBB_ATTENTION_FOLD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "src/attention/attention.h"
#include "src/attention/exp-inl.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Adds lanes of two vectors of partial sums pairwise. The result has the sums of both, interleaved:
// the lanes of a and b belong to two sets of rows, and after log2(kLanes) levels lane i is the sum
// of row i.
template <int kLevel, class Vec>
HWY_INLINE Vec AddAcross(Vec a, Vec b) {
  const hn::DFromV<Vec> d;
  if constexpr (kLevel == 0) {
    return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
  } else if constexpr (kLevel == 1) {
    const hn::Repartition<uint64_t, decltype(d)> d64;
    const auto a64 = hn::BitCast(d64, a);
    const auto b64 = hn::BitCast(d64, b);
    const Vec swapped = hn::Shuffle1032(hn::BitCast(d, hn::OddEven(a64, b64)));
    return hn::Add(hn::BitCast(d, hn::OddEven(b64, a64)), swapped);
  } else if constexpr (kLevel == 2 && kLanes == 16) {
    return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  } else {
    return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
  }
}

// Prefetches into the second-level cache, which allows far more outstanding reads than the first.
// On a Zen 4 that shares its memory with other machines, 8,000 rows were read at 29 GB/s instead of
// 22, and decode steps were 8 - 12 % shorter. Prefetching two chunks ahead, or into both levels,
// gained at most 1 %.
HWY_INLINE void FetchLine(const std::byte* line) { __builtin_prefetch(line, 0, 2); }

// kMostHeads is how many heads share a pass over keys or values: an element is converted to float
// once for all of them. kHasManyRegisters says whether there are 32 vector registers and not 16.
inline constexpr bool kHasManyRegisters = !HWY_ARCH_X86 || HWY_MAX_BYTES == 64;  // 32, not 16
inline constexpr int kMostHeads = kHasManyRegisters ? 8 : 6;
// kMostChains is how many heads are computed at once in passes in which each head is one chain of
// dependent operations.
inline constexpr int kMostChains = 4;

// Calls body(std::integral_constant<int, n>()). REQUIRES: 1 <= n <= kMost.
template <int kMost, typename Body>
HWY_INLINE void WithConstant(int n, const Body& body) {
  if constexpr (kMost > 1) {
    if (n < kMost) return WithConstant<kMost - 1>(n, body);
  }
  body(std::integral_constant<int, kMost>());
}

// Fetch selects whether a pass prefetches the next chunk while it reads the current one; exactly
// one of the passes over a row must prefetch.
enum class Fetch { kNothing, kAhead };

template <size_t kBytes>
HWY_INLINE void FetchRow(const std::byte* row) {
  EBB_UNROLL
  for (size_t b = 0; b < kBytes; b += 64) FetchLine(row + b);
}

template <int kHeads>
struct HeadVecs {
  VecF v[kHeads];
};

// DotRows computes dot products of kHeads queries with 2^kLevels rows, and adds lanes of different
// rows together as far as it can. The recursion keeps at most one partial vector per level alive.
template <class Row, int kVecs, int kHeads, Fetch kFetch, int kLevels>
struct DotRows {
  static HWY_INLINE HeadVecs<kHeads> Run(const std::byte* const* keys,
                                         const std::byte* const* next_keys, const float* q,
                                         int q_stride) {
    using Half = DotRows<Row, kVecs, kHeads, kFetch, kLevels - 1>;
    constexpr int kHalf = 1 << (kLevels - 1);
    const auto lo = Half::Run(keys, next_keys, q, q_stride);
    const auto hi = Half::Run(keys + kHalf, next_keys + kHalf, q, q_stride);
    HeadVecs<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = AddAcross<kLevels - 1>(lo.v[g], hi.v[g]);
    return sum;
  }
};

template <class Row, int kVecs, int kHeads, Fetch kFetch>
struct DotRows<Row, kVecs, kHeads, kFetch, 0> {
  static HWY_INLINE HeadVecs<kHeads> Run(const std::byte* const* keys,
                                         [[maybe_unused]] const std::byte* const* next_keys,
                                         const float* q, int q_stride) {
    // Prefetch row by row: a burst fills the queue of outstanding reads and stalls (10.7 ns per row
    // of 64 elements for 3 heads against 8.5).
    if (kFetch == Fetch::kAhead) FetchRow<kVecs * kLanes * Row::kBytes>(next_keys[0]);
    const F32 d;
    HeadVecs<kHeads> sum;
    const VecF first = Row::Load(keys[0], 0);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = hn::Mul(first, hn::LoadU(d, q + g * q_stride));
    EBB_UNROLL
    for (int c = 1; c < kVecs; ++c) {
      const VecF k = Row::Load(keys[0], c * kLanes);
      EBB_UNROLL
      for (int g = 0; g < kHeads; ++g) {
        sum.v[g] = hn::MulAdd(k, hn::LoadU(d, q + g * q_stride + c * kLanes), sum.v[g]);
      }
    }
    return sum;
  }
};

// With 16 registers, two rows share each read of the queries: reads bound the speed, not products.
template <class Row, int kVecs, int kHeads, Fetch kFetch>
requires(kVecs > 0 && !kHasManyRegisters) struct DotRows<Row, kVecs, kHeads, kFetch, 1> {
  static HWY_INLINE HeadVecs<kHeads> Run(const std::byte* const* keys,
                                         [[maybe_unused]] const std::byte* const* next_keys,
                                         const float* q, int /*q_stride*/) {
    if (kFetch == Fetch::kAhead) {
      FetchRow<kVecs * kLanes * Row::kBytes>(next_keys[0]);
      FetchRow<kVecs * kLanes * Row::kBytes>(next_keys[1]);
    }
    const F32 d;
#if HWY_ARCH_X86
    __asm__("" : "+r"(q));  // else the compiler copies the queries to the stack, to read them there
#endif
    HeadVecs<kHeads> even, odd;
    const VecF first0 = Row::Load(keys[0], 0), first1 = Row::Load(keys[1], 0);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const VecF of_q = InRegister(hn::LoadU(d, q + g * kVecs * kLanes));
      even.v[g] = hn::Mul(first0, of_q);
      odd.v[g] = hn::Mul(first1, of_q);
    }
    EBB_UNROLL
    for (int c = 1; c < kVecs; ++c) {
      const VecF k0 = Row::Load(keys[0], c * kLanes), k1 = Row::Load(keys[1], c * kLanes);
      EBB_UNROLL
      for (int g = 0; g < kHeads; ++g) {
        const VecF of_q = InRegister(hn::LoadU(d, q + (g * kVecs + c) * kLanes));
        even.v[g] = hn::MulAdd(k0, of_q, even.v[g]);
        odd.v[g] = hn::MulAdd(k1, of_q, odd.v[g]);
      }
    }
    HeadVecs<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = AddAcross<0>(even.v[g], odd.v[g]);
    return sum;
  }
};

// DotRows with kVecs = 0 supports any head size.
template <class Row, int kHeads, Fetch kFetch>
struct DotRows<Row, 0, kHeads, kFetch, 0> {
  static HWY_INLINE HeadVecs<kHeads> Run(const std::byte* const* keys,
                                         [[maybe_unused]] const std::byte* const* next_keys,
                                         const float* q, int head_dim) {
    if (kFetch == Fetch::kAhead) {
      for (size_t b = 0; b < head_dim * Row::kBytes; b += 64) FetchLine(next_keys[0] + b);
    }
    const F32 d;
    HeadVecs<kHeads> sum;
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) sum.v[g] = hn::Zero(d);
    for (int c = 0; c < head_dim; c += kLanes) {
      const VecF k = Row::Load(keys[0], c);
      EBB_UNROLL
      for (int g = 0; g < kHeads; ++g) {
        sum.v[g] = hn::MulAdd(k, hn::LoadU(d, q + g * head_dim + c), sum.v[g]);
      }
    }
    return sum;
  }
};

inline constexpr int kLaneLevels = kLanes == 16 ? 4 : kLanes == 8 ? 3 : 2;

// Adds lanes as DotRows does, beginning with vectors that hold the sums of 2^kFrom rows.
template <int kFrom, int kLevels>
HWY_INLINE VecF SumEach(const float* vectors) {
  if constexpr (kFrom == kLevels) {
    return hn::Load(F32(), vectors);
  } else {
    const VecF lo = SumEach<kFrom, kLevels - 1>(vectors);
    constexpr int kHalf = 1 << (kLevels - 1 - kFrom);
    return AddAcross<kLevels - 1>(lo, SumEach<kFrom, kLevels - 1>(vectors + kHalf * kLanes));
  }
}

// Computes logits[g][r] for kHeads heads, and prefetches the next chunk's keys. It stores sums of
// four rows, or with 16 registers of two, to memory (the first-level cache) until the others are
// computed: for more than four heads, doing all levels at once needs too many registers, and
// storing sums of single rows costs 12 % more.
template <class Row, int kVecs, int kHeads, Fetch kFetch>
HWY_NOINLINE void KeyPass(const FoldInput& in, const float* q, float* logits, size_t stride) {
  const F32 d;
  const VecF scale = hn::Set(d, in.scale);
  constexpr int kLevels = kHasManyRegisters ? 2 : 1;
  constexpr int kRowsOfSum = 1 << kLevels, kSums = kLanes / kRowsOfSum;
  HWY_ALIGN float sums[kHeads * kSums * kLanes];
  for (int r = 0; r < in.num_rows; r += kLanes) {
    for (int i = 0; i < kSums; ++i) {
      const int at = r + kRowsOfSum * i;
      const auto dots = DotRows<Row, kVecs, kHeads, kFetch, kLevels>::Run(
          in.keys + at, in.next_keys + at, q, in.format.head_dim);
      EBB_UNROLL
      for (int g = 0; g < kHeads; ++g) hn::Store(dots.v[g], d, sums + (g * kSums + i) * kLanes);
    }
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const VecF dots = SumEach<kLevels, kLaneLevels>(sums + g * kSums * kLanes);
      hn::StoreU(hn::Mul(dots, scale), d, logits + g * stride + r);
    }
  }
}

// Replaces logits by exp(logit - m) in place; the padding becomes 0. It computes several heads at
// once, because one head alone is a chain of dependent operations.
template <int kHeads>
HWY_INLINE void SoftmaxChunk(float* logits, size_t stride, int num_rows, float* m, float* l,
                             size_t head_stride) {
  const F32 d;
  const int padded = (num_rows + kLanes - 1) / kLanes * kLanes;
  VecF max[kHeads], sum[kHeads];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    float* of_head = logits + g * stride;
    for (int r = num_rows; r < padded; ++r) of_head[r] = -std::numeric_limits<float>::infinity();
    max[g] = hn::LoadU(d, of_head);
    for (int r = kLanes; r < padded; r += kLanes)
      max[g] = hn::Max(max[g], hn::LoadU(d, of_head + r));
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    const float top = hn::GetLane(hn::MaxOfLanes(d, max[g]));
    m[g * head_stride] = top;
    max[g] = hn::Set(d, top);
    sum[g] = hn::Zero(d);
  }
  for (int r = 0; r < padded; r += kLanes) {
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      float* at = logits + g * stride + r;
      const VecF p = ExpOfNonPositive(hn::Sub(hn::LoadU(d, at), max[g]));
      hn::StoreU(p, d, at);
      sum[g] = hn::Add(sum[g], p);
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) l[g * head_stride] = hn::GetLane(hn::SumOfLanes(d, sum[g]));
}

// Computes o[g] = sum over rows of p[g][r] * value[r] for kVecs vectors of channels from `channel`
// on, and prefetches the same channels of the next chunk's values. A value that is not finite makes
// l[g] NaN, as a key that is not finite does by itself.
template <class Row, int kVecs, int kHeads, Fetch kFetch>
HWY_NOINLINE void ValuePass(const FoldInput& in, int channel, const float* p, size_t p_stride,
                            float* o, float* l, size_t l_stride) {
  const F32 d;
  VecF sum[kHeads][kVecs];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    EBB_UNROLL
    for (int c = 0; c < kVecs; ++c) sum[g][c] = hn::Zero(d);
  }
  const size_t value_offset = in.format.ValueOffset() + channel * Row::kBytes;
  for (int r = 0; r < in.num_rows; ++r) {
    const std::byte* value = in.keys[r] + value_offset;
    if (kFetch == Fetch::kAhead) {
      FetchRow<kVecs * kLanes * Row::kBytes>(in.next_keys[r] + value_offset);
    }
    VecF v[kVecs];
    EBB_UNROLL
    for (int c = 0; c < kVecs; ++c) v[c] = Row::Load(value, c * kLanes);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const VecF weight = hn::Set(d, p[g * p_stride + r]);
      EBB_UNROLL
      for (int c = 0; c < kVecs; ++c) sum[g][c] = hn::MulAdd(v[c], weight, sum[g][c]);
    }
  }
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    VecF faults = hn::Zero(d);  // 0 * x is NaN if x is not finite
    EBB_UNROLL
    for (int c = 0; c < kVecs; ++c) {
      hn::StoreU(sum[g][c], d, o + g * in.format.head_dim + channel + c * kLanes);
      faults = hn::MulAdd(sum[g][c], hn::Zero(d), faults);
    }
    if (!hn::AllFalse(d, hn::IsNaN(faults))) {
      l[g * l_stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

// Divides `count` heads evenly into blocks of at most kMost, and calls
// pass(std::integral_constant<int, n>, first) for each block of n heads.
template <int kMost, typename Pass>
HWY_INLINE void ForHeadBlocks(int count, const Pass& pass) {
  for (int first = 0, blocks = (count + kMost - 1) / kMost; blocks > 0; --blocks) {
    const int heads = (count - first + blocks - 1) / blocks;
    WithConstant<kMost>(heads, [&](auto n) HWY_ATTR { pass(n, first); });
    first += heads;
  }
}

// Divides head_dim into blocks of at most kMost vectors, and calls pass(std::integral_constant<int,
// n>, channel) for each block of n vectors.
template <int kMost, typename Pass>
HWY_INLINE void ForChannelBlocks(int head_dim, const Pass& pass) {
  int channel = 0;
  if constexpr (kMost >= 5) {
    if (head_dim == 5 * kLanes) return pass(std::integral_constant<int, 5>(), 0);
  }
  constexpr int kVecs = kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  for (; channel + kVecs * kLanes <= head_dim; channel += kVecs * kLanes) {
    pass(std::integral_constant<int, kVecs>(), channel);
  }
  for (; channel < head_dim; channel += kLanes) pass(std::integral_constant<int, 1>(), channel);
}

// Computes the logits of all heads. kVecs = 0 supports any head size.
template <class Row, int kVecs>
void KeyPasses(const FoldInput& in, const FoldOutput& out) {
  // With more than 16 vectors, on narrow instruction sets, the loop is not unrolled: compiling
  // would take minutes, and the registers would not suffice.
  constexpr int kUnrolled = kVecs > 16 ? 0 : kVecs;
  ForHeadBlocks<kMostHeads>(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    const float* q = in.q + head * in.format.head_dim;
    float* logits = out.p + head * out.p_stride;
    if (head == 0) {
      KeyPass<Row, kUnrolled, kHeads, Fetch::kAhead>(in, q, logits, out.p_stride);
    } else {
      KeyPass<Row, kUnrolled, kHeads, Fetch::kNothing>(in, q, logits, out.p_stride);
    }
  });
}

template <class Row>
void ValuePasses(const FoldInput& in, const FoldOutput& out) {
  ForHeadBlocks<kMostHeads>(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    // Each head's vectors of sums, the vectors of values and a weight must stay in 32 registers. In
    // 16 registers four heads do not fit; that is still as fast as blocks half as wide, or faster.
    constexpr int kMostVecs = kHeads <= 4 ? 5 : kHeads <= 6 && kHasManyRegisters ? 4 : 2;
    ForChannelBlocks<kMostVecs>(in.format.head_dim, [&](auto vecs, int channel) HWY_ATTR {
      constexpr int kVecs = decltype(vecs)::value;
      const float* p = out.p + head * out.p_stride;
      float* o = out.o + head * in.format.head_dim;
      float* l = out.l + head * out.head_stride;
      if (head == 0) {
        ValuePass<Row, kVecs, kHeads, Fetch::kAhead>(in, channel, p, out.p_stride, o, l,
                                                     out.head_stride);
      } else {
        ValuePass<Row, kVecs, kHeads, Fetch::kNothing>(in, channel, p, out.p_stride, o, l,
                                                       out.head_stride);
      }
    });
  });
}

template <class Row>
void FoldWithType(const FoldInput& in, const FoldOutput& out) {
  switch (in.format.head_dim) {
    case 64:
      KeyPasses<Row, 64 / kLanes>(in, out);
      break;
    case 80:
      KeyPasses<Row, 80 / kLanes>(in, out);
      break;
    case 96:
      KeyPasses<Row, 96 / kLanes>(in, out);
      break;
    case 128:
      KeyPasses<Row, 128 / kLanes>(in, out);
      break;
    case 256:
      KeyPasses<Row, 256 / kLanes>(in, out);
      break;
    default:
      KeyPasses<Row, 0>(in, out);
      break;
  }
  if (in.soft_cap != 0) CapLogits(in.soft_cap, out.p, out.p_stride, in.num_heads, in.num_rows);
  ForHeadBlocks<kMostChains>(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    SoftmaxChunk<decltype(heads)::value>(out.p + head * out.p_stride, out.p_stride, in.num_rows,
                                         out.m + head * out.head_stride,
                                         out.l + head * out.head_stride, out.head_stride);
  });
  ValuePasses<Row>(in, out);
}

inline void Fold(const FoldInput& in, const FoldOutput& out) {
  WithRowType(in.format.type, [&](auto row) HWY_ATTR { FoldWithType<decltype(row)>(in, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_FOLD_INL_H_
