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

// Returns the parts of "key=value,key=value" in their order, as views of `text`. A value may
// contain "=". Errors: InvalidArgument for a part that is not key=value, or a key that is given
// twice; its message is a clause for the caller's sentence.
[[nodiscard]] Result<std::vector<KeyValue>> ParseKeyValues(std::string_view text);

}  // namespace ebb

#endif  // EBB_BASE_KEY_VALUES_H_
