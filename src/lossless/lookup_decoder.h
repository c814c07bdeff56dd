// LookupDecoder decodes the tokens of a session that is not lossless by speculative decoding with
// prompt lookup: if the last tokens occurred before in the text, one step computes the chosen token
// and the tokens that followed there. The caller sees the same logits, and policies the same
// steps, as without it (src/sequence/computed_tokens.h).
//
// It guesses as many tokens as yield the most tokens a second, by the measured times of steps and
// the share of similar guesses that were right; where guessing does not pay, it decodes plainly.
#ifndef EBB_LOSSLESS_LOOKUP_DECODER_H_
#define EBB_LOSSLESS_LOOKUP_DECODER_H_

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ebb/engine.h"
#include "src/lossless/running_mean.h"
#include "src/lossless/text_lookup.h"
#include "src/sequence/computed_tokens.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"

namespace ebb {

// StepTimes estimates the time of a step of several tokens in relation to one of one token.
class StepTimes {
 public:
  // kSizes are the numbers of tokens of steps with guesses; each has its own graph.
  static constexpr std::array<int, 5> kSizes = {2, 3, 4, 8, kMostTokensWithGuesses};

  StepTimes();
  void AddPlain(double seconds);
  // Adds the time of a step of kSizes[size] tokens. Leaves out the first, which builds its graph.
  void Add(size_t size, double seconds);
  // Returns the time in plain steps.
  [[nodiscard]] double Ratio(size_t size) const { return sizes_[size].ratio.value(); }
  // Returns whether plain steps have been measured.
  [[nodiscard]] bool KnowsPlain() const { return num_plain_ > 1; }
  // Forgets, now and then, what long ago measured sizes cost, so that they are tried again.
  void Age();

 private:
  struct Size {
    RunningMean ratio;
    int num_steps = 0;
  };

  RunningMean plain_seconds_;
  int num_plain_ = 0;
  std::array<Size, kSizes.size()> sizes_;
};

class LookupDecoder {
 public:
  // Makes a decoder. REQUIRES: ComputedTokens::Obstacle() of the sequence is empty; it outlives the
  // decoder.
  explicit LookupDecoder(Sequence* sequence) : sequence_(*sequence) {}

  // Decodes as Session::Decode() does, with at most `most_guesses` guesses, and shows the logits.
  StepOutcome Decode(Token token, int most_guesses, ShownLogits* logits);
  // Returns whether the token was guessed, so that TakeComputed() needs no step.
  [[nodiscard]] bool HasComputed(Token token) const {
    return !computed_.empty() && computed_.next() == token;
  }
  // Appends the guessed token and shows its logits. REQUIRES: HasComputed(token).
  StepOutcome TakeComputed(Token token, ShownLogits* logits);
  // Drops the guesses, and from the index what the sequence has not taken. Called before anything
  // but this class changes the sequence.
  void Discard();
  [[nodiscard]] const SpeculationReport& report() const { return report_; }
  // Lets the lookup find its guesses in these tokens too, which stand before the text.
  void Predict(std::span<const Token> tokens);
  // Sets the source of guesses in place of the lookup. Every guess is computed, whether or not it
  // pays: source(most) returns at most `most` tokens.
  void GuessBy(std::function<std::vector<Token>(int most)> source) { source_ = std::move(source); }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  // Adds to the index the tokens that the sequence has and the index lacks, and `token`.
  void IndexToken(Token token);
  // Returns whether the lookup has a guess and times are known.
  [[nodiscard]] bool MayGuess() const;
  // Returns the size of the step that yields the most tokens a second, an index of
  // StepTimes::kSizes; nothing: a plain step. `most` is the largest number of its tokens. REQUIRES:
  // MayGuess().
  [[nodiscard]] std::optional<size_t> BestSize(int most) const;
  StepOutcome DecodePlainly(Token token, ShownLogits* logits);
  // Computes the token, and the guesses after it that run_ holds, in one step.
  StepOutcome DecodeAhead(ShownLogits* logits);

  Sequence& sequence_;
  ComputedTokens computed_;
  std::optional<TextLookup> lookup_ = TextLookup();  // empty: there was no memory for it
  size_t num_predicted_ = 0;                         // tokens of Predict() at the front of lookup_
  StepTimes times_;
  int plain_steps_ = 0;  // since guesses were tried
  SpeculationReport report_;
  std::function<std::vector<Token>(int most)> source_;  // see GuessBy()
  std::vector<Token> run_;                              // the token and the guesses after it
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_LOOKUP_DECODER_H_
