// Calculates modulo ten, and writes calculations in words.
#ifndef EBB_LAB_PEBBLE_ARITHMETIC_H_
#define EBB_LAB_PEBBLE_ARITHMETIC_H_

#include <string>
#include <string_view>

#include "lab/pebble/dice.h"
#include "lab/pebble/vocabulary.h"

namespace ebb::pebble {

enum class Operation { kPlus, kMinus, kTimes };

[[nodiscard]] inline int Apply(Operation operation, int a, int b) {
  switch (operation) {
    case Operation::kPlus:
      return (a + b) % 10;
    case Operation::kMinus:
      return (a + 10 - b) % 10;
    case Operation::kTimes:
      break;
  }
  return a * b % 10;
}

[[nodiscard]] inline std::string_view WordOf(Operation operation) {
  switch (operation) {
    case Operation::kPlus:
      return "plus";
    case Operation::kMinus:
      return "minus";
    case Operation::kTimes:
      break;
  }
  return "times";
}

// Returns a random operation. Products are rare, because their results, and all that follows from
// them, are often zero or even.
[[nodiscard]] inline Operation RollOperation(Dice* dice) {
  const int roll = dice->Below(20);
  if (roll < 9) return Operation::kPlus;
  return roll < 18 ? Operation::kMinus : Operation::kTimes;
}

[[nodiscard]] inline std::string_view Number(int value) {
  return Numbers()[static_cast<size_t>(value)];
}

// Returns an equation in words: "three plus four makes seven".
[[nodiscard]] inline std::string Equation(std::string_view word, int a, int b, int result) {
  std::string text(Number(a));
  for (const std::string_view next : {word, Number(b), std::string_view("makes"), Number(result)})
    text.append(" ").append(next);
  return text;
}

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_ARITHMETIC_H_
