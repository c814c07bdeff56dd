// Finds the names that are nearest to a misspelt one, for messages.
#ifndef EBB_BASE_TEXT_NEAR_NAMES_H_
#define EBB_BASE_TEXT_NEAR_NAMES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// Returns at most `count` names, sorted by their edit distance to `wanted`, ignoring case.
[[nodiscard]] std::vector<std::string> NearNames(std::string_view wanted,
                                                 std::vector<std::string> names, size_t count);
// Returns the name that is at most a third of its letters, and at most two, from `wanted`, ignoring
// case; nothing if none is so near.
[[nodiscard]] std::optional<std::string> LikelyMeant(std::string_view wanted,
                                                     std::vector<std::string> names);

}  // namespace ebb

#endif  // EBB_BASE_TEXT_NEAR_NAMES_H_
