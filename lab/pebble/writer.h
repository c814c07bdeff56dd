// Words into tokens of a problem.
#ifndef EBB_LAB_PEBBLE_WRITER_H_
#define EBB_LAB_PEBBLE_WRITER_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "ebb/lab/pebble.h"

namespace ebb::pebble {

enum class Style {
  kFull,
  kBrief,  // begins with "Briefly." and has no filler
};

// Writes a problem from its beginning to its end. A fact is a name and the word right after it:
// "Ada seven"; if it is stated again with another value, the later one counts. A fact that is
// looked up is marked: "Recall Ada seven", and can itself be looked up from then on.
class Writer {
 public:
  Writer(PebbleFamily family, Style style);

  // Words and marks apart by single spaces: "Ada gets three ." All of them are of one kind.
  void Say(std::string_view words, PebbleTokenKind kind);
  void Say(std::string_view words);  // grammar, or of the question while that lasts
  // A word that the question says and the thought repeats.
  void Repeat(std::string_view words);
  // Writes filler; nothing in a brief problem.
  void Muse(std::string_view words);
  // The question is over, the thought begins.
  void BeginThought();
  // States "NAME VALUE": a fact of the question, or a result of the thought.
  void State(std::string_view name, std::string_view value);
  // "Recall NAME VALUE ." from memory; the name is a copied word unless another kind is given.
  void Recall(std::string_view name, std::string_view value,
              PebbleTokenKind name_kind = PebbleTokenKind::kCopied);
  // "three plus four makes seven ."; the words before the result stand a few words back.
  void Calculate(int a, std::string_view operation, int b, int result);
  // The thought ends and the answer is given.
  [[nodiscard]] PebbleProblem Finish(std::string_view answer) &&;

 private:
  PebbleProblem problem_;
  Style style_;
  bool thinking_ = false;
  // For each name, the index of the token of its last value.
  std::unordered_map<std::string_view, int> last_stated_;
};

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_WRITER_H_
