// Ada has ball. Ben has key. Cal has cup. In attic Ada and Ben swap. What does Ada have?
//
// The thought looks up what the two hold now and states what they hold then:
//   In attic Ada ball and Ben key swap. Ada key. Ben ball.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/pebble/dice.h"
#include "src/pebble/families.h"
#include "src/pebble/filler.h"
#include "src/pebble/vocabulary.h"
#include "src/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Swap {
  std::string_view room;
  size_t one = 0;
  size_t other = 0;
};

// What is said after a swap follows from the first object.
int FillerOf(std::string_view object) {
  for (size_t i = 0; i < Objects().size(); ++i)
    if (Objects()[i] == object) return static_cast<int>(i % 10);
  return 0;
}

class Swaps {
 public:
  Swaps(Style style, Dice* dice) : writer_(PebbleFamily::kSwaps, style) {
    const int num_names = dice->Between(4, 10);
    names_ = dice->Draw(Names(), num_names);
    holds_ = dice->Draw(Objects(), num_names);
    for (const std::string_view room : dice->Draw(Rooms(), dice->Between(9, 26))) {
      const auto one = static_cast<size_t>(dice->Below(num_names));
      const auto apart = static_cast<size_t>(dice->Between(1, num_names - 1));
      swaps_.push_back({.room = room, .one = one, .other = (one + apart) % names_.size()});
    }
    asked_ = static_cast<size_t>(dice->Below(num_names));
  }

  PebbleProblem Write() {
    for (size_t i = 0; i < names_.size(); ++i) {
      writer_.Say(names_[i]);
      writer_.Say("has");
      writer_.Say(holds_[i]);
      writer_.Say(".");
    }
    for (const Swap& s : swaps_) {
      writer_.Say("In");
      writer_.Say(s.room);
      writer_.Say(names_[s.one]);
      writer_.Say("and");
      writer_.Say(names_[s.other]);
      writer_.Say("swap .");
    }
    writer_.Say("What does");
    writer_.Say(names_[asked_]);
    writer_.Say("hold ?");
    writer_.BeginThought();
    for (size_t i = 0; i < names_.size(); ++i) Now(i);
    for (const Swap& s : swaps_) Think(s);
    writer_.Say("So");
    writer_.Recall(names_[asked_], holds_[asked_]);
    writer_.Say(".");
    return std::move(writer_).Finish(holds_[asked_]);
  }

 private:
  void Now(size_t person) {
    writer_.State(names_[person], holds_[person]);
    writer_.Say(".");
  }

  void Think(const Swap& s) {
    writer_.Say("In");
    writer_.Say(s.room, PebbleTokenKind::kCopied);
    writer_.Recall(names_[s.one], holds_[s.one]);
    writer_.Say("and");
    writer_.Recall(names_[s.other], holds_[s.other]);
    writer_.Say("swap .");
    std::swap(holds_[s.one], holds_[s.other]);
    Now(s.one);
    Now(s.other);
    std::string check(names_[s.one]);
    for (const std::string_view word : {holds_[s.one], names_[s.other], holds_[s.other]})
      check.append(" ").append(word);
    SayFiller(FillerOf(holds_[s.other]), check, &writer_);
  }

  std::vector<std::string_view> names_;
  std::vector<std::string_view> holds_;  // [names], now
  std::vector<Swap> swaps_;
  size_t asked_ = 0;
  Writer writer_;
};

}  // namespace

PebbleProblem MakeSwaps(Style style, Dice* dice) { return Swaps(style, dice).Write(); }

}  // namespace ebb::pebble
