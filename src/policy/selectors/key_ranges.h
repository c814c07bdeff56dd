// Stores, page by page, the lowest and highest number of each channel of the keys, in f16. They
// bound a query's dot product with any key of a page (Quest, Tang et al., 2024). KeyBlocks
// interleaves the pages of a block, so that a SIMD loop compares a query with sixteen pages at once
// and needs no horizontal sum. Streams are kv heads of layers.
#ifndef EBB_POLICY_SELECTORS_KEY_RANGES_H_
#define EBB_POLICY_SELECTORS_KEY_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/policy/selectors/key_blocks.h"

namespace ebb {

class KeyRanges {
 public:
  static constexpr size_t kBlock = KeyBlocks::kBlock;  // pages
  static constexpr size_t kMostChannels = 1024;

  // Makes an object without pages. REQUIRES: num_streams >= 1, 1 <= dim <= kMostChannels.
  KeyRanges(int num_streams, int dim)
      : dim_(dim),
        num_pages_(num_streams, 0),
        blocks_(num_streams, dim, 2),
        newest_(num_streams * RangeNumbers()),
        range_(RangeNumbers()) {}

  [[nodiscard]] size_t num_pages(int stream) const { return num_pages_[stream]; }
  // Allocates memory for `num_pages` pages in each stream; AddPage() then cannot fail up to that
  // number.
  void MakeRoom(size_t num_pages) { blocks_.MakeRoom(NumBefore(num_pages)); }
  void AddPage(int stream);
  // Widens a page's range by a key [dim]. Numbers beyond the range of f16 count as its largest
  // number, NaN as 0.
  void Widen(int stream, size_t page, std::span<const float> key);
  // Removes the pages i for which left[i] is 0. REQUIRES: left.size() == num_pages(stream).
  void Retain(int stream, std::span<const uint32_t> left);

  // Computes, for every page but the newest, the upper bound of a query's product with any of the
  // page's keys (rounded to f16): the sum over channels of max(q low, q high), or 0 if that is not
  // finite. Results are the same bits in each instruction set. q: [queries, dim]; bounds: [queries,
  // BoundsStride()]; the first num_pages() - 1 of each query are valid. Computes one of num_parts
  // parts; several threads may call it at once for different parts.
  void Bounds(int stream, std::span<const float> q, int part, int num_parts,
              std::span<float> bounds) const;
  // Returns the stride of `bounds` between queries: a multiple of kBlock, less than num_pages() +
  // kBlock.
  [[nodiscard]] size_t BoundsStride(int stream) const {
    return KeyBlocks::RoundUp(NumBefore(num_pages_[stream]));
  }

  // Returns the ranges of all pages, [pages, 2, dim], for saving.
  [[nodiscard]] std::vector<uint16_t> Numbers(int stream) const;
  // Replaces the stream's pages by numbers that Numbers() returned. REQUIRES: whole pages of finite
  // numbers.
  void SetNumbers(int stream, std::span<const uint16_t> numbers);

  // Returns the bytes allocated for all pages but the newest ones.
  [[nodiscard]] size_t CapacityBytes() const { return blocks_.CapacityBytes(); }

 private:
  [[nodiscard]] size_t RangeNumbers() const { return 2 * dim_; }
  // Returns the number of pages without the newest one.
  [[nodiscard]] static size_t NumBefore(size_t num_pages) {
    return num_pages == 0 ? 0 : num_pages - 1;
  }
  [[nodiscard]] std::span<uint16_t> Newest(int stream) {
    return std::span(newest_).subspan(stream * RangeNumbers(), RangeNumbers());
  }
  [[nodiscard]] std::span<const uint16_t> Newest(int stream) const {
    return std::span(newest_).subspan(stream * RangeNumbers(), RangeNumbers());
  }
  // Copies the range of a page to `range` [2, dim].
  void Get(int stream, size_t page, std::span<uint16_t> range) const;

  size_t dim_;
  std::vector<size_t> num_pages_;  // [streams]
  KeyBlocks blocks_;               // lowest and highest numbers of the pages but the newest
  std::vector<uint16_t> newest_;   // [streams, 2, dim]: by itself, since every step widens it
  std::vector<uint16_t> range_;    // [2, dim], on its way
};

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_KEY_RANGES_H_
