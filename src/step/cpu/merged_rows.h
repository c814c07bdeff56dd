// MergedRows lists the rows of a sequence for a prompt's tiles if some of its rows lie in T2. Layer
// by layer, it decompresses the rows in T2 to pages of its own, and merges them with the other rows
// in order of position.
#ifndef EBB_STEP_CPU_MERGED_ROWS_H_
#define EBB_STEP_CPU_MERGED_ROWS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/attention.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class MergedRows {
 public:
  // Returns the most bytes that Reserve() takes for `num_rows` rows of a kv head in T2.
  [[nodiscard]] static size_t BytesFor(size_t num_rows, size_t kv_heads, const PageFormat& format);
  // Allocates memory for the T2 rows of any layer of `cache`. May throw std::bad_alloc.
  void Reserve(const SequenceCache& cache, const ModelShape& shape, const PageFormat& format);
  // Frees the memory of the decompressed rows.
  void Release();
  // Decompresses this part's share of a layer's rows in T2.
  void Decompress(const AttentionKernel& kernel, const AttentionShape& shape,
                  const SequenceCache& cache, int layer, int kv_heads, int part, int num_parts);
  // Lists all rows of a kv head, in order of position. The view is valid until the next layer is
  // decompressed.
  [[nodiscard]] RowsView View(const SequenceCache& cache, int layer, int kv_head);

  [[nodiscard]] size_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Head {
    std::vector<const std::byte*> pages;  // the cache's pages, then the decompressed ones
    std::vector<Slot> slots;
    std::vector<Position> last_visible;  // empty while all rows stay visible
  };
  // Returns page `page` of a kv head's decompressed rows.
  [[nodiscard]] std::byte* PageOf(int kv_head, size_t page) const {
    return memory_.get() + (kv_head * pages_per_head_ + page) * format_.PageBytes();
  }

  PageFormat format_;
  size_t pages_per_head_ = 0;  // decompressed pages of each kv head in memory_
  size_t memory_bytes_ = 0;
  hwy::AlignedFreeUniquePtr<std::byte[]> memory_;  // [kv heads, pages_per_head_]
  std::vector<Head> heads_;                        // [kv heads]
};

}  // namespace ebb

#endif  // EBB_STEP_CPU_MERGED_ROWS_H_
