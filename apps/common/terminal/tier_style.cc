#include "apps/common/terminal/tier_style.h"

#include <array>
#include <cstdlib>

namespace ebb::cli {
namespace {

constexpr std::array<std::string_view, kNumTiers> kColours = {"32", "36", "33", "9;90"};
constexpr std::array<std::string_view, kNumTiers> kWithoutColour = {"", "4", "3", "9"};

}  // namespace

bool NoColor() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

std::string_view TierStyle(Tier tier) {
  return (NoColor() ? kWithoutColour : kColours)[static_cast<size_t>(tier)];
}

}  // namespace ebb::cli
