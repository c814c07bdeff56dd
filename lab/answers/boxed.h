// Boxes that belong together.
#ifndef EBB_LAB_ANSWERS_BOXED_H_
#define EBB_LAB_ANSWERS_BOXED_H_

#include <string_view>
#include <vector>

namespace ebb {

// LastBoxed(), and the boxes before it from which commas, "and" and "or" alone separate it, in
// their order; a box that repeats the one before it is left out.
[[nodiscard]] std::vector<std::string_view> LastBoxes(std::string_view text);

}  // namespace ebb

#endif  // EBB_LAB_ANSWERS_BOXED_H_
