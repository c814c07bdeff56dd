// Ada gets three. Ben gets Ada plus four. Cal gets Ben times Ada. What does Ada have?
//
// The thought takes the definitions in their order, looks up each name on the right and computes:
//   Ben gets Ada three plus four makes seven. Ben seven.
// What is asked for is any of the names.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/pebble/arithmetic.h"
#include "src/pebble/families.h"
#include "src/pebble/filler.h"
#include "src/pebble/vocabulary.h"
#include "src/pebble/writer.h"

namespace ebb::pebble {
namespace {

// A name defined before, or a number.
struct Operand {
  int definition = -1;  // -1: a number
  int value = 0;
};

struct Definition {
  std::string_view name;
  Operand left;
  bool has_right = false;
  Operation operation = Operation::kPlus;
  Operand right;
  int value = 0;
};

Operand RollOperand(const std::vector<Definition>& earlier, int percent_names, Dice* dice) {
  if (earlier.empty() || !dice->Chance(percent_names)) return {-1, dice->Below(10)};
  const int chosen = dice->Below(static_cast<int>(earlier.size()));
  return {chosen, earlier[static_cast<size_t>(chosen)].value};
}

std::vector<Definition> RollDefinitions(Dice* dice) {
  const int count = dice->Between(9, 32);
  std::vector<Definition> definitions;
  for (const std::string_view name : dice->Draw(Names(), count)) {
    Definition d = {.name = name};
    d.has_right = !definitions.empty() && !dice->Chance(10);
    d.left = RollOperand(definitions, d.has_right ? 100 : 0, dice);
    d.value = d.left.value;
    if (d.has_right) {
      d.operation = RollOperation(dice);
      d.right = RollOperand(definitions, 55, dice);
      d.value = Apply(d.operation, d.left.value, d.right.value);
    }
    definitions.push_back(d);
  }
  return definitions;
}

class Amounts {
 public:
  Amounts(Style style, Dice* dice)
      : definitions_(RollDefinitions(dice)), writer_(PebbleFamily::kAmounts, style) {}

  PebbleProblem Write(Dice* dice) {
    for (const Definition& d : definitions_) Ask(d);
    const Definition& asked =
        definitions_[static_cast<size_t>(dice->Below(static_cast<int>(definitions_.size())))];
    writer_.Say("What does");
    writer_.Say(asked.name);
    writer_.Say("have ?");
    writer_.BeginThought();
    for (const Definition& d : definitions_) Think(d);
    writer_.Say("So");
    writer_.Recall(asked.name, Number(asked.value));
    writer_.Say(".");
    return std::move(writer_).Finish(Number(asked.value));
  }

 private:
  [[nodiscard]] std::string_view WordFor(const Operand& operand) const {
    return operand.definition < 0 ? Number(operand.value)
                                  : definitions_[static_cast<size_t>(operand.definition)].name;
  }

  void Ask(const Definition& d) {
    writer_.Say(d.name);
    writer_.Say("gets");
    writer_.Say(WordFor(d.left));
    if (d.has_right) {
      writer_.Say(WordOf(d.operation));
      writer_.Say(WordFor(d.right));
    }
    writer_.Say(".");
  }

  void Fetch(const Operand& operand) {
    if (operand.definition < 0)
      writer_.Say(WordFor(operand), PebbleTokenKind::kCopied);
    else
      writer_.Recall(WordFor(operand), Number(operand.value));
  }

  void Think(const Definition& d) {
    writer_.Say(d.name, PebbleTokenKind::kCopied);
    writer_.Say("gets");
    Fetch(d.left);
    std::string check(Number(d.value));
    if (d.has_right) {
      writer_.Say(WordOf(d.operation), PebbleTokenKind::kCopied);
      Fetch(d.right);
      writer_.Say("makes");
      writer_.Say(Number(d.value), PebbleTokenKind::kComputed);
      check = Equation(WordOf(d.operation), d.left.value, d.right.value, d.value);
    }
    writer_.Say(".");
    writer_.State(d.name, Number(d.value));
    writer_.Say(".");
    SayFiller(d.value, check, &writer_);
  }

  std::vector<Definition> definitions_;
  Writer writer_;
};

}  // namespace

PebbleProblem MakeAmounts(Style style, Dice* dice) { return Amounts(style, dice).Write(dice); }

}  // namespace ebb::pebble
