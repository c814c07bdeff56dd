// Makes problems of a walk, such as
//   Start with hall three. Second last attic to barn drop one. First hall to attic take two. What
//   do hall and barn make?
//
// The question lists the steps in any order. The thought takes them in the right order and notes
// the amount in each room:
//   First hall to attic take two. Recall hall three. three plus two makes five. attic five.
// At the end it adds the notes of the two rooms of the question:
//   That is all. Recall hall three. Recall barn four. three plus four makes seven.
#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/pebble/arithmetic.h"
#include "lab/pebble/families.h"
#include "lab/pebble/filler.h"
#include "lab/pebble/vocabulary.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Step {
  bool is_take = false;
  int amount = 0;
};

class Walk {
 public:
  Walk(Style style, Dice* dice) : writer_(PebbleFamily::kWalk, style) {
    rooms_ = dice->Draw(Rooms(), dice->Between(9, static_cast<int>(Ordinals().size())));
    held_.push_back(dice->Below(10));
    for (size_t i = 1; i < rooms_.size(); ++i) {
      const Step step = {.is_take = dice->Chance(50), .amount = dice->Between(1, 9)};
      steps_.push_back(step);
      held_.push_back(
          Apply(step.is_take ? Operation::kPlus : Operation::kMinus, held_.back(), step.amount));
    }
    asked_ = dice->Draw(std::span<const std::string_view>(rooms_), 2);
    std::vector<size_t> all(steps_.size());
    std::iota(all.begin(), all.end(), 0);
    order_ = dice->Draw(std::span<const size_t>(all), static_cast<int>(all.size()));
  }

  PebbleProblem Write() {
    writer_.Say("Start with");
    writer_.State(rooms_[0], Number(held_[0]));
    writer_.Say(".");
    for (const size_t step : order_) SayStep(step);
    writer_.Say("What do");
    writer_.Say(asked_[0]);
    writer_.Say("and");
    writer_.Say(asked_[1]);
    writer_.Say("make ?");
    writer_.BeginThought();
    for (size_t i = 0; i < steps_.size(); ++i) Think(i);
    return AddUp();
  }

 private:
  void SayStep(size_t i) {
    writer_.Say(Ordinals()[i]);
    if (i + 1 == steps_.size()) writer_.Repeat("last");
    writer_.Repeat(rooms_[i]);
    writer_.Repeat("to");
    writer_.Repeat(rooms_[i + 1]);
    writer_.Repeat(steps_[i].is_take ? "take" : "drop");
    writer_.Repeat(Number(steps_[i].amount));
    writer_.Say(".");
  }

  void Think(size_t i) {
    SayStep(i);
    writer_.Recall(rooms_[i], Number(held_[i]));
    const Operation operation = steps_[i].is_take ? Operation::kPlus : Operation::kMinus;
    writer_.Calculate(held_[i], WordOf(operation), steps_[i].amount, held_[i + 1]);
    writer_.State(rooms_[i + 1], Number(held_[i + 1]));
    writer_.Say(".");
    SayFiller(held_[i + 1], Equation(WordOf(operation), held_[i], steps_[i].amount, held_[i + 1]),
              &writer_);
  }

  PebbleProblem AddUp() {
    int held[2];
    writer_.Say("That is all .");
    for (size_t i = 0; i < 2; ++i) {
      const auto room = std::ranges::find(rooms_, asked_[i]) - rooms_.begin();
      held[i] = held_[static_cast<size_t>(room)];
      writer_.Recall(asked_[i], Number(held[i]));
    }
    const int sum = Apply(Operation::kPlus, held[0], held[1]);
    writer_.Calculate(held[0], WordOf(Operation::kPlus), held[1], sum);
    return std::move(writer_).Finish(Number(sum));
  }

  std::vector<std::string_view> rooms_;  // in the order of the walk
  std::vector<Step> steps_;              // [rooms - 1]: steps from each room to the next
  std::vector<int> held_;                // [rooms]: amounts
  std::vector<std::string_view> asked_;  // the two rooms to add up
  std::vector<size_t> order_;            // order of the steps in the question
  Writer writer_;
};

}  // namespace

PebbleProblem MakeWalk(Style style, Dice* dice) { return Walk(style, dice).Write(); }

}  // namespace ebb::pebble
