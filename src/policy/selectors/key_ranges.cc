#include "src/policy/selectors/key_ranges.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/policy/selectors/key_ranges.cc"  // NOLINT(build/include)
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/policy/selectors/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr size_t kPages = KeyRanges::kBlock;
inline constexpr size_t kMostChannels = KeyRanges::kMostChannels;
// Computes the bounds of a block of pages. The higher of a channel's two products is that of the
// highest number if the query is positive, else that of the lowest. Products and sums are rounded
// separately: a fused multiply-add would give other bits. Since ranges stream from memory, block
// after block of a table of megabytes, the loop prefetches `next` at the same time.
template <size_t kQueries>
HWY_INLINE void BoundsOfBlock(const float* q, const int32_t* signs, size_t dim,
                              const uint16_t* block, const uint16_t* next, float* bounds,
                              size_t stride) {
  const hn::CappedTag<float, kPages> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (size_t page = 0; page < kPages; page += hn::Lanes(d)) {
    hn::Vec<decltype(d)> sums[kQueries];
    for (auto& sum : sums) sum = hn::Zero(d);
    const uint16_t* range = block + page;
    for (size_t c = 0; c < dim; ++c, range += 2 * kPages) {
      if (page == 0) hwy::Prefetch(next + c * 2 * kPages);
      const auto lowest = LoadF16(d, range), highest = LoadF16(d, range + kPages);
      for (size_t i = 0; i < kQueries; ++i) {
        const auto is_negative = hn::BitCast(d, hn::Set(di, signs[i * dim + c]));
        const auto extreme = hn::Or(hn::And(is_negative, lowest), hn::AndNot(is_negative, highest));
        sums[i] = hn::Add(sums[i], hn::Mul(hn::Set(d, q[i * dim + c]), extreme));
      }
    }
    for (size_t i = 0; i < kQueries; ++i) {
      const auto bound = hn::IfThenElseZero(hn::IsFinite(sums[i]), sums[i]);
      hn::StoreU(bound, d, bounds + i * stride + page);
    }
  }
}

template <size_t kQueries>
void BoundsOfQueries(const float* q, size_t dim, const uint16_t* blocks, size_t num_blocks,
                     const uint16_t* next, float* bounds, size_t stride) {
  // Holds all ones for channels with a negative query. Reading them from memory costs no arithmetic
  // per block.
  HWY_ALIGN int32_t signs[kQueries * kMostChannels];
  for (size_t i = 0; i < kQueries * dim; ++i) signs[i] = std::bit_cast<int32_t>(q[i]) >> 31;
  for (size_t i = 0; i < num_blocks; ++i) {
    const uint16_t* block = blocks + i * dim * 2 * kPages;
    BoundsOfBlock<kQueries>(q, signs, dim, block,
                            i + 1 < num_blocks ? block + dim * 2 * kPages : next,
                            bounds + i * kPages, stride);
  }
}

// Computes the bounds of several blocks. `next` is the memory that is read after them, for
// prefetching.
void BoundsTo(const float* q, size_t num_queries, size_t dim, const uint16_t* blocks,
              size_t num_blocks, const uint16_t* next, float* bounds, size_t stride) {
  const auto first = [&]<size_t kQueries>(std::integral_constant<size_t, kQueries>) {
    const bool is_last = kQueries == num_queries;
    BoundsOfQueries<kQueries>(q, dim, blocks, num_blocks, is_last ? next : blocks, bounds, stride);
  };
  for (; num_queries >= 4; num_queries -= 4, q += 4 * dim, bounds += 4 * stride) {
    first(std::integral_constant<size_t, 4>());
  }
  if (num_queries == 3) first(std::integral_constant<size_t, 3>());
  if (num_queries == 2) first(std::integral_constant<size_t, 2>());
  if (num_queries == 1) first(std::integral_constant<size_t, 1>());
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "src/policy/selectors/half.h"

namespace ebb {
namespace {

// Maps an f16 number to an integer so that integers compare as the numbers do.
int RankOfF16(uint16_t x) { return (x & 0x8000) != 0 ? -(x & 0x7fff) : x; }

HWY_EXPORT(BoundsTo);

}  // namespace

void KeyRanges::AddPage(int stream) {
  size_t& num_pages = num_pages_[stream];
  const std::span<uint16_t> newest = Newest(stream);
  if (num_pages > 0) {
    MakeRoom(num_pages + 1);
    blocks_.Put(stream, num_pages - 1, newest);
  }
  ++num_pages;
  std::ranges::fill(newest.first(dim_), F16Of(kLargestF16));
  std::ranges::fill(newest.last(dim_), F16Of(-kLargestF16));
}

void KeyRanges::Widen(int stream, size_t page, std::span<const float> key) {
  assert(page < num_pages_[stream] && key.size() == dim_);
  const bool is_newest = page + 1 == num_pages_[stream];
  uint16_t* low = is_newest ? Newest(stream).data() : blocks_.At(stream, page);
  uint16_t* high = low + (is_newest ? dim_ : kBlock);
  const size_t stride = is_newest ? 1 : 2 * kBlock;
  for (const float number : key) {
    const uint16_t x = F16Of(number);
    if (RankOfF16(x) < RankOfF16(*low)) *low = x;
    if (RankOfF16(x) > RankOfF16(*high)) *high = x;
    low += stride;
    high += stride;
  }
}

void KeyRanges::Retain(int stream, std::span<const uint32_t> left) {
  assert(left.size() == num_pages_[stream]);
  size_t num_left = 0;
  for (size_t page = 0; page < left.size(); ++page) {
    if (left[page] == 0) continue;
    if (num_left != page) {
      Get(stream, page, range_);
      blocks_.Put(stream, num_left, range_);
    }
    ++num_left;
  }
  if (num_left == left.size()) return;
  if (num_left > 0) {
    Get(stream, num_left - 1, range_);
    std::ranges::copy(range_, Newest(stream).begin());
  }
  num_pages_[stream] = num_left;
  blocks_.Shrink(NumBefore(std::ranges::max(num_pages_)));
}

void KeyRanges::Bounds(int stream, std::span<const float> q, int part, int num_parts,
                       std::span<float> bounds) const {
  assert(bounds.size() == q.size() / dim_ * BoundsStride(stream));
  const size_t num_blocks = BoundsStride(stream) / kBlock;
  const size_t begin = num_blocks * part / num_parts;
  const size_t end = num_blocks * (part + 1) / num_parts;
  if (begin == end) return;
  const int next = (stream + 1) % static_cast<int>(num_pages_.size());
  HWY_DYNAMIC_DISPATCH(BoundsTo)
  (q.data(), q.size() / dim_, dim_, blocks_.At(stream, begin * kBlock), end - begin,
   blocks_.At(next, begin * kBlock), bounds.data() + begin * kBlock, BoundsStride(stream));
}

std::vector<uint16_t> KeyRanges::Numbers(int stream) const {
  std::vector<uint16_t> numbers(num_pages_[stream] * RangeNumbers());
  for (size_t page = 0; page < num_pages_[stream]; ++page) {
    Get(stream, page, std::span(numbers).subspan(page * RangeNumbers(), RangeNumbers()));
  }
  return numbers;
}

void KeyRanges::SetNumbers(int stream, std::span<const uint16_t> numbers) {
  assert(numbers.size() % RangeNumbers() == 0);
  MakeRoom(numbers.size() / RangeNumbers());
  num_pages_[stream] = 0;
  for (size_t begin = 0; begin < numbers.size(); begin += RangeNumbers()) {
    AddPage(stream);
    std::ranges::copy(numbers.subspan(begin, RangeNumbers()), Newest(stream).begin());
  }
}

void KeyRanges::Get(int stream, size_t page, std::span<uint16_t> range) const {
  if (page + 1 == num_pages_[stream]) {
    std::ranges::copy(Newest(stream), range.begin());
    return;
  }
  blocks_.Get(stream, page, range);
}

}  // namespace ebb

#endif  // HWY_ONCE
