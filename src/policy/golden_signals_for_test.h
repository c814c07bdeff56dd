// Computes the made-up signals of tests/golden/sequence.py, number by number; that script documents
// them.
#ifndef EBB_POLICY_GOLDEN_SIGNALS_FOR_TEST_H_
#define EBB_POLICY_GOLDEN_SIGNALS_FOR_TEST_H_

#include <cstdint>
#include <initializer_list>

#include "ebb/model.h"

namespace ebb {

inline constexpr ModelShape kGoldenShape = {.num_layers = 4,
                                            .num_q_heads = 4,
                                            .num_kv_heads = 2,
                                            .head_dim = 8,
                                            .embed_dim = 6,
                                            .vocab_size = 10,
                                            .trained_context = 4096};

// Returns a number in [0, 1) that is a hash of `numbers` (the finaliser of SplitMix64).
inline double Uniform(std::initializer_list<uint64_t> numbers) {
  uint64_t hash = 0;
  for (const uint64_t number : numbers) {
    uint64_t x = (hash ^ number) + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    hash = x ^ (x >> 31);
  }
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

inline double GoldenKey(uint64_t seed, uint64_t layer, uint64_t head, uint64_t position,
                        uint64_t channel) {
  const double alike = Uniform({seed, 9, position / 5, head}) < 0.5 ? 1.5 : 0.3;
  return alike * (Uniform({seed, 1, layer, head, channel}) - 0.5) +
         Uniform({seed, 2, layer, head, position, channel}) - 0.5;
}

inline double GoldenQuery(uint64_t seed, uint64_t layer, uint64_t q_head, uint64_t position,
                          uint64_t channel) {
  return 6 * (Uniform({seed, 4, layer, q_head, position, channel}) - 0.5);
}

}  // namespace ebb

#endif  // EBB_POLICY_GOLDEN_SIGNALS_FOR_TEST_H_
