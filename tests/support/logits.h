// How far two sets of logits are apart.
#ifndef EBB_TESTS_SUPPORT_LOGITS_H_
#define EBB_TESTS_SUPPORT_LOGITS_H_

#include <span>

namespace ebb {

// Of all values together.
[[nodiscard]] double StandardDeviation(std::span<const float> logits);
// Infinite when the sizes differ, nothing is there, or anything is not a number.
[[nodiscard]] double LargestDifference(std::span<const float> a, std::span<const float> b);
// KL(p || q) in nats, averaged over rows of vocab_size. REQUIRES: equal sizes.
[[nodiscard]] double MeanKl(std::span<const float> p, std::span<const float> q, int vocab_size);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_LOGITS_H_
