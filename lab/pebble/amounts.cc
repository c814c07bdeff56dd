// Makes problems of definitions, such as
//   First Ada gets three. Second Ben gets Ada plus four. Third last Cal gets Ben times Ada. What
//   does Ben have?
//
// The thought goes through the definitions in order, looks up each name on the right, and computes:
//   Second Ben gets Ada plus four. Recall Ada three. three plus four makes seven. Ben seven.
// The question is about any of the names.
#include <string>
#include <string_view>
#include <vector>

#include "lab/pebble/arithmetic.h"
#include "lab/pebble/families.h"
#include "lab/pebble/filler.h"
#include "lab/pebble/vocabulary.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {
namespace {

// Operand is an earlier name or a number.
struct Operand {
  int definition = -1;  // index of the name's definition; -1: a number
  int value = 0;
};

struct Definition {
  std::string_view name;
  Operand left = {};
  bool has_right = false;
  Operation operation = Operation::kPlus;
  Operand right = {};
  int value = 0;
};

Operand RollName(const std::vector<Definition>& earlier, Dice* dice) {
  const int chosen = dice->Below(static_cast<int>(earlier.size()));
  return {chosen, earlier[static_cast<size_t>(chosen)].value};
}

std::vector<Definition> RollDefinitions(Dice* dice) {
  const int count = dice->Between(9, static_cast<int>(Ordinals().size()));
  std::vector<Definition> definitions;
  for (const std::string_view name : dice->Draw(Names(), count)) {
    Definition d = {.name = name};
    d.has_right = !definitions.empty() && !dice->Chance(10);
    if (d.has_right) {
      d.left = RollName(definitions, dice);
      d.operation = RollOperation(dice);
      d.right = {-1, dice->Below(10)};
      if (dice->Chance(50)) {
        const Operand other = RollName(definitions, dice);
        if (other.definition != d.left.definition) d.right = other;
      }
      d.value = Apply(d.operation, d.left.value, d.right.value);
    } else {
      d.left = {-1, dice->Below(10)};
      d.value = d.left.value;
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
    for (size_t i = 0; i < definitions_.size(); ++i) SayDefinition(i);
    const Definition& asked =
        definitions_[static_cast<size_t>(dice->Below(static_cast<int>(definitions_.size())))];
    writer_.Say("What does");
    writer_.Say(asked.name);
    writer_.Say("have ?");
    writer_.BeginThought();
    for (size_t i = 0; i < definitions_.size(); ++i) Think(i);
    writer_.Say("That is all .");
    writer_.Recall(asked.name, Number(asked.value));
    return std::move(writer_).Finish(Number(asked.value));
  }

 private:
  [[nodiscard]] std::string_view NameOf(const Operand& operand) const {
    return definitions_[static_cast<size_t>(operand.definition)].name;
  }
  [[nodiscard]] std::string_view WordFor(const Operand& operand) const {
    return operand.definition < 0 ? Number(operand.value) : NameOf(operand);
  }

  void SayDefinition(size_t i) {
    const Definition& d = definitions_[i];
    writer_.Say(Ordinals()[i]);
    if (i + 1 == definitions_.size()) writer_.Repeat("last");
    writer_.Repeat(d.name);
    writer_.Repeat("gets");
    writer_.Repeat(WordFor(d.left));
    if (d.has_right) {
      writer_.Repeat(WordOf(d.operation));
      writer_.Repeat(WordFor(d.right));
    }
    writer_.Say(".");
  }

  void Fetch(const Operand& operand) {
    if (operand.definition >= 0) writer_.Recall(NameOf(operand), Number(operand.value));
  }

  void Think(size_t i) {
    SayDefinition(i);
    const Definition& d = definitions_[i];
    Fetch(d.left);
    std::string check(Number(d.value));
    if (d.has_right) {
      Fetch(d.right);
      writer_.Calculate(d.left.value, WordOf(d.operation), d.right.value, d.value);
      check = Equation(WordOf(d.operation), d.left.value, d.right.value, d.value);
    }
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
