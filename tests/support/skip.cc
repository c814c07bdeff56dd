#include "tests/support/skip.h"

#include <algorithm>
#include <cstdlib>

namespace ebb {

bool IsRequired(std::string_view feature) {
  const char* const named = std::getenv("EBB_REQUIRE");
  std::string_view list = named == nullptr ? "" : named;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == feature) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace ebb
