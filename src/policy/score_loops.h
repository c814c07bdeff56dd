// Declares the loops over a group's scores that run at every step for every group. They use the
// best instruction set of the machine; results are the same bits in every one.
#ifndef EBB_POLICY_SCORE_LOOPS_H_
#define EBB_POLICY_SCORE_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// Adds weight * mass[i] to scores[i]. Mass that is not finite counts as 0, so that scores stay
// finite. REQUIRES: both spans have the same length.
void AddMass(std::span<const float> mass, float weight, std::span<float> scores);
// Adds weights[i] * mass[i] to scores[i], with the same rules.
void AddWeightedMass(std::span<const float> mass, std::span<const float> weights,
                     std::span<float> scores);

// Returns the entropy of the mass in bits. Each term -x log2 x has an error of at most 2e-6; terms
// of numbers below 1e-30, of 2 and above, or not finite count as 0.
[[nodiscard]] float EntropyBits(std::span<const float> mass);

// Returns the lowest score, ignoring NaN; infinity if there is none.
[[nodiscard]] float LowestScore(std::span<const float> scores);

// Sets marks[i] to 1 for the `count` highest scores; among equal scores the first are marked. Other
// marks stay as they are. REQUIRES: 0 <= count <= scores.size(); both spans have the same length;
// no score is NaN.
void MarkHighest(std::span<const float> scores, size_t count, std::span<uint8_t> marks);

}  // namespace ebb

#endif  // EBB_POLICY_SCORE_LOOPS_H_
