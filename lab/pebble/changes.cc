// Makes problems of changing amounts, such as
//   At first Ada three, Ben five. First Ada finds two. Second last Ben adds Ada. What does Ben
//   have?
//
// The sentences are in order of time. The thought looks up each person's current amount, which is
// the latest of its statements:
//   Second Ben adds Ada. Recall Ben five. Recall Ada five. five plus five makes zero. Ben zero.
#include <string_view>
#include <vector>

#include "lab/pebble/arithmetic.h"
#include "lab/pebble/families.h"
#include "lab/pebble/filler.h"
#include "lab/pebble/vocabulary.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Event {
  size_t person = 0;
  std::string_view verb = {};
  bool has_other = false;  // true: "Ben adds Ada"; false: "Ben finds two"
  size_t other = 0;
  int amount = 0;
};

class Changes {
 public:
  Changes(Style style, Dice* dice) : writer_(PebbleFamily::kChanges, style) {
    names_ = dice->Draw(Names(), dice->Between(3, 8));
    for (size_t i = 0; i < names_.size(); ++i) has_.push_back(dice->Below(10));
    const int num_names = static_cast<int>(names_.size());
    for (int left = dice->Between(9, static_cast<int>(Ordinals().size())); left > 0; --left) {
      Event e = {.person = static_cast<size_t>(dice->Below(num_names))};
      e.has_other = dice->Chance(40);
      if (e.has_other) {
        e.verb = "adds";
        e.other = (e.person + static_cast<size_t>(dice->Between(1, num_names - 1))) % names_.size();
      } else {
        e.verb = dice->Chance(50) ? "finds" : "loses";
        e.amount = dice->Between(1, 9);
      }
      events_.push_back(e);
    }
    asked_ = static_cast<size_t>(dice->Below(num_names));
  }

  PebbleProblem Write() {
    writer_.Say("At first");
    for (size_t i = 0; i < names_.size(); ++i) {
      if (i > 0) writer_.Say(",");
      writer_.State(names_[i], Number(has_[i]));
    }
    writer_.Say(".");
    for (size_t i = 0; i < events_.size(); ++i) SayEvent(i);
    writer_.Say("What does");
    writer_.Say(names_[asked_]);
    writer_.Say("have ?");
    writer_.BeginThought();
    for (size_t i = 0; i < events_.size(); ++i) Think(i);
    writer_.Say("That is all .");
    writer_.Recall(names_[asked_], Number(has_[asked_]));
    return std::move(writer_).Finish(Number(has_[asked_]));
  }

 private:
  void SayEvent(size_t i) {
    const Event& e = events_[i];
    writer_.Say(Ordinals()[i]);
    if (i + 1 == events_.size()) writer_.Repeat("last");
    writer_.Repeat(names_[e.person]);
    writer_.Repeat(e.verb);
    writer_.Repeat(e.has_other ? names_[e.other] : Number(e.amount));
    writer_.Say(".");
  }

  void Think(size_t i) {
    SayEvent(i);
    const Event& e = events_[i];
    const int before = has_[e.person];
    const int amount = e.has_other ? has_[e.other] : e.amount;
    const Operation operation = e.verb == "loses" ? Operation::kMinus : Operation::kPlus;
    const int after = Apply(operation, before, amount);
    writer_.Recall(names_[e.person], Number(before));
    if (e.has_other) writer_.Recall(names_[e.other], Number(amount));
    writer_.Calculate(before, WordOf(operation), amount, after);
    writer_.State(names_[e.person], Number(after));
    writer_.Say(".");
    has_[e.person] = after;
    SayFiller(after, Equation(WordOf(operation), before, amount, after), &writer_);
  }

  std::vector<std::string_view> names_;
  std::vector<int> has_;  // [names]: current amounts
  std::vector<Event> events_;
  size_t asked_ = 0;
  Writer writer_;
};

}  // namespace

PebbleProblem MakeChanges(Style style, Dice* dice) { return Changes(style, dice).Write(); }

}  // namespace ebb::pebble
