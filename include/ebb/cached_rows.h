// Reads the keys and values that a session's cache holds, for studies of caches and policies.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_CACHED_ROWS_H_
#define EBB_CACHED_ROWS_H_

#include <vector>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// CachedRows holds copies of the rows of one (layer, kv head), in order of position.
struct CachedRows {
  std::vector<Position> positions;
  std::vector<Tier> tiers;
  // Holds keys after RoPE and values, [rows, head_dim], as attention reads them: rounded to the
  // cache's type, and rows of T2 decompressed. Values are empty if they are parts of the keys.
  std::vector<float> keys;
  std::vector<float> values;
};

// Reads the rows of one (layer, kv head) from all tiers; changes nothing. In a lossless session
// these are the draft's rows. Errors: InvalidArgument (no such layer or head; a layer without
// attention), Unsupported (T2 on an accelerator, whose format the host does not read), IoError,
// OutOfMemory; the session's own error if it has lost rows.
[[nodiscard]] Result<CachedRows> ReadCachedRows(Session& session, int layer, int kv_head);

}  // namespace ebb

#endif  // EBB_CACHED_ROWS_H_
