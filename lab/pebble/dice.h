// Dice makes random numbers that are the same with every compiler: the C++ standard specifies the
// engine, but not the results of its distributions.
#ifndef EBB_LAB_PEBBLE_DICE_H_
#define EBB_LAB_PEBBLE_DICE_H_

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace ebb::pebble {

class Dice {
 public:
  Dice(uint64_t seed, uint64_t number) : engine_(Mix(seed, number)) {}

  // Returns a number from 0 to limit - 1; all are equally likely up to 2^-32.
  [[nodiscard]] int Below(int limit) {
    return static_cast<int>(((engine_() >> 32) * static_cast<uint64_t>(limit)) >> 32);
  }
  [[nodiscard]] int Between(int first, int last) { return first + Below(last - first + 1); }
  [[nodiscard]] bool Chance(int percent) { return Below(100) < percent; }

  template <typename T>
  [[nodiscard]] T Pick(std::span<const T> from) {
    return from[static_cast<size_t>(Below(static_cast<int>(from.size())))];
  }
  // Returns `count` different elements in random order. REQUIRES: count <= from.size().
  template <typename T>
  [[nodiscard]] std::vector<T> Draw(std::span<const T> from, int count) {
    std::vector<T> all(from.begin(), from.end());
    for (int i = 0; i < count; ++i) {
      const int other = Between(i, static_cast<int>(all.size()) - 1);
      std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(other)]);
    }
    all.resize(static_cast<size_t>(count));
    return all;
  }

 private:
  // Returns an engine whose seed mixes both numbers, so that adjacent problems do not begin with
  // similar sequences.
  static std::mt19937_64 Mix(uint64_t seed, uint64_t number) {
    std::seed_seq sequence = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                              static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)};
    return std::mt19937_64(sequence);
  }

  std::mt19937_64 engine_;
};

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_DICE_H_
