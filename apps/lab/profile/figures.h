// Computes the figures of the paper "Not All Thoughts Need HBM" from the runs of `ebb-lab profile`,
// in the format of docs/dev/formats.md.
#ifndef EBB_APPS_PROFILE_FIGURES_H_
#define EBB_APPS_PROFILE_FIGURES_H_

#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/lab/profile/run.h"
#include "apps/lab/profile/transfers.h"

namespace ebb::cli {

using ProfileJson = nlohmann::ordered_json;

// Returns the distribution of the tokens' importance over all runs. A token's importance is its
// share of all attention times the number of tokens, so that the average is 1.
[[nodiscard]] ProfileJson ImportanceFigure(std::span<const ProfiledRun> runs);
// Returns the mean importance of tokens by their position.
[[nodiscard]] ProfileJson PositionFigure(std::span<const ProfiledRun> runs);
// Returns, over the steps, which share of a step's important tokens was important in the step
// before.
[[nodiscard]] ProfileJson OverlapFigure(std::span<const ProfiledRun> runs);
// Returns, by distance d, which share of the half of a step's tokens with the most attention was in
// that half d steps before.
[[nodiscard]] ProfileJson TopHalfFigure(std::span<const ProfiledRun> runs);
// Returns the distribution of RecurrenceTracker::intervals().
[[nodiscard]] ProfileJson RecurrenceFigure(std::span<const ProfiledRun> runs);
// Returns the seconds of each part of a step, over the steps.
[[nodiscard]] ProfileJson CostFigure(std::span<const ProfiledRun> runs);
// Returns the share of rows that stay in the cache, by group, and the compression ratio by length,
// as in "Inference-Time Hyper-Scaling", Fig. 6. `groups_per_layer` is 0 if one group spans all
// layers.
[[nodiscard]] ProfileJson RetainedFigure(std::span<const ProfiledRun> runs, int groups_per_layer);
// Returns the number of rows in each tier over the steps of the longest run.
[[nodiscard]] ProfileJson TierFigure(std::span<const ProfiledRun> runs);
// Returns the measured times of moves between tiers, and which moves the runs made.
[[nodiscard]] ProfileJson TransferFigure(std::span<const Transfer> transfers,
                                         std::span<const ProfiledRun> runs);
// Returns one record per prompt, with its main figures.
[[nodiscard]] ProfileJson RunRecords(std::span<const ProfiledRun> runs);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_FIGURES_H_
