#include "src/policy/selectors/key_blocks.h"

#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/policy/selectors/key_blocks.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                                  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/policy/selectors/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

inline constexpr size_t kEntries = KeyBlocks::kBlock;

// Multiplies queries with one block, rounding products and sums separately: a fused multiply-add
// would give other bits than machines without that instruction.
template <size_t kQueries, bool kHasSquares>
HWY_INLINE void MultiplyBlock(const float* q, size_t dim, const uint16_t* block, size_t stride,
                              float* products, float* squares) {
  const hn::CappedTag<float, kEntries> d;
  constexpr size_t kStep = (kHasSquares ? 2 : 1) * kEntries;
  for (size_t entry = 0; entry < kEntries; entry += hn::Lanes(d)) {
    hn::Vec<decltype(d)> sums[kQueries], square_sums[kQueries];
    for (size_t i = 0; i < kQueries; ++i) sums[i] = square_sums[i] = hn::Zero(d);
    const uint16_t* from = block + entry;
    for (size_t c = 0; c < dim; ++c, from += kStep) {
      const auto first = LoadF16(d, from);
      for (size_t i = 0; i < kQueries; ++i) {
        const auto x = hn::Set(d, q[i * dim + c]);
        sums[i] = hn::Add(sums[i], hn::Mul(x, first));
        if constexpr (kHasSquares) {
          const auto second = LoadF16(d, from + kEntries);
          square_sums[i] = hn::Add(square_sums[i], hn::Mul(hn::Mul(x, x), second));
        }
      }
    }
    for (size_t i = 0; i < kQueries; ++i) {
      hn::StoreU(sums[i], d, products + i * stride + entry);
      if constexpr (kHasSquares) hn::StoreU(square_sums[i], d, squares + i * stride + entry);
    }
  }
}

template <size_t kQueries, bool kHasSquares>
void MultiplyBlocks(const float* q, size_t dim, const uint16_t* blocks, size_t num_blocks,
                    size_t stride, float* products, float* squares) {
  for (size_t i = 0; i < num_blocks; ++i) {
    MultiplyBlock<kQueries, kHasSquares>(q, dim, blocks, stride, products + i * kEntries,
                                         squares + i * kEntries);
    blocks += (kHasSquares ? 2 : 1) * dim * kEntries;
  }
}

template <bool kHasSquares>
void MultiplyAll(const float* q, size_t num_queries, size_t dim, const uint16_t* blocks,
                 size_t num_blocks, size_t stride, float* products, float* squares) {
  const auto multiply = [&]<size_t kQueries>() {
    MultiplyBlocks<kQueries, kHasSquares>(q, dim, blocks, num_blocks, stride, products, squares);
    q += kQueries * dim;
    products += kQueries * stride;
    squares += kQueries * stride;
    num_queries -= kQueries;
  };
  while (num_queries >= 4) multiply.template operator()<4>();
  if (num_queries >= 2) multiply.template operator()<2>();
  if (num_queries == 1) multiply.template operator()<1>();
}

void MultiplyTo(const float* q, size_t num_queries, size_t dim, const uint16_t* blocks,
                size_t num_blocks, bool has_squares, size_t stride, float* products,
                float* squares) {
  if (has_squares) {
    MultiplyAll<true>(q, num_queries, dim, blocks, num_blocks, stride, products, squares);
  } else {
    MultiplyAll<false>(q, num_queries, dim, blocks, num_blocks, stride, products, products);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace ebb {
namespace {
HWY_EXPORT(MultiplyTo);
}  // namespace

void KeyBlocks::MakeRoom(size_t num_entries) {
  if (RoundUp(num_entries) > room_ * kBlock) MoveTo(RoomFor(num_entries));
}

void KeyBlocks::Shrink(size_t num_entries) {
  if (room_ <= 2 * RoomFor(num_entries)) return;
  try {
    MoveTo(RoomFor(num_entries));
  } catch (const std::bad_alloc&) {
    return;  // there is room as it is
  }
}

void KeyBlocks::MoveTo(size_t room) {
  MappedArray<uint16_t> blocks(num_streams_ * room * BlockNumbers());
  const size_t kept = std::min(room, room_) * BlockNumbers();
  for (size_t stream = 0; stream < num_streams_; ++stream) {
    std::copy_n(blocks_.data() + stream * room_ * BlockNumbers(), kept,
                blocks.data() + stream * room * BlockNumbers());
  }
  blocks_ = std::move(blocks);
  room_ = room;
}

void KeyBlocks::Put(int stream, size_t entry, std::span<const uint16_t> values) {
  assert(values.size() == vectors_ * dim_ && entry < room_ * kBlock);
  uint16_t* to = At(stream, entry);
  for (size_t c = 0; c < dim_; ++c) {
    for (size_t v = 0; v < vectors_; ++v, to += kBlock) *to = values[v * dim_ + c];
  }
}

void KeyBlocks::Get(int stream, size_t entry, std::span<uint16_t> values) const {
  assert(values.size() == vectors_ * dim_ && entry < room_ * kBlock);
  const uint16_t* from = At(stream, entry);
  for (size_t c = 0; c < dim_; ++c) {
    for (size_t v = 0; v < vectors_; ++v, from += kBlock) values[v * dim_ + c] = *from;
  }
}

void KeyBlocks::Multiply(int stream, std::span<const float> q, size_t num_entries, int part,
                         int num_parts, size_t stride, float* products, float* squares) const {
  const size_t num_blocks = RoundUp(num_entries) / kBlock;
  assert(num_blocks <= room_ && num_blocks * kBlock <= stride);
  const size_t begin = num_blocks * part / num_parts;
  const size_t end = num_blocks * (part + 1) / num_parts;
  if (begin == end) return;
  HWY_DYNAMIC_DISPATCH(MultiplyTo)
  (q.data(), q.size() / dim_, dim_, At(stream, begin * kBlock), end - begin, vectors_ == 2, stride,
   products + begin * kBlock, vectors_ == 2 ? squares + begin * kBlock : nullptr);
}

}  // namespace ebb

#endif  // HWY_ONCE
