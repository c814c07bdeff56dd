// Makes drills, such as
//   At first Ada three, Ben five. Third last Ben adds Ada. First Eli loses two. Say again?
//
// The thought repeats facts and sentences in random order, which is nothing but looking up. The
// order cannot be predicted, so the words that reveal it count as words of the question.
//   Recall Ben five. Third last Ben adds Ada. Recall Ada three.
// Drills of facts alone are short: a model learns to look up first where a name is next to its
// value and nowhere else, among few others.
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "lab/pebble/arithmetic.h"
#include "lab/pebble/families.h"
#include "lab/pebble/vocabulary.h"
#include "lab/pebble/writer.h"

namespace ebb::pebble {
namespace {

struct Sentence {
  std::string_view ordinal;
  std::array<std::string_view, 5> words = {};
  bool is_last = false;
};

// Returns a count of at least 2. Small counts are more likely, because a model first learns to look
// up among few facts.
int RollCount(int most, Dice* dice) { return dice->Between(2, dice->Between(4, most)); }

// Returns a sentence like those in the families of problems.
Sentence RollSentence(std::string_view ordinal, Dice* dice) {
  const std::vector<std::string_view> names = dice->Draw(Names(), 3);
  const std::vector<std::string_view> rooms = dice->Draw(Rooms(), 2);
  const std::string_view number = Number(dice->Below(10));
  switch (dice->Below(5)) {
    case 0:
      return {ordinal, {names[0], "and", names[1], "swap"}};
    case 1:
      return {ordinal, {names[0], "adds", names[1]}};
    case 2:
      return {ordinal, {names[0], dice->Chance(50) ? "finds" : "loses", number}};
    case 3:
      return {ordinal, {rooms[0], "to", rooms[1], dice->Chance(50) ? "take" : "drop", number}};
    default:
      return {ordinal,
              {names[0], "gets", names[1], WordOf(RollOperation(dice)),
               dice->Chance(50) ? names[2] : number}};
  }
}

void Say(const Sentence& sentence, Writer* writer) {
  writer->Say(sentence.ordinal, PebbleTokenKind::kQuestion);
  if (sentence.is_last) writer->Repeat("last");
  for (const std::string_view word : sentence.words)
    if (!word.empty()) writer->Repeat(word);
  writer->Say(".");
}

}  // namespace

PebbleProblem MakeDrill(PebbleDrill kind, Dice* dice) {
  Writer writer(PebbleFamily::kAmounts, Style::kFull);
  const auto all = dice->Chance(50) ? Names() : Rooms();
  const bool is_short = kind == PebbleDrill::kFacts;
  const int num_facts = is_short ? dice->Between(2, 8) : RollCount(30, dice);
  const std::vector<std::string_view> names = dice->Draw(all, num_facts);
  const bool are_objects = dice->Chance(25);
  std::vector<std::string_view> values;
  for (size_t i = 0; i < names.size(); ++i)
    values.push_back(dice->Pick(are_objects ? Objects() : Numbers()));
  std::vector<Sentence> sentences;
  if (!is_short) {
    for (const std::string_view ordinal : dice->Draw(Ordinals(), RollCount(20, dice)))
      sentences.push_back(RollSentence(ordinal, dice));
    const auto last = static_cast<size_t>(dice->Below(static_cast<int>(sentences.size())));
    sentences[last].is_last = true;
  }
  writer.Say("At first");
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) writer.Say(",");
    writer.State(names[i], values[i]);
  }
  writer.Say(".");
  for (const Sentence& sentence : sentences) Say(sentence, &writer);
  writer.Say("Say again ?");
  writer.BeginThought();
  size_t asked = 0;
  for (int left = is_short ? dice->Between(12, 20) : dice->Between(30, 70); left > 0; --left) {
    if (!sentences.empty() && dice->Chance(30)) {
      Say(dice->Pick(std::span<const Sentence>(sentences)), &writer);
    } else {
      asked = static_cast<size_t>(dice->Below(static_cast<int>(names.size())));
      writer.Recall(names[asked], values[asked], PebbleTokenKind::kQuestion);
    }
  }
  writer.Say("That is all .", PebbleTokenKind::kQuestion);
  writer.Recall(names[asked], values[asked], PebbleTokenKind::kQuestion);
  return std::move(writer).Finish(values[asked]);
}

}  // namespace ebb::pebble
