// Writes the words of a problem as tokens.
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

// Writer writes a problem from its beginning to its end. A fact is a name followed by a word, "Ada
// seven"; a later fact of the same name replaces it. A look-up repeats a fact, "Recall Ada seven",
// and can itself be looked up from then on.
class Writer {
 public:
  Writer(PebbleFamily family, Style style);

  // Writes words and punctuation, separated by single spaces: "Ada gets three ."; all tokens get
  // the same kind.
  void Say(std::string_view words, PebbleTokenKind kind);
  void Say(std::string_view words);  // the kind is kQuestion in the question, else kGrammar
  // Writes words of the question again, in the thought, as tokens of PebbleTokenKind::kCopied.
  void Repeat(std::string_view words);
  // Writes filler, or nothing in a brief problem.
  void Muse(std::string_view words);
  // Ends the question and begins the thought.
  void BeginThought();
  // Writes a fact, "NAME VALUE": a given one in the question, or a result in the thought.
  void State(std::string_view name, std::string_view value);
  // Writes a look-up, "Recall NAME VALUE ."; the name is a token of PebbleTokenKind::kCopied
  // unless another kind is given.
  void Recall(std::string_view name, std::string_view value,
              PebbleTokenKind name_kind = PebbleTokenKind::kCopied);
  // Writes a calculation, "three plus four makes seven ."; the words before the result were written
  // just before.
  void Calculate(int a, std::string_view operation, int b, int result);
  // Ends the thought and writes the answer.
  [[nodiscard]] PebbleProblem Finish(std::string_view answer) &&;

 private:
  PebbleProblem problem_;
  Style style_;
  bool thinking_ = false;
  // Maps each name to the index of the token with its latest value.
  std::unordered_map<std::string_view, int> last_stated_;
};

}  // namespace ebb::pebble

#endif  // EBB_LAB_PEBBLE_WRITER_H_
