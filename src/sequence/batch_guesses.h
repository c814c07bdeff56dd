// Divides the guesses of a batch among its sequences: a step of several sequences computes guesses
// only as far as the tokens that all sequences gain together are worth the longer step and the
// drafts before it, and no sequence loses by the guesses of another.
#ifndef EBB_SEQUENCE_BATCH_GUESSES_H_
#define EBB_SEQUENCE_BATCH_GUESSES_H_

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "src/base/running_mean.h"

namespace ebb {

// BatchTimes estimates the time of a step of several sequences with guesses in relation to the same
// step without. It learns what a further token costs, in shares of what the tokens of the plain
// step cost on average: 0 where the weights' way from memory takes the time, 1 where products do.
class BatchTimes {
 public:
  BatchTimes();
  // Adds the time of a step of `num_sequences` sequences without guesses.
  void AddPlain(size_t num_sequences, double seconds);
  // Adds the time of a step of `num_tokens` tokens, guesses among them. Leaves out the first of its
  // size, which builds its graph.
  void AddWithGuesses(size_t num_sequences, size_t num_tokens, double seconds);
  // Adds the time of a draft: of its first guess, and of `num_more` others together.
  void AddDraft(double first_seconds, size_t num_more, double more_seconds);
  // Returns whether plain steps of so many sequences have been measured.
  [[nodiscard]] bool KnowsPlain(size_t num_sequences) const;
  // Returns the time of a step of `num_tokens` tokens in plain steps.
  [[nodiscard]] double Ratio(size_t num_sequences, size_t num_tokens) const;
  // Returns the time of a sequence's draft of `num_guesses` (>= 1) guesses in plain steps of
  // `num_sequences`.
  [[nodiscard]] double DraftRatio(size_t num_sequences, size_t num_guesses) const;

 private:
  static constexpr size_t kMostSequences = 64;
  // kClasses are the kinds of steps by the number of their tokens: up to 2, 4, 8, ...
  static constexpr size_t kClasses = 10;
  struct Plain {
    RunningMean seconds;
    int num_steps = 0;
  };
  struct Cost {
    RunningMean of_token;  // in shares of a token of the plain step
    int num_steps = 0;
  };
  [[nodiscard]] static size_t ClassOf(size_t num_tokens);
  // Forgets, now and then, what long ago measured guesses cost, so that they are tried again.
  void Age();

  std::array<Plain, kMostSequences + 1> plain_;
  std::array<Cost, kClasses> costs_;
  RunningMean first_seconds_, more_seconds_;  // of a draft's first guess, and of each other one
  int num_drafts_ = 0;
  int plain_steps_ = 0;  // since guesses were computed
};

// DraftRecord holds what the sequences of batches have learned about the guesses of their draft
// models or heads. A new sequence begins with what the others know.
struct DraftRecord {
  DraftRecord();
  RunningMean right;   // share of guesses, of those behind right ones
  int idle_steps = 0;  // since the drafter of a sequence guessed
};

// Returns how many guesses each sequence gets, [sequences]. chances[i] are the probabilities that a
// sequence's first guess is right, its first two, ...; ratio(given) is the time of a step in which
// each sequence has so many guesses, and of the drafts before it, in plain steps.
[[nodiscard]] std::vector<size_t> DivideGuesses(
    std::span<const std::vector<double>> chances,
    const std::function<double(std::span<const size_t> given)>& ratio);

}  // namespace ebb

#endif  // EBB_SEQUENCE_BATCH_GUESSES_H_
