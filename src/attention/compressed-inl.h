// Folds a chunk of compressed rows (compressed.h). Compiled once per instruction set
// (cpu_kernels.h).
//
// Keys and queries are multiplied as integers, whose sums are exact and so equal on every
// instruction set. Scales stay out of the loops over elements: the scale of a key is applied to the
// logit, the scale of a value to the row's weight.
#if defined(EBB_ATTENTION_COMPRESSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_COMPRESSED_INL_H_
#undef EBB_ATTENTION_COMPRESSED_INL_H_
#else
#define EBB_ATTENTION_COMPRESSED_INL_H_
#endif

#include "hwy/highway.h"
#include "src/attention/attention.h"
#include "src/attention/compressed-keys-inl.h"
#include "src/attention/compressed-values-inl.h"
#include "src/attention/compressed-vnni-keys-inl.h"
#include "src/attention/compressed-vnni-values-inl.h"
#include "src/attention/compressed.h"
#include "src/attention/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

template <class Rows, Dots kDots, int kDim, int kHeads, Fetch kFetch>
HWY_INLINE void KeyPassOf(const CompressedFoldInput& in, const RoundedQuery* queries,
                          const ChunkScales& scales, float* logits, size_t stride) {
  constexpr bool kHasVnniPass = kDots == Dots::kVnni && Rows::kType != CompressedType::kInt2;
  if constexpr (kHasVnniPass && kDim != 0) {
    static_assert(kDim % 64 == 0);
    VnniKeyPass<Rows, kDim, kHeads, kFetch>(in, queries, scales, logits, stride);
  } else {
    if constexpr (kHasVnniPass) {
      if (in.format.head_dim % 64 == 0) {
        return VnniKeyPass<Rows, kDim, kHeads, kFetch>(in, queries, scales, logits, stride);
      }
    }
    CompressedKeyPass<Rows, kDots, kDim, kHeads, kFetch>(in, queries, scales, logits, stride);
  }
}

template <class Rows, Dots kDots, int kDim>
void FoldCompressedRows(const CompressedFoldInput& in, const FoldOutput& out) {
  ChunkScales scales;
  GatherScales<Rows, kDim>(in, &scales);
  ForHeadBlocks<kMaxHeadBlock>(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    float* p = out.p + head * out.p_stride;
    float* l = out.l + head * out.head_stride;
    float* o = out.o + head * in.format.head_dim;
    const RoundedQuery* q = in.queries + head;
    if (head == 0) {
      KeyPassOf<Rows, kDots, kDim, kHeads, Fetch::kAhead>(in, q, scales, p, out.p_stride);
    } else {
      KeyPassOf<Rows, kDots, kDim, kHeads, Fetch::kNothing>(in, q, scales, p, out.p_stride);
    }
    if (in.soft_cap != 0) CapLogits(in.soft_cap, p, out.p_stride, kHeads, in.num_rows);
    SoftmaxChunk<kHeads>(p, out.p_stride, in.num_rows, out.m + head * out.head_stride, l,
                         out.head_stride);
    if constexpr (kDots == Dots::kVnni && Rows::kType != CompressedType::kInt2) {
      const bool has_bytes = in.format.has_values || Rows::kType == CompressedType::kInt8;
      if (in.format.head_dim % 64 == 0 && has_bytes) {
        return VnniValues<Rows, kHeads>(in, scales, p, out.p_stride, o, l, out.head_stride);
      }
    }
    CompressedValues<Rows, kHeads>(in, scales, p, out.p_stride, o, l, out.head_stride);
  });
}

template <class Rows, Dots kDots>
void FoldCompressedType(const CompressedFoldInput& in, const FoldOutput& out) {
  switch (in.format.head_dim) {
    case 64:
      return FoldCompressedRows<Rows, kDots, 64>(in, out);
    case 128:
      return FoldCompressedRows<Rows, kDots, 128>(in, out);
    default:
      return FoldCompressedRows<Rows, kDots, 0>(in, out);
  }
}

template <Dots kDots>
void FoldCompressed(const CompressedFoldInput& in, const FoldOutput& out) {
  switch (in.format.type) {
    case CompressedType::kInt8:
    case CompressedType::kInt8Naive:
      return FoldCompressedType<Int8Rows, kDots>(in, out);
    case CompressedType::kInt4:
      return FoldCompressedType<PackedRows<CompressedType::kInt4>, kDots>(in, out);
    case CompressedType::kInt3:
      return FoldCompressedType<PackedRows<CompressedType::kInt3>, kDots>(in, out);
    case CompressedType::kInt2:
      return FoldCompressedType<PackedRows<CompressedType::kInt2>, kDots>(in, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_COMPRESSED_INL_H_
