#include "apps/ebb/terminal/tier_style.h"

#include <array>
#include <cstdlib>

namespace ebb::cli {
namespace {

constexpr std::array<std::string_view, kNumTiers> kColours = {"32", "36", "33", "9;90"};
constexpr std::array<std::string_view, kNumTiers> kWithoutColour = {"", "4", "3", "9"};

// https://no-color.org: set, and not empty.
bool NoColour() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

}  // namespace

std::string_view TierStyle(Tier tier) {
  return (NoColour() ? kWithoutColour : kColours)[static_cast<size_t>(tier)];
}

}  // namespace ebb::cli
