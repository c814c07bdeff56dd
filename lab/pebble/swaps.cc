// Makes problems of swapped objects, such as
//   At first Ada ball, Ben key, Cal cup. First last Ada and Ben swap. What does Ada have?
//
// The thought looks up both persons' objects and states them after the swap:
//   First Ada and Ben swap. Recall Ada ball. Recall Ben key. Ada key. Ben ball.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/pebble/dice.h"
#include "lab/pebble/families.h"
#include "lab/pebble/filler.h"
#include "lab/pebble/vocabulary.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Swap {
  size_t one = 0;
  size_t other = 0;
};

// Returns which filler follows a swap; it depends on the first object.
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
    has_ = dice->Draw(Objects(), num_names);
    for (int left = dice->Between(9, static_cast<int>(Ordinals().size())); left > 0; --left) {
      const auto one = static_cast<size_t>(dice->Below(num_names));
      const auto apart = static_cast<size_t>(dice->Between(1, num_names - 1));
      swaps_.push_back({.one = one, .other = (one + apart) % names_.size()});
    }
    asked_ = static_cast<size_t>(dice->Below(num_names));
  }

  PebbleProblem Write() {
    writer_.Say("At first");
    for (size_t i = 0; i < names_.size(); ++i) {
      if (i > 0) writer_.Say(",");
      writer_.State(names_[i], has_[i]);
    }
    writer_.Say(".");
    for (size_t i = 0; i < swaps_.size(); ++i) SaySwap(i);
    writer_.Say("What does");
    writer_.Say(names_[asked_]);
    writer_.Say("have ?");
    writer_.BeginThought();
    for (size_t i = 0; i < swaps_.size(); ++i) Think(i);
    writer_.Say("That is all .");
    writer_.Recall(names_[asked_], has_[asked_]);
    return std::move(writer_).Finish(has_[asked_]);
  }

 private:
  void SaySwap(size_t i) {
    writer_.Say(Ordinals()[i]);
    if (i + 1 == swaps_.size()) writer_.Repeat("last");
    writer_.Repeat(names_[swaps_[i].one]);
    writer_.Repeat("and");
    writer_.Repeat(names_[swaps_[i].other]);
    writer_.Repeat("swap");
    writer_.Say(".");
  }

  void Now(size_t person) {
    writer_.State(names_[person], has_[person]);
    writer_.Say(".");
  }

  void Think(size_t i) {
    SaySwap(i);
    const Swap& s = swaps_[i];
    writer_.Recall(names_[s.one], has_[s.one]);
    writer_.Recall(names_[s.other], has_[s.other]);
    std::swap(has_[s.one], has_[s.other]);
    Now(s.one);
    Now(s.other);
    std::string check(names_[s.one]);
    for (const std::string_view word : {has_[s.one], names_[s.other], has_[s.other]})
      check.append(" ").append(word);
    SayFiller(FillerOf(has_[s.other]), check, &writer_);
  }

  std::vector<std::string_view> names_;
  std::vector<std::string_view> has_;  // [names]: current objects
  std::vector<Swap> swaps_;
  size_t asked_ = 0;
  Writer writer_;
};

}  // namespace

PebbleProblem MakeSwaps(Style style, Dice* dice) { return Swaps(style, dice).Write(); }

}  // namespace ebb::pebble
