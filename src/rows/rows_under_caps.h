// Computes how many rows the tiers of a sequence hold under caps in bytes. Policies get these
// numbers from the engine; CountNeeds() and `ebb fit` use the same.
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

// Returns how many rows the caps of `tiers` leave room for. `page_bytes` is the size of a page in
// full precision.
[[nodiscard]] RowsAvailable RowsUnderCaps(const TierSpec& tiers, const ModelShape& shape,
                                          size_t page_bytes);

// Checks the caps of `tiers`. Errors: InvalidArgument if a tier holds no more rows under its cap
// than the `interval` rows that arrive between two decisions.
[[nodiscard]] Status CheckCaps(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes,
                               int interval);

// Checks T0's cap for steps that read selected rows. T0 then holds at most `num_rows` rows of each
// group, chosen by position, with the rows of the step among them. Errors: InvalidArgument if the
// cap does not hold them.
[[nodiscard]] Status CheckCapOfSelection(const TierSpec& tiers, const ModelShape& shape,
                                         size_t page_bytes, size_t num_rows);

}  // namespace ebb

#endif  // EBB_ROWS_ROWS_UNDER_CAPS_H_
