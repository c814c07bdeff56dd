// The loops over the scores of a group that run at every step for every group, in the best
// instruction set of the machine. Bit for bit the same in each.
#ifndef EBB_POLICY_SCORE_LOOPS_H_
#define EBB_POLICY_SCORE_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// scores[i] += weight * mass[i]; mass that is not finite counts as 0, so that scores stay finite.
// REQUIRES: as many of one as of the other.
void AddMass(std::span<const float> mass, float weight, std::span<float> scores);
// scores[i] += weights[i] * mass[i], in the same way.
void AddWeightedMass(std::span<const float> mass, std::span<const float> weights,
                     std::span<float> scores);

// The entropy of the mass in bits, each term -x log2 x to within 2e-6; terms of what is below
// 1e-30, 2 and above, or not finite are 0.
[[nodiscard]] float EntropyBits(std::span<const float> mass);

// The lowest score but NaN; infinity when there is none.
[[nodiscard]] float LowestScore(std::span<const float> scores);

// The lowest and highest numbers of each channel of some keys, in f16, as keys are mostly kept
// themselves: [2, dim]. Numbers beyond f16 count as its largest, NaN as 0.
void BeginRange(std::span<uint16_t> range);
void WidenRange(std::span<const float> key, std::span<uint16_t> range);
// What a query's product with any of a page's keys is at most, were those keys in f16: the sum over
// channels of max(q low, q high); 0 where that is not finite. q: [queries, dim]; ranges: [pages, 2,
// dim]; bounds: [queries, pages].
void BoundProducts(std::span<const float> q, size_t dim, std::span<const uint16_t> ranges,
                   std::span<float> bounds);

// The highest number that at least `count` of the scores reach, or a higher one that just as many
// reach. REQUIRES: 0 < count <= as many as there are; none is NaN.
[[nodiscard]] float HighestReachedBy(std::span<const float> scores, size_t count);

}  // namespace ebb

#endif  // EBB_POLICY_SCORE_LOOPS_H_
