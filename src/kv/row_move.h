// Names the tier that a row moves to.
#ifndef EBB_KV_ROW_MOVE_H_
#define EBB_KV_ROW_MOVE_H_

#include <cstdint>
#include <span>

#include "ebb/types.h"

namespace ebb {

struct RowMove {
  uint32_t index = 0;  // among all rows of the group
  Tier to = Tier::kT0;
};

struct GroupMoves {
  int group = 0;
  std::span<const RowMove> rows;  // ascending
};

}  // namespace ebb

#endif  // EBB_KV_ROW_MOVE_H_
