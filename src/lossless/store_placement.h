// Places the rows of a lossless session's store: all rows stay. The newest stay in memory until
// they fill whole pages, the others go to T1, to which rows are only appended.
#ifndef EBB_LOSSLESS_STORE_PLACEMENT_H_
#define EBB_LOSSLESS_STORE_PLACEMENT_H_

#include <memory>

#include "ebb/policy.h"

namespace ebb {

// Makes the placement. REQUIRES: the cache has the granularity kToken and a T1.
[[nodiscard]] std::unique_ptr<Placement> MakeStorePlacement();

}  // namespace ebb

#endif  // EBB_LOSSLESS_STORE_PLACEMENT_H_
