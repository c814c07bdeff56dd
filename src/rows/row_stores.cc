#include "src/rows/row_stores.h"

#include <cassert>

#include "src/rows/file_rows.h"

namespace ebb {

RowStores OpenRowStores(const CacheStores& stores, const PageFormat& format) {
  assert(stores.t0->page_bytes() == format.PageBytes());
  assert(stores.t1 == nullptr || stores.t1_file == nullptr);
  RowStores rows;
  Device* const device = stores.device;
  rows.t0 = std::make_unique<MemoryRows>(stores.t0, device, format);
  if (stores.t1_file != nullptr) {
    rows.t1 = std::make_unique<FileRows>(stores.t1_file, device, format);
  } else if (stores.t1 != nullptr) {
    rows.t1 = std::make_unique<MemoryRows>(stores.t1, device, format);
  }
  if (stores.t2 != nullptr) {
    rows.t2 = std::make_unique<CompressedPages>(stores.t2, device, stores.compressed.RowStride());
  }
  return rows;
}

}  // namespace ebb
