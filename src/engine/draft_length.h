// How many tokens the next verifying step should have: the number that brings most tokens a second,
// by what the last steps took and how many guesses were right.
//
// With k tokens, of which the first is certain and each other right with probability a if all
// before it are, a step brings (1 - a^k) / (1 - a) tokens and takes k draft steps and a verifying
// step, whose time is taken as linear in k. One token alone is not drafted.
#ifndef EBB_ENGINE_DRAFT_LENGTH_H_
#define EBB_ENGINE_DRAFT_LENGTH_H_

namespace ebb {

class DraftLength {
 public:
  // REQUIRES: 1 <= min <= max.
  DraftLength(int min, int max);

  // At most `limit` (>= 1), which goes before the minimum.
  [[nodiscard]] int Next(int limit);
  // A step of one token that nobody drafted.
  void PlainStep(double seconds);
  void DraftedStep(int num_tokens, double draft_seconds, double verify_seconds);
  // Of the guesses of a step that were compared, all but perhaps the last were right.
  void Compared(int num_guesses, bool last_was_right);

 private:
  [[nodiscard]] double TokensPerSecond(int num_tokens) const;
  [[nodiscard]] double VerifySeconds(int num_tokens) const;

  // A mean in which what lies `memory` values back weighs 1/e.
  struct Mean {
    double memory = 0, sum = 0, weight = 0;
    void Add(double value, double times = 1);
    [[nodiscard]] double value() const { return sum / weight; }
    [[nodiscard]] bool empty() const { return weight == 0; }
  };

  const int min_, max_;
  Mean right_;                                  // share of guesses
  Mean plain_seconds_;                          // of a step
  Mean draft_seconds_;                          // of a token
  Mean tokens_, seconds_, squares_, products_;  // of verifying steps, for the line through them
  double slope_ = 0;                            // of that line, in seconds a token
  int runs_ = 0;                                // verifying steps so far
  int plain_steps_ = 0;                         // since the last draft
  int wait_ = 0;                                // plain steps before a draft is tried again
};

}  // namespace ebb

#endif  // EBB_ENGINE_DRAFT_LENGTH_H_
