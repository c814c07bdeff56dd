// Ada has three. Ben has five. In attic Ada finds two. In barn Ben adds Ada. What does Ben have?
//
// Things happen in the order in which they are told. The thought looks up what each person has now,
// which is the latest of its statements:
//   In barn Ben five adds Ada five makes zero. Ben zero.
#include <string_view>
#include <vector>

#include "src/pebble/arithmetic.h"
#include "src/pebble/families.h"
#include "src/pebble/filler.h"
#include "src/pebble/vocabulary.h"
#include "src/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Event {
  std::string_view room;
  size_t person = 0;
  std::string_view verb;
  bool has_other = false;  // "Ben adds Ada"; otherwise "Ben finds two"
  size_t other = 0;
  int amount = 0;
};

class Changes {
 public:
  Changes(Style style, Dice* dice) : writer_(PebbleFamily::kChanges, style) {
    names_ = dice->Draw(Names(), dice->Between(3, 10));
    for (size_t i = 0; i < names_.size(); ++i) has_.push_back(dice->Below(10));
    const int num_names = static_cast<int>(names_.size());
    for (const std::string_view room : dice->Draw(Rooms(), dice->Between(8, 28))) {
      Event e = {.room = room, .person = static_cast<size_t>(dice->Below(num_names))};
      e.has_other = dice->Chance(35);
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
    for (size_t i = 0; i < names_.size(); ++i) {
      writer_.Say(names_[i]);
      writer_.Say("has");
      writer_.Say(Number(has_[i]));
      writer_.Say(".");
    }
    for (const Event& e : events_) Ask(e);
    writer_.Say("What does");
    writer_.Say(names_[asked_]);
    writer_.Say("have ?");
    writer_.BeginThought();
    for (size_t i = 0; i < names_.size(); ++i) {
      writer_.State(names_[i], Number(has_[i]));
      writer_.Say(".");
    }
    for (const Event& e : events_) Think(e);
    writer_.Say("So");
    writer_.Recall(names_[asked_], Number(has_[asked_]));
    writer_.Say(".");
    return std::move(writer_).Finish(Number(has_[asked_]));
  }

 private:
  void Ask(const Event& e) {
    writer_.Say("In");
    writer_.Say(e.room);
    writer_.Say(names_[e.person]);
    writer_.Say(e.verb);
    writer_.Say(e.has_other ? names_[e.other] : Number(e.amount));
    writer_.Say(".");
  }

  void Think(const Event& e) {
    int& mine = has_[e.person];
    writer_.Say("In");
    writer_.Say(e.room, PebbleTokenKind::kCopied);
    writer_.Recall(names_[e.person], Number(mine));
    writer_.Say(e.verb, PebbleTokenKind::kCopied);
    const int amount = e.has_other ? has_[e.other] : e.amount;
    if (e.has_other)
      writer_.Recall(names_[e.other], Number(amount));
    else
      writer_.Say(Number(amount), PebbleTokenKind::kCopied);
    const int before = mine;
    mine = Apply(e.verb == "loses" ? Operation::kMinus : Operation::kPlus, mine, amount);
    writer_.Say("makes");
    writer_.Say(Number(mine), PebbleTokenKind::kComputed);
    writer_.Say(".");
    writer_.State(names_[e.person], Number(mine));
    writer_.Say(".");
    SayFiller(mine, Equation(e.verb, before, amount, mine), &writer_);
  }

  std::vector<std::string_view> names_;
  std::vector<int> has_;  // [names], now
  std::vector<Event> events_;
  size_t asked_ = 0;
  Writer writer_;
};

}  // namespace

PebbleProblem MakeChanges(Style style, Dice* dice) { return Changes(style, dice).Write(); }

}  // namespace ebb::pebble
