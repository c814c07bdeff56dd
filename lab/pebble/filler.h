// Sentences between the steps of a thought, which it will not need again. They follow from the
// result alone, so that a model can learn it word by word.
#ifndef EBB_LAB_PEBBLE_FILLER_H_
#define EBB_LAB_PEBBLE_FILLER_H_

#include <string_view>

#include "lab/pebble/writer.h"

namespace ebb::pebble {

// After a step with this result, 0 to 9. `check` is the step said once more ("three plus four makes
// seven"), which some results call for.
void SayFiller(int result, std::string_view check, Writer* writer);

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_FILLER_H_
