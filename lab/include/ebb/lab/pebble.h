// Makes pebble's problems: small puzzles in simple English, whose chain of thought is long, mostly
// disposable, and refers far back to its own results. A problem and its only right thought follow
// from a seed, so that a model cannot memorise them and an evaluation needs no data. All arithmetic
// is modulo ten: "seven plus five makes two".
//
// The trainer of the small reasoner in training/pebble uses the same problems.
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
  kAmounts,  // definitions by earlier ones; results are looked up later
  kWalk,     // a path with its steps in any order, and sums of its notes
  kChanges,  // amounts that change: the latest statement counts
  kSwaps,    // who has what after many swaps
};
inline constexpr int kNumPebbleFamilies = 4;
[[nodiscard]] std::string_view PebbleFamilyName(PebbleFamily family);

// PebbleTokenKind classifies the tokens of a thought, so that accuracy can be reported by kind.
enum class PebbleTokenKind : uint8_t {
  kQuestion,
  kGrammar,   // follows from the words just before
  kCopied,    // a word of the question
  kLookup,    // a value that was stated before
  kComputed,  // the result of a calculation
  kFiller,    // not needed later
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
  int num_question_tokens = 0;              // tokens of the prompt: up to the opening tag, included
  int num_thought_tokens = 0;               // tokens between the tags
  // Holds the longest distance, in tokens, from a looked-up value back to the last place where it
  // was written with its name.
  int farthest_lookup = 0;
  std::string answer = {};  // one word

  [[nodiscard]] std::string Question() const;  // as a user would type it
  [[nodiscard]] std::string Text() const;      // text of all tokens, control tokens included
};

// Returns problem number `number` in the endless list of `seed`. Its thought has 300 to 1,500
// tokens.
[[nodiscard]] PebbleProblem MakePebbleProblem(uint64_t seed, uint64_t number);

// Returns a problem that begins with "Briefly." and has no filler in its thought: the same look-ups
// in less than half of the tokens. The trainer uses it.
[[nodiscard]] PebbleProblem MakeBriefPebbleProblem(uint64_t seed, uint64_t number);

// PebbleDrill is a kind of exercise for the trainer: facts, or facts and sentences, repeated in
// random order. It teaches looking up before the puzzles do. The member `family` of a drill has no
// meaning.
enum class PebbleDrill { kFacts, kSentences };
[[nodiscard]] PebbleProblem MakePebbleDrill(PebbleDrill kind, uint64_t seed, uint64_t number);

// Returns the texts of all tokens, by token. The first 256 are the single bytes; then come control
// tokens, then words, each with the space before it.
[[nodiscard]] std::span<const std::string> PebbleVocabulary();
inline constexpr int kNumPebbleBytes = 256;
inline constexpr uint16_t kPebbleStart = 256;  // "<|start|>"
inline constexpr uint16_t kPebbleEnd = 257;    // "<|end|>"
inline constexpr uint16_t kPebbleThink = 258;  // "<think>"
inline constexpr uint16_t kPebbleThinkEnd = 259;

}  // namespace ebb

#endif  // EBB_LAB_PEBBLE_H_
