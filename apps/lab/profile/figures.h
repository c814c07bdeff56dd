// The figures of "Not All Thoughts Need HBM", computed from the runs of `ebb-lab profile`, in the
// form that docs/dev/formats.md describes.
#ifndef EBB_APPS_PROFILE_FIGURES_H_
#define EBB_APPS_PROFILE_FIGURES_H_

#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/lab/profile/run.h"
#include "apps/lab/profile/transfers.h"

namespace ebb::cli {

using ProfileJson = nlohmann::ordered_json;

// All runs together. A token's importance is its share of all attention, times the number of
// tokens: 1 is the average.
[[nodiscard]] ProfileJson ImportanceFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson PositionFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson OverlapFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson TopHalfFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson RecurrenceFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson CostFigure(std::span<const ProfiledRun> runs);
// The share of rows that stays, by group and by length ("Inference-Time Hyper-Scaling", Fig. 6).
// `groups_per_layer`: 0 where one group is all layers.
[[nodiscard]] ProfileJson RetainedFigure(std::span<const ProfiledRun> runs, int groups_per_layer);
// The longest run alone.
[[nodiscard]] ProfileJson TierFigure(std::span<const ProfiledRun> runs);
[[nodiscard]] ProfileJson TransferFigure(std::span<const Transfer> transfers,
                                         std::span<const ProfiledRun> runs);
// One record per prompt.
[[nodiscard]] ProfileJson RunRecords(std::span<const ProfiledRun> runs);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_FIGURES_H_
