// Defines the defaults of scorers, placements and selectors: Observe() calls ObserveGroup() group
// by group, and state cannot be saved.
#include <fmt/format.h>

#include "ebb/policy.h"
#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

Status CannotBeSaved(std::string_view part, const std::string& name) {
  return Unsupported(fmt::format("{} \"{}\" cannot be saved to a file", part, name));
}

}  // namespace

void Scorer::Observe(std::span<const GroupSignals> groups, const StepSignals& step) {
  const int num_groups = static_cast<int>(groups.size());
  for (int group = 0; group < num_groups; ++group) {
    if (group + 1 < num_groups) {
      FetchAhead(groups[group + 1].mass);
      Prefetch(group + 1);
    }
    ObserveGroup(group, groups[group], step);
  }
}

void Selector::Observe(std::span<const GroupSignals> groups, const StepSignals& step) {
  for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
    ObserveGroup(group, groups[group], step);
  }
}

Status Scorer::SaveState(StateWriter*) const { return CannotBeSaved("scorer", Name()); }
Status Scorer::LoadState(StateReader*) { return CannotBeSaved("scorer", Name()); }
Status Placement::SaveState(StateWriter*) const { return CannotBeSaved("placement", Name()); }
Status Placement::LoadState(StateReader*) { return CannotBeSaved("placement", Name()); }
Status Selector::SaveState(StateWriter*) const { return CannotBeSaved("selector", Name()); }
Status Selector::LoadState(StateReader*) { return CannotBeSaved("selector", Name()); }

}  // namespace ebb
