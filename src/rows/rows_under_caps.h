// How many rows the tiers of a sequence hold under caps in bytes. The engine tells policies, and
// CountNeeds() and `ebb fit` count with the same numbers.
#ifndef EBB_ROWS_ROWS_UNDER_CAPS_H_
#define EBB_ROWS_ROWS_UNDER_CAPS_H_

#include <cstddef>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"

namespace ebb {

// Returns the bytes of so many pages of each (layer, kv head): in extents, or in segments of a
// file.
[[nodiscard]] uint64_t BytesOfPages(const ModelShape& shape, size_t page_bytes, bool in_file,
                                    uint64_t pages_of_stream);

// page_bytes: of a page in full precision.
[[nodiscard]] RowsAvailable RowsUnderCaps(const TierSpec& tiers, const ModelShape& shape,
                                          size_t page_bytes);

// Errors: InvalidArgument (a cap under which a tier holds no more than the rows that come between
// two decisions, `interval`).
[[nodiscard]] Status CheckCaps(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes,
                               int interval);

// For steps that read selected rows, whose T0 holds rows by their position: `num_rows` of each
// group at most, those of a step included. Errors: InvalidArgument (T0's cap does not hold them).
[[nodiscard]] Status CheckCapOfSelection(const TierSpec& tiers, const ModelShape& shape,
                                         size_t page_bytes, size_t num_rows);

}  // namespace ebb

#endif  // EBB_ROWS_ROWS_UNDER_CAPS_H_
