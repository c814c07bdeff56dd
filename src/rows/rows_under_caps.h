// Computes how many rows the tiers of a sequence can hold under caps in bytes. The engine gives
// these numbers to policies; CountNeeds() and `ebb fit` use them too.
#ifndef EBB_ROWS_ROWS_UNDER_CAPS_H_
#define EBB_ROWS_ROWS_UNDER_CAPS_H_

#include <cstddef>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"

namespace ebb {

// Returns whether T1 lies in a file, where it also lies if no place is named.
[[nodiscard]] bool LiesInFile(const EngineTiers& tiers);

// Returns the bytes that `pages_of_stream` pages of each (layer, kv head) take: whole extents of an
// arena, or, `in_file`, whole segments of a file.
[[nodiscard]] uint64_t BytesOfPages(const ModelShape& shape, size_t page_bytes, bool in_file,
                                    uint64_t pages_of_stream);

// Returns how many rows fit under the caps of `tiers`. `page_bytes` is the size of a full-precision
// page.
[[nodiscard]] RowsAvailable RowsUnderCaps(const EngineTiers& tiers, const ModelShape& shape,
                                          size_t page_bytes);

// Checks the caps of `tiers`. Errors: InvalidArgument if a tier's cap holds no more than `interval`
// rows, as many as arrive between two decisions of the policy.
[[nodiscard]] Status CheckCaps(const EngineTiers& tiers, const ModelShape& shape, size_t page_bytes,
                               int interval);

// Checks T0's cap for a policy with which steps read only selected rows. T0 then holds at most
// `num_rows` rows of each group, chosen by position, including the step's own. Errors:
// InvalidArgument if the cap does not hold so many.
[[nodiscard]] Status CheckCapOfSelection(const EngineTiers& tiers, const ModelShape& shape,
                                         size_t page_bytes, size_t num_rows);

}  // namespace ebb

#endif  // EBB_ROWS_ROWS_UNDER_CAPS_H_
