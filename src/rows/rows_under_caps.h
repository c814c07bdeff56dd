// How many rows the tiers of a sequence hold under caps in bytes. The engine tells policies, and
// CountNeeds() and `ebb fit` count with the same numbers.
#ifndef EBB_ROWS_ROWS_UNDER_CAPS_H_
#define EBB_ROWS_ROWS_UNDER_CAPS_H_

#include <cstddef>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"

namespace ebb {

// page_bytes: of a page in full precision.
[[nodiscard]] RowsAvailable RowsUnderCaps(const TierSpec& tiers, const ModelShape& shape,
                                          size_t page_bytes);

// Errors: InvalidArgument (a cap under which a tier holds no more than the rows that come between
// two decisions, `interval`).
[[nodiscard]] Status CheckCaps(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes,
                               int interval);

}  // namespace ebb

#endif  // EBB_ROWS_ROWS_UNDER_CAPS_H_
