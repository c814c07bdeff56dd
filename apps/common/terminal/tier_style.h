// Defines the colours of the tiers on a terminal: green for T0, then cyan, yellow, and grey and
// crossed out for evicted rows. If NO_COLOR is set: plain, underlined, italic, and crossed out.
#ifndef EBB_APPS_TERMINAL_TIER_STYLE_H_
#define EBB_APPS_TERMINAL_TIER_STYLE_H_

#include <string_view>

#include "ebb/types.h"

namespace ebb::cli {

// Returns whether NO_COLOR asks for text without colours (https://no-color.org): it is set and not
// empty.
[[nodiscard]] bool NoColor();

// Returns the parameters of the terminal's SGR sequence that colours a tier, such as "36"; empty
// for no colour.
[[nodiscard]] std::string_view TierStyle(Tier tier);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_TIER_STYLE_H_
