// StoredRows reads the rows of a cache in T0 and T1 as numbers, between steps and wherever the rows
// lie.
//
// Thread safety: one caller at a time.
#ifndef EBB_SEQUENCE_STORED_ROWS_H_
#define EBB_SEQUENCE_STORED_ROWS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "src/kv/sequence_cache.h"
#include "src/sequence/engine_core.h"

namespace ebb {

class StoredRows {
 public:
  // Makes a reader. REQUIRES: core and cache outlive it.
  StoredRows(const EngineCore& core, SequenceCache* cache) : core_(core), cache_(*cache) {}

  // Calls read(layer) for each layer up to `last`, in ascending order, while Load() can read its
  // rows. It may call it again for layers that several attentions read. Errors: those of `read`,
  // OutOfMemory, and those of T1's file.
  Status ForEachLayer(int last, const std::function<Status(int layer)>& read);
  enum class Part { kKeys, kValues };
  // Writes the keys or the values, [head_dim] each, of a range of rows of RowViews::View(): those
  // of row i to to(i).
  Status Load(int layer, int kv_head, const RowRange& range, Part part,
              const std::function<float*(size_t i)>& to);

 private:
  const EngineCore& core_;
  SequenceCache& cache_;
  std::vector<const std::byte*> stored_;
  std::vector<std::byte> copies_;  // of rows in a device's memory
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_STORED_ROWS_H_
