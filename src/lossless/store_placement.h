// The placement of a lossless session's store: all rows stay, the newest in memory until they make
// whole pages, the others in T1, which is only ever appended to.
#ifndef EBB_LOSSLESS_STORE_PLACEMENT_H_
#define EBB_LOSSLESS_STORE_PLACEMENT_H_

#include <memory>

#include "ebb/policy.h"

namespace ebb {

// REQUIRES: the cache is at granularity token and has a T1.
[[nodiscard]] std::unique_ptr<Placement> MakeStorePlacement();

}  // namespace ebb

#endif  // EBB_LOSSLESS_STORE_PLACEMENT_H_
