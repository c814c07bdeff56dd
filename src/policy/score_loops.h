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

// The entropy of the mass in bits, each term -x log2 x to within 2e-6; terms of numbers below
// 1e-30, of 2 and above, or not finite are 0.
[[nodiscard]] float EntropyBits(std::span<const float> mass);

// The lowest score but NaN; infinity when there is none.
[[nodiscard]] float LowestScore(std::span<const float> scores);

// Marks the `count` highest scores, of equal ones the first, with 1; other marks stay as they are.
// REQUIRES: 0 <= count <= as many as there are; as many of one as of the other; none is NaN.
void MarkHighest(std::span<const float> scores, size_t count, std::span<uint8_t> marks);

}  // namespace ebb

#endif  // EBB_POLICY_SCORE_LOOPS_H_
