// Parses lists of options such as "mass=0.9,rows=1024".
#ifndef EBB_BASE_KEY_VALUES_H_
#define EBB_BASE_KEY_VALUES_H_

#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

struct KeyValue {
  std::string_view key;
  std::string_view value;
};

// Splits "key=value,key=value" into its parts, as views of `text`. A value may contain "=". Errors:
// InvalidArgument if a part is not key=value or a key occurs twice; the message is a clause for the
// caller's sentence.
[[nodiscard]] Result<std::vector<KeyValue>> ParseKeyValues(std::string_view text);

}  // namespace ebb

#endif  // EBB_BASE_KEY_VALUES_H_
