// Writes sentences between the steps of a thought that are not needed later. They depend only on
// the step's result, so that a model can learn them word by word.
#ifndef EBB_LAB_PEBBLE_FILLER_H_
#define EBB_LAB_PEBBLE_FILLER_H_

#include <string_view>

#include "lab/pebble/writer.h"

namespace ebb::pebble {

// Writes the filler after a step with this result, 0 to 9. `check` is the step in words ("three
// plus four makes seven"), which some fillers repeat.
void SayFiller(int result, std::string_view check, Writer* writer);

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_FILLER_H_
