// Start in hall with three. From attic drop one to barn. From hall take two to attic. barn is the
// end. What do hall and attic make?
//
// The steps stand in any order in the question. The thought follows them and notes what it holds in
// each room:
//   From hall three take two to attic makes five. attic five.
// At the end it adds up the notes of the rooms that it is asked for:
//   Now hall three plus attic five makes eight. So eight.
#include <algorithm>
#include <string_view>
#include <vector>

#include "src/pebble/arithmetic.h"
#include "src/pebble/families.h"
#include "src/pebble/filler.h"
#include "src/pebble/vocabulary.h"
#include "src/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Step {
  bool is_take = false;
  int amount = 0;
};

class Walk {
 public:
  Walk(Style style, Dice* dice) : writer_(PebbleFamily::kWalk, style) {
    rooms_ = dice->Draw(Rooms(), dice->Between(9, 32));
    held_.push_back(dice->Below(10));
    for (size_t i = 1; i < rooms_.size(); ++i) {
      const Step step = {.is_take = dice->Chance(50), .amount = dice->Between(1, 9)};
      steps_.push_back(step);
      held_.push_back(
          Apply(step.is_take ? Operation::kPlus : Operation::kMinus, held_.back(), step.amount));
    }
    std::vector<int> all(rooms_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    asked_ = dice->Draw(std::span<const int>(all), dice->Between(2, 5));
    order_ = dice->Draw(std::span<const int>(all), static_cast<int>(all.size()));
  }

  PebbleProblem Write() {
    Ask();
    writer_.BeginThought();
    Note(0, Number(held_[0]));
    for (size_t i = 0; i < steps_.size(); ++i) Think(i);
    writer_.Say(rooms_.back(), PebbleTokenKind::kCopied);
    writer_.Say("is the end .");
    return AddUp();
  }

 private:
  void Ask() {
    writer_.Say("Start in");
    writer_.Say(rooms_[0]);
    writer_.Say("with");
    writer_.Say(Number(held_[0]));
    writer_.Say(".");
    for (const int room : order_) {
      const auto i = static_cast<size_t>(room);
      if (i + 1 == rooms_.size()) {
        writer_.Say(rooms_[i]);
        writer_.Say("is the end .");
        continue;
      }
      writer_.Say("From");
      writer_.Say(rooms_[i]);
      SayStep(steps_[i], PebbleTokenKind::kQuestion);
      writer_.Say("to");
      writer_.Say(rooms_[i + 1]);
      writer_.Say(".");
    }
    writer_.Say("What do");
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (i > 0) writer_.Say("and");
      writer_.Say(rooms_[static_cast<size_t>(asked_[i])]);
    }
    writer_.Say("make ?");
  }

  void SayStep(const Step& step, PebbleTokenKind kind) {
    writer_.Say(step.is_take ? "take" : "drop", kind);
    writer_.Say(Number(step.amount), kind);
  }

  void Note(size_t room, std::string_view check) {
    writer_.State(rooms_[room], Number(held_[room]));
    writer_.Say(".");
    SayFiller(held_[room], check, &writer_);
  }

  void Think(size_t i) {
    writer_.Say("From");
    writer_.Recall(rooms_[i], Number(held_[i]));
    SayStep(steps_[i], PebbleTokenKind::kCopied);
    writer_.Say("to");
    writer_.Say(rooms_[i + 1], PebbleTokenKind::kCopied);
    writer_.Say("makes");
    writer_.Say(Number(held_[i + 1]), PebbleTokenKind::kComputed);
    writer_.Say(".");
    Note(i + 1,
         Equation(steps_[i].is_take ? "take" : "drop", held_[i], steps_[i].amount, held_[i + 1]));
  }

  PebbleProblem AddUp() {
    writer_.Say("Now");
    const auto first = static_cast<size_t>(asked_[0]);
    writer_.Recall(rooms_[first], Number(held_[first]));
    int sum = held_[first];
    for (size_t i = 1; i < asked_.size(); ++i) {
      const auto room = static_cast<size_t>(asked_[i]);
      if (i > 1) writer_.Say(Number(sum), PebbleTokenKind::kGrammar);
      writer_.Say("plus");
      writer_.Recall(rooms_[room], Number(held_[room]));
      sum = Apply(Operation::kPlus, sum, held_[room]);
      writer_.Say("makes");
      writer_.Say(Number(sum), PebbleTokenKind::kComputed);
      writer_.Say(".");
    }
    writer_.Say("So");
    writer_.Say(Number(sum));
    writer_.Say(".");
    return std::move(writer_).Finish(Number(sum));
  }

  std::vector<std::string_view> rooms_;  // in the order of the walk
  std::vector<Step> steps_;              // [rooms - 1]: from each room to the next
  std::vector<int> held_;                // [rooms]
  std::vector<int> asked_;               // rooms to add up
  std::vector<int> order_;               // of the sentences in the question
  Writer writer_;
};

}  // namespace

PebbleProblem MakeWalk(Style style, Dice* dice) { return Walk(style, dice).Write(); }

}  // namespace ebb::pebble
