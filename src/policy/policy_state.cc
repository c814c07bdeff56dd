// Parts of a policy that do not say how they are saved.
#include <fmt/format.h>

#include "ebb/policy.h"

namespace ebb {
namespace {

Status CannotBeSaved(std::string_view part, const std::string& name) {
  return Unsupported(fmt::format("{} \"{}\" cannot be saved to a file", part, name));
}

}  // namespace

Status Scorer::SaveState(StateWriter*) const { return CannotBeSaved("scorer", Name()); }
Status Scorer::LoadState(StateReader*) { return CannotBeSaved("scorer", Name()); }
Status Placement::SaveState(StateWriter*) const { return CannotBeSaved("placement", Name()); }
Status Placement::LoadState(StateReader*) { return CannotBeSaved("placement", Name()); }
Status Selector::SaveState(StateWriter*) const { return CannotBeSaved("selector", Name()); }
Status Selector::LoadState(StateReader*) { return CannotBeSaved("selector", Name()); }

}  // namespace ebb
