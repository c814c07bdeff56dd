// GuessingDecoder decodes the tokens of a session that is not lossless by speculative decoding: one
// step computes the chosen token and guesses after it. The caller sees the same logits, and
// policies the same steps, as without it (src/sequence/computed_tokens.h).
//
// Guesses come from prompt lookup: if the last tokens occurred before in the text, the tokens that
// followed there; else from a drafter, if there is one. The decoder guesses as many tokens as yield
// the most tokens a second, by the measured times of steps and the share of similar guesses that
// were right; where guessing does not pay, it decodes plainly.
#ifndef EBB_LOSSLESS_GUESSING_DECODER_H_
#define EBB_LOSSLESS_GUESSING_DECODER_H_

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ebb/engine.h"
#include "src/base/running_mean.h"
#include "src/lossless/draft_length.h"
#include "src/lossless/drafter.h"
#include "src/lossless/text_lookup.h"
#include "src/sequence/batch_guesses.h"
#include "src/sequence/computed_tokens.h"
#include "src/sequence/sequence.h"
#include "src/sequence/shown_logits.h"

namespace ebb {

// StepTimes estimates the time of a step of several tokens in relation to one of one token.
class StepTimes {
 public:
  // kSizes are the numbers of tokens of steps with guesses; each has its own graph.
  static constexpr std::array<int, 7> kSizes = {2, 3, 4, 6, 8, 12, kMostTokensWithGuesses};

  StepTimes();
  void AddPlain(double seconds);
  // Adds the time of a step of kSizes[size] tokens. Leaves out the first, which builds its graph.
  void Add(size_t size, double seconds);
  // Returns the time in plain steps.
  [[nodiscard]] double Ratio(size_t size) const { return sizes_[size].ratio.value(); }
  // Returns whether plain steps have been measured.
  [[nodiscard]] bool KnowsPlain() const { return num_plain_ > 1; }
  // Returns the seconds of a plain step. REQUIRES: KnowsPlain().
  [[nodiscard]] double plain_seconds() const { return plain_seconds_.value(); }
  // Returns whether a step of this size would be the first.
  [[nodiscard]] bool IsNew(size_t size) const { return sizes_[size].num_steps == 0; }
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

// GuessAccount bounds what guesses of a session alone may cost: trials of guesses that do not pay,
// and the graphs of their steps, take at most a small share of its time.
class GuessAccount {
 public:
  // Adds the time of a step that took a token. `plain_seconds` is that of a plain step, or this
  // step's if it is one.
  void Add(double seconds, double plain_seconds) {
    seconds_ += seconds;
    lost_seconds_ += seconds - plain_seconds;
  }
  void AddGraphs(int num_graphs) { num_graphs_ += num_graphs; }
  // Returns the seconds to wait before guesses, for which so many new graphs are built.
  [[nodiscard]] double SecondsToGuess(int num_new_graphs, double plain_seconds) const;

 private:
  double seconds_ = 0;       // of all steps
  double lost_seconds_ = 0;  // by guesses
  int num_graphs_ = 0;
};

class GuessingDecoder {
 public:
  // Makes a decoder. REQUIRES: ComputedTokens::Obstacle() of the sequence is empty; it outlives the
  // decoder.
  explicit GuessingDecoder(Sequence* sequence);

  // Sets the sources: the lookup, unless `looks_up` is false, and the drafter, unless it is null.
  void SetSources(bool looks_up, std::unique_ptr<Drafter> drafter);
  [[nodiscard]] bool has_drafter() const { return drafter_ != nullptr; }

  // Decodes as Session::Decode() does, with at most `most_guesses` guesses, and shows the logits.
  // `choose` chooses the drafter's tokens from its logits; without it, only the lookup guesses.
  StepOutcome Decode(Token token, const Guess& choose, int most_guesses, ShownLogits* logits);
  // Returns whether the token was guessed, so that TakeComputed() needs no step.
  [[nodiscard]] bool HasComputed(Token token) const {
    return !computed_.empty() && computed_.next() == token;
  }
  // Appends the guessed token and shows its logits. REQUIRES: HasComputed(token).
  StepOutcome TakeComputed(Token token, ShownLogits* logits);
  // Returns whether PartOfStep() may have guesses.
  [[nodiscard]] bool MayGuessInBatch() const { return !multiplies_by_token_; }
  // Begins a step of the token in a batch. Returns the probabilities that its first guess is right,
  // its first two, ..., for at most `most_guesses` guesses, those of the drafter among them if
  // `may_draft`. REQUIRES: !HasComputed(token).
  [[nodiscard]] std::vector<double> BeginInBatch(Token token, int most_guesses, bool may_draft);
  // Returns whether the guesses that BeginInBatch() promised are the drafter's, and not made yet.
  [[nodiscard]] bool WillDraft() const { return will_draft_; }
  // Makes up to `num_guesses` guesses with the drafter. Returns their number. REQUIRES:
  // WillDraft(), and that many were promised.
  [[nodiscard]] size_t DraftInBatch(Token token, const Guess& choose, size_t num_guesses);
  // Lets the drafter of a batch read a part of the text if it is far behind. Returns whether it is.
  bool ReadBehind(Token token);
  // Returns the sequence's part of a step that computes the token and its next `num_guesses`
  // guesses. REQUIRES: in a batch, BeginInBatch(token) returned at least as many, and those of the
  // drafter were made.
  [[nodiscard]] SequenceStep PartOfStep(Token token, size_t num_guesses);
  // Counts the guesses of the part, and shows the logits. REQUIRES: the step was taken.
  void EndPart(const SequenceStep& part, std::span<const float> logits, ShownLogits* shown);
  // Shows the drafter the step that the sequence took last, unless drafts were given up. Called
  // after steps that read a prompt; the other functions do it themselves.
  void FollowStep();
  // Drops the guesses, and frees the memory of the drafter, which starts again with later tokens.
  void Rest();
  // Called after the sequence was forked from that of `other`.
  void ForkFrom(const GuessingDecoder& other) try {
    if (drafter_ != nullptr && other.drafter_ != nullptr) drafter_->ForkFrom(*other.drafter_);
  } catch (const std::bad_alloc&) {
    drafter_.reset();
  }
  // Called after a roll-back of the sequence to `end` tokens.
  void TruncateTo(Position end) {
    if (drafter_ != nullptr) drafter_->TruncateTo(end);
  }
  // Drops the guesses, and from the index what the sequence has not taken. Called before anything
  // but this class changes the sequence.
  void Discard();
  [[nodiscard]] const SpeculationReport& report() const { return report_; }
  // Lets the lookup find its guesses in these tokens too, which stand before the text.
  void Predict(std::span<const Token> tokens);
  // Sets the source of guesses in place of the lookup. Every guess is computed, whether or not it
  // pays: source(most) returns at most `most` tokens.
  void GuessBy(std::function<std::vector<Token>(int most)> source) { source_ = std::move(source); }
  // Returns whether guesses are computed that do not pay: by GuessBy() or by SessionOptions.
  [[nodiscard]] bool IsForced() const {
    return source_ != nullptr || sequence_.options().least_guesses > 0;
  }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  // Adds to the index the tokens that the sequence has and the index lacks, and `token`.
  void IndexToken(Token token);
  [[nodiscard]] bool HasGuess() const { return lookup_.has_value() && lookup_->match() > 0; }
  // Returns the most tokens of the next step, with at most `most_guesses` guesses.
  [[nodiscard]] int MostTokens(int most_guesses);
  // Returns the probability that the lookup's i-th guess is right if those before it are.
  [[nodiscard]] double ChanceOf(size_t i) const;
  // Returns whether the account allows guesses, for which so many graphs are built.
  [[nodiscard]] bool MayCost(int num_new_graphs) const {
    return account_.SecondsToGuess(num_new_graphs, times_.plain_seconds()) <= 0;
  }
  // Returns whether the lookup has a guess, times are known, and the account allows it.
  [[nodiscard]] bool MayGuess() const { return HasGuess() && times_.KnowsPlain() && MayCost(0); }
  // Returns the number of new graphs of the next draft, as far as is known.
  [[nodiscard]] int GraphsToDraft() const { return report_.drafted_by_source == 0 ? 4 : 0; }
  // Returns whether the lookup has a guess that may pay, or that SessionOptions asks for.
  [[nodiscard]] bool WantsLookup() const {
    return MayGuess() || (HasGuess() && sequence_.options().least_guesses > 0);
  }
  // Returns the size of the step that yields the most tokens a second, an index of
  // StepTimes::kSizes; nothing: a plain step. `most` is the largest number of its tokens. REQUIRES:
  // MayGuess().
  [[nodiscard]] std::optional<size_t> BestSize(int most) const;
  // Makes run_ of the token and guesses of the lookup, if these pay or SessionOptions asks for
  // them. Returns the index of its size in StepTimes::kSizes, if it has one.
  std::optional<size_t> LookUpRun(Token token, int most);
  // DraftSeconds is the time of a draft's first guess, and of all others.
  struct DraftSeconds {
    double first = 0, more = 0;
  };
  // Makes run_ of the token and guesses of the drafter, up to `most` tokens in all, as long as
  // takes(margin) is true. Returns the time that it took; 0 if the drafter was behind and read,
  // or had no memory and was dropped.
  DraftSeconds DraftRun(Token token, const Guess& choose, int most,
                        const std::function<bool(double margin)>& takes);
  // Returns whether drafts were given up, and are not tried again soon, so that the drafter need
  // not follow the text.
  [[nodiscard]] bool DrafterRests() const;
  // Counts a token of a batch that the drafter did not guess for.
  void CountIdle();
  // Counts guesses of the drafter, and those that were accepted.
  void CountDrafted(int64_t drafted, int64_t accepted);
  // Tells draft_length_ how many guesses of the last drafted run were right.
  void CompareDraft();
  // Decodes the token without guesses, after a draft of `draft_seconds` that guessed nothing.
  StepOutcome DecodePlainly(Token token, double draft_seconds, ShownLogits* logits);
  // Computes the token, and the guesses after it that run_ holds, in one step.
  StepOutcome DecodeAhead(ShownLogits* logits);

  Sequence& sequence_;
  // Tells to multiply token by token, since weights of these types (F16, BF16) have other bits in
  // products of several columns.
  const bool multiplies_by_token_;
  ComputedTokens computed_;
  std::optional<TextLookup> lookup_ = TextLookup();  // empty: there was no memory for it
  size_t num_predicted_ = 0;                         // tokens of Predict() at the front of lookup_
  StepTimes times_;
  GuessAccount account_;
  int plain_steps_ = 0;  // since guesses were tried
  SpeculationReport report_;
  std::function<std::vector<Token>(int most)> source_;  // see GuessBy()
  std::vector<Token> run_;                              // the token and the guesses after it
  std::unique_ptr<Drafter> drafter_;                    // null: there is none
  DraftLength draft_length_;
  bool is_drafted_ = false;     // the last run was the drafter's, and is not compared yet
  int num_right_ = 0;           // of its guesses
  int num_promised_ = 0;        // of its guesses in a batch, some of which may not have been made
  bool is_in_batch_ = false;    // the last step was one of several sequences
  bool will_draft_ = false;     // see WillDraft()
  DraftRecord record_;          // of batches
  int steps_without_room_ = 0;  // last steps, in which no guess had room
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_GUESSING_DECODER_H_
