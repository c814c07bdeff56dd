// Declares the functions that make problems, one per family. The .cc file of each family describes
// its rules at the beginning.
#ifndef EBB_LAB_PEBBLE_FAMILIES_H_
#define EBB_LAB_PEBBLE_FAMILIES_H_

#include "ebb/lab/pebble.h"
#include "lab/pebble/dice.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {

[[nodiscard]] PebbleProblem MakeAmounts(Style style, Dice* dice);
[[nodiscard]] PebbleProblem MakeWalk(Style style, Dice* dice);
[[nodiscard]] PebbleProblem MakeChanges(Style style, Dice* dice);
[[nodiscard]] PebbleProblem MakeSwaps(Style style, Dice* dice);
[[nodiscard]] PebbleProblem MakeDrill(PebbleDrill kind, Dice* dice);

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_FAMILIES_H_
