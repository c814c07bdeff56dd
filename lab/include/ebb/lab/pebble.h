// Makes pebble's problems: small puzzles in simple English whose chain of thought is long, mostly
// disposable, and refers far back to its own results. A problem and its only right thought follow
// from a seed, so that a model cannot memorise them and an evaluation needs no data. All arithmetic
// is modulo ten: "seven plus five makes two".
//
// The trainer of the small reasoner in training/pebble reads the same problems.
//
// Thread safety: free functions without state.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_PEBBLE_H_
#define EBB_LAB_PEBBLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] ebb {

enum class PebbleFamily {
  kAmounts,  // definitions that use earlier ones: every result is looked up again later
  kWalk,     // a path whose steps stand in any order; notes made on the way are added up at its end
  kChanges,  // amounts that change: the latest statement counts, the older ones mislead
  kSwaps,    // who holds what after many swaps
};
inline constexpr int kNumPebbleFamilies = 4;
[[nodiscard]] std::string_view PebbleFamilyName(PebbleFamily family);

// PebbleTokenKind classifies the tokens of a thought, so that accuracy can be reported by kind.
enum class PebbleTokenKind : uint8_t {
  kQuestion,
  kGrammar,   // follows from the words just before
  kCopied,    // a word of the question
  kLookup,    // a value that was stated before
  kComputed,  // a result
  kFiller,    // disposable
  kAnswer,
};
inline constexpr int kNumPebbleTokenKinds = 7;
[[nodiscard]] std::string_view PebbleTokenKindName(PebbleTokenKind kind);

struct PebbleProblem {
  PebbleFamily family = PebbleFamily::kAmounts;
  // Holds the whole text: the start token, "Question:", the question, the thought with its tags,
  // "The answer is X." and the end token.
  std::vector<uint16_t> tokens = {};
  std::vector<PebbleTokenKind> kinds = {};  // [tokens]
  int num_question_tokens = 0;  // what a model is given: up to the opening tag, included
  int num_thought_tokens = 0;   // between the tags
  // Holds the longest distance, in tokens, from a looked-up value back to where it was last written
  // with its name.
  int farthest_lookup = 0;
  std::string answer = {};  // one word

  [[nodiscard]] std::string Question() const;  // as a user would type it
  [[nodiscard]] std::string Text() const;      // of all tokens, control tokens included
};

// Returns the problem with this number in the endless list of `seed`. Its thought has 300 to 1,500
// tokens.
[[nodiscard]] PebbleProblem MakePebbleProblem(uint64_t seed, uint64_t number);

// Returns such a problem, except that it begins with "Briefly." and its thought has no filler: the
// same look-ups in less than half of the tokens, for the trainer.
[[nodiscard]] PebbleProblem MakeBriefPebbleProblem(uint64_t seed, uint64_t number);

// PebbleDrill is a kind of practice for the trainer: facts, or facts and sentences, repeated in
// random order. It teaches looking up before the puzzles do. A drill's `family` has no meaning.
enum class PebbleDrill { kFacts, kSentences };
[[nodiscard]] PebbleProblem MakePebbleDrill(PebbleDrill kind, uint64_t seed, uint64_t number);

// Returns the texts of the tokens, by token. The first 256 are the single bytes; then come control
// tokens, then words, each with the space before it.
[[nodiscard]] std::span<const std::string> PebbleVocabulary();
inline constexpr int kNumPebbleBytes = 256;
inline constexpr uint16_t kPebbleStart = 256;  // "<|start|>"
inline constexpr uint16_t kPebbleEnd = 257;    // "<|end|>"
inline constexpr uint16_t kPebbleThink = 258;  // "<think>"
inline constexpr uint16_t kPebbleThinkEnd = 259;

}  // namespace ebb

#endif  // EBB_LAB_PEBBLE_H_
