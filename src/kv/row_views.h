// Gives steps read-only views of a cache's rows, stream by stream.
//
// Addresses are those of the last SequenceCache::FindAddresses(), and are valid until rows change
// or pages move.
//
// Thread safety: many threads may use it while nothing changes.
#ifndef EBB_KV_ROW_VIEWS_H_
#define EBB_KV_ROW_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/attention/rows.h"
#include "src/kv/page_map.h"
#include "src/kv/t1_reader.h"
#include "src/kv/tables/group_tables.h"
#include "src/rows/row_address.h"

namespace ebb {

class RowViews {
 public:
  // Makes views. REQUIRES: all arguments outlive them.
  RowViews(const CacheLayout& layout, const GroupTables& tables, const PageMap& pages,
           const T1Reader& reader)
      : layout_(layout), tables_(tables), pages_(pages), reader_(reader) {}

  // Returns the rows of T0 and T1. If T1 is staged, its rows have addresses from StageLayer() until
  // EndLayer(), or until the layer after the next is staged. In a step that reads lent rows, pages
  // and slots also name the lender's rows, and differ from those of Row().
  [[nodiscard]] RowsView View(int layer, int kv_head) const;
  // Returns the rows of T2; if CompressedOnDevice(), the host cannot read them.
  [[nodiscard]] CompressedRows Compressed(int layer, int kv_head) const;
  // Returns the pages in the list of Compressed(), which also has the pages of other tiers.
  [[nodiscard]] size_t NumPages(int layer, int kv_head) const {
    return pages_.stream(layout_.StreamOf(layer, kv_head)).pages.size();
  }
  [[nodiscard]] bool CompressedOnDevice() const { return pages_.CompressedOnDevice(); }
  // Indices lists the indices of rows among all rows of the stream. Both lists are empty if T2 has
  // no rows.
  struct Indices {
    std::span<const uint32_t> full;        // of the rows of View()
    std::span<const uint32_t> compressed;  // of the rows of Compressed()
  };
  [[nodiscard]] Indices IndicesOf(int layer, int kv_head) const;
  // Returns the address of the key and value of row `index` of View(), for writing. REQUIRES: the
  // row lies in T0, or in a T1 that is not staged.
  [[nodiscard]] RowAddress Row(int layer, int kv_head, uint32_t index) const;

  // Returns whether this step reads rows of T1 at their permanent addresses.
  [[nodiscard]] bool ReadsInPlace() const { return reader_.reads_in_place(); }
  struct RowsOfTier {
    RowsView view;                      // without positions
    std::span<const uint32_t> indices;  // among all rows of the stream
  };
  // Returns the rows of T0 or of T1 alone. REQUIRES: ReadsInPlace(), because
  // SequenceCache::StageStep(kInPlace) makes these lists.
  [[nodiscard]] RowsOfTier RowsIn(Tier tier, int layer, int kv_head) const;

  struct Counts {
    size_t pages = 0;  // in the stream's list, which its slots index and which may have gaps
    size_t rows_in_t1 = 0;
    size_t pages_in_t1 = 0;  // less those that the last step read from the lender's T0
  };
  [[nodiscard]] Counts CountsOf(int layer, int kv_head) const;
  // Returns the most pages that any stream lists.
  [[nodiscard]] size_t most_pages() const;
  [[nodiscard]] size_t num_full_rows(int group) const {
    return tables_.Of(group).rows.num_full_rows();
  }
  [[nodiscard]] bool HasCompressedRows() const;

 private:
  [[nodiscard]] const GroupTable& TableOf(int stream) const {
    return tables_.Of(layout_.GroupOf(stream));
  }

  const CacheLayout& layout_;
  const GroupTables& tables_;
  const PageMap& pages_;
  const T1Reader& reader_;
};

}  // namespace ebb

#endif  // EBB_KV_ROW_VIEWS_H_
