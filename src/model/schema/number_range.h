// Makes regular expressions of decimal numbers within bounds.
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

  // Parses a number's text in JSON; nullopt: it has more than 16 digits before or after the point.
  static std::optional<NumberBound> Parse(const std::string& text);
};

// Returns an expression of the numbers from `least` to `most` with up to 16 digits before the point
// and 15 after it, without an exponent. nullopt as a bound: there is no bound; as a result: there
// is no such number.
[[nodiscard]] std::optional<RegexNode> NumbersBetween(const std::optional<NumberBound>& least,
                                                      const std::optional<NumberBound>& most);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_NUMBER_RANGE_H_
