// Computes the figures of the paper "Not All Thoughts Need HBM" from the runs of `ebb-lab profile`,
// in the form that docs/dev/formats.md describes.
#ifndef EBB_APPS_PROFILE_FIGURES_H_
#define EBB_APPS_PROFILE_FIGURES_H_

#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/lab/profile/run.h"
#include "apps/lab/profile/transfers.h"

namespace ebb::cli {

using ProfileJson = nlohmann::ordered_json;

// Returns the distribution of tokens' importance in all runs together. A token's importance is its
// share of all attention times the number of tokens, so that 1 is the average.
[[nodiscard]] ProfileJson ImportanceFigure(std::span<const ProfiledRun> runs);
// Returns the mean importance of tokens by their position.
[[nodiscard]] ProfileJson PositionFigure(std::span<const ProfiledRun> runs);
// Returns the share of a step's important tokens that were important in the step before, over the
// steps.
[[nodiscard]] ProfileJson OverlapFigure(std::span<const ProfiledRun> runs);
// Returns, by distance, the share of a step's top half of tokens that was in the top half so many
// steps before.
[[nodiscard]] ProfileJson TopHalfFigure(std::span<const ProfiledRun> runs);
// Returns the distribution of RecurrenceTracker::intervals().
[[nodiscard]] ProfileJson RecurrenceFigure(std::span<const ProfiledRun> runs);
// Returns the seconds of a step by part, over the steps.
[[nodiscard]] ProfileJson CostFigure(std::span<const ProfiledRun> runs);
// Returns the share of rows that stays in the cache, by group, and the compression ratio by length,
// as "Inference-Time Hyper-Scaling", Fig. 6, has it. `groups_per_layer` is 0 if one group spans all
// layers.
[[nodiscard]] ProfileJson RetainedFigure(std::span<const ProfiledRun> runs, int groups_per_layer);
// Returns the rows in each tier over the steps of the longest run.
[[nodiscard]] ProfileJson TierFigure(std::span<const ProfiledRun> runs);
// Returns the measured times of moves between tiers, and the moves that the runs made.
[[nodiscard]] ProfileJson TransferFigure(std::span<const Transfer> transfers,
                                         std::span<const ProfiledRun> runs);
// Returns one record per prompt with its main figures.
[[nodiscard]] ProfileJson RunRecords(std::span<const ProfiledRun> runs);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_FIGURES_H_
