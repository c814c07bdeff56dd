// Ada has three. Ben has five. Say Ada and Ben again.
//
// The thought states the pairs and then says them again in random order: nothing but looking up.
#include <string_view>
#include <vector>

#include "src/pebble/arithmetic.h"
#include "src/pebble/families.h"
#include "src/pebble/vocabulary.h"
#include "src/pebble/writer.h"

namespace ebb::pebble {

PebbleProblem MakeDrill(Dice* dice) {
  Writer writer(PebbleFamily::kAmounts, Style::kFull);
  const std::vector<std::string_view> names = dice->Draw(Names(), dice->Between(8, 40));
  std::vector<std::string_view> values;
  for (size_t i = 0; i < names.size(); ++i) values.push_back(Number(dice->Below(10)));
  std::vector<size_t> again;
  for (int i = dice->Between(60, 160); i > 0; --i)
    again.push_back(static_cast<size_t>(dice->Below(static_cast<int>(names.size()))));
  writer.Say("Say again");
  for (const size_t i : again) writer.Say(names[i]);
  writer.Say("?");
  writer.BeginThought();
  for (size_t i = 0; i < names.size(); ++i) {
    // The pairs are random: nobody can foretell them.
    writer.State(names[i], values[i]);
    writer.Say(".");
  }
  for (const size_t i : again) {
    writer.Recall(names[i], values[i]);
    writer.Say(".");
  }
  return std::move(writer).Finish(values[again.back()]);
}

}  // namespace ebb::pebble
