// Words into tokens of a problem.
#ifndef EBB_PEBBLE_WRITER_H_
#define EBB_PEBBLE_WRITER_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "ebb/pebble.h"

namespace ebb::pebble {

enum class Style {
  kFull,
  kBrief,  // begins with "Briefly." and has no filler
};

// Writes a problem from its beginning to its end. A fact is a name and the word right after it:
// " Ada seven"; stating it again, or anew with another value, moves the place it is looked up at.
class Writer {
 public:
  Writer(PebbleFamily family, Style style);

  // Words and marks apart by single spaces: "Ada gets three ." All of them are of one kind.
  void Say(std::string_view words, PebbleTokenKind kind);
  void Say(std::string_view words);  // grammar, or of the question while that lasts
  // Of filler; nothing in a brief problem.
  void Muse(std::string_view words);
  // The question is over, the thought begins.
  void BeginThought();
  // "NAME VALUE" where the thought has just found out the value, or copied it from the question.
  void State(std::string_view name, std::string_view value);
  // "NAME VALUE" from memory; the name is a copied word.
  void Recall(std::string_view name, std::string_view value);
  // The thought ends and the answer is given.
  [[nodiscard]] PebbleProblem Finish(std::string_view answer) &&;

 private:
  void Remember(std::string_view name);

  PebbleProblem problem_;
  Style style_;
  bool thinking_ = false;
  // Where the thought last said a name with its value: index of the value's token.
  std::unordered_map<std::string_view, int> last_stated_;
};

}  // namespace ebb::pebble

#endif  // EBB_PEBBLE_WRITER_H_
