// The lowest and highest number of each channel of keys, page by page, in f16, as keys are mostly
// kept themselves: what bounds a query's product with any key of a page (Quest, Tang et al., 2024).
// Streams are kv heads of layers. The pages of a block stand side by side in each
// channel, so that a query is held against sixteen at once and nothing is left to add up across
// them.
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

  // REQUIRES: num_streams >= 1, 1 <= dim <= kMostChannels.
  KeyRanges(int num_streams, int dim)
      : dim_(dim),
        num_pages_(num_streams, 0),
        blocks_(num_streams, dim, 2),
        newest_(num_streams * RangeNumbers()),
        range_(RangeNumbers()) {}

  [[nodiscard]] size_t num_pages(int stream) const { return num_pages_[stream]; }
  // For so many in each stream: nothing fails until there are more.
  void MakeRoom(size_t num_pages) { blocks_.MakeRoom(NumBefore(num_pages)); }
  void AddPage(int stream);
  // Numbers beyond f16 count as its largest, NaN as 0. key: [dim].
  void Widen(int stream, size_t page, std::span<const float> key);
  // Page i stays where left[i] is not 0. REQUIRES: as many as the stream has pages.
  void Retain(int stream, std::span<const uint32_t> left);

  // Computes the upper bound of a query's product with any of a page's keys, were those keys in
  // f16: the sum over channels of max(q low, q high); 0 where that is not finite. Of all pages but
  // the newest. Bit for bit the same in each instruction set. q: [queries, dim]; bounds: [queries,
  // BoundsStride()], of which the first num_pages() - 1 count. Writes one part of num_parts, for
  // each of which a thread may call at once.
  void Bounds(int stream, std::span<const float> q, int part, int num_parts,
              std::span<float> bounds) const;
  // A multiple of kBlock, less than num_pages() + kBlock.
  [[nodiscard]] size_t BoundsStride(int stream) const {
    return KeyBlocks::RoundUp(NumBefore(num_pages_[stream]));
  }

  // [pages, 2, dim]
  [[nodiscard]] std::vector<uint16_t> Numbers(int stream) const;
  // REQUIRES: whole pages of finite numbers.
  void SetNumbers(int stream, std::span<const uint16_t> numbers);

  // The memory for all pages but the newest ones.
  [[nodiscard]] size_t CapacityBytes() const { return blocks_.CapacityBytes(); }

 private:
  [[nodiscard]] size_t RangeNumbers() const { return 2 * dim_; }
  // The number of pages but the newest.
  [[nodiscard]] static size_t NumBefore(size_t num_pages) {
    return num_pages == 0 ? 0 : num_pages - 1;
  }
  [[nodiscard]] std::span<uint16_t> Newest(int stream) {
    return std::span(newest_).subspan(stream * RangeNumbers(), RangeNumbers());
  }
  [[nodiscard]] std::span<const uint16_t> Newest(int stream) const {
    return std::span(newest_).subspan(stream * RangeNumbers(), RangeNumbers());
  }
  // range: [2, dim]
  void Get(int stream, size_t page, std::span<uint16_t> range) const;

  size_t dim_;
  std::vector<size_t> num_pages_;  // [streams]
  KeyBlocks blocks_;               // lowest and highest numbers of the pages but the newest
  std::vector<uint16_t> newest_;   // [streams, 2, dim]: by itself, since every step widens it
  std::vector<uint16_t> range_;    // [2, dim], on its way
};

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_KEY_RANGES_H_
