// How tiers look on a terminal: a colour each, from green through cyan and yellow to grey and
// crossed out; where NO_COLOR is set, plain, underlined, italic and crossed out.
#ifndef EBB_APPS_TERMINAL_TIER_STYLE_H_
#define EBB_APPS_TERMINAL_TIER_STYLE_H_

#include <string_view>

#include "ebb/types.h"

namespace ebb::cli {

// Whether NO_COLOR asks for text without colours (https://no-color.org): set, and not empty.
[[nodiscard]] bool NoColor();

// The parameters of a terminal's SGR sequence: "36"; empty: nothing to set.
[[nodiscard]] std::string_view TierStyle(Tier tier);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_TIER_STYLE_H_
