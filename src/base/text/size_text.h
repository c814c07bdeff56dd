// Formats numbers of bytes, and other large numbers, for people.
#ifndef EBB_BASE_TEXT_SIZE_TEXT_H_
#define EBB_BASE_TEXT_SIZE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Returns a size such as "512 bytes", "1.5 KiB", "36.1 MiB" or "5.62 GiB", without zeros after the
// point: "2 MiB". Rounds to the nearest.
[[nodiscard]] std::string SizeText(double bytes);

// Returns the number with a comma between its thousands: "8,192".
[[nodiscard]] std::string WithCommas(int64_t number);

// ComparedSizes are two sizes as texts that differ if the sizes do: in bytes if SizeText() would
// round them to the same text.
struct ComparedSizes {
  ComparedSizes(uint64_t first_bytes, uint64_t second_bytes);
  std::string first;
  std::string second;
};

// Refuses a number without a unit that counts less than a million bytes, and asks whether `unit`
// was meant, or a share if `may_be_share`: "30 bytes; did you mean 30% or 30MiB?". Accepts all
// other texts.
[[nodiscard]] Status CheckHasUnit(std::string_view text, std::string_view unit,
                                  bool may_be_share = false);

}  // namespace ebb

#endif  // EBB_BASE_TEXT_SIZE_TEXT_H_
