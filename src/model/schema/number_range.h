// Decimal numbers within bounds, as expressions of their texts.
#ifndef EBB_MODEL_SCHEMA_NUMBER_RANGE_H_
#define EBB_MODEL_SCHEMA_NUMBER_RANGE_H_

#include <optional>
#include <string>

#include "src/model/schema/regex.h"

namespace ebb {

struct NumberBound {
  bool is_negative = false;
  std::string whole = "0";    // digits before the point, without zeros in front
  std::string fraction = {};  // digits behind it, without zeros at the end
  bool is_open = false;       // the bound itself is outside

  // Of a number's text in JSON. Nothing: one that has more than 16 digits before the point, or
  // behind.
  static std::optional<NumberBound> Parse(const std::string& text);
};

// The numbers from `least` to `most` with up to 16 digits before the point and 15 behind, without
// an exponent; a bound that is absent is none. Nothing: there are no such numbers.
[[nodiscard]] std::optional<RegexNode> NumbersBetween(const std::optional<NumberBound>& least,
                                                      const std::optional<NumberBound>& most);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_NUMBER_RANGE_H_
