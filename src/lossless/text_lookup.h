// TextLookup guesses tokens from the text itself (prompt lookup): it finds an earlier occurrence of
// the last few tokens, and guesses the tokens that followed there.
//
// Such a guess costs no draft step. The length of the match predicts how often it is right;
// TextLookup learns this rate from every token of the text, whether or not it was guessed.
#ifndef EBB_LOSSLESS_TEXT_LOOKUP_H_
#define EBB_LOSSLESS_TEXT_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ebb/types.h"
#include "src/base/running_mean.h"

namespace ebb {

class TextLookup {
 public:
  // kShortestMatch is the least number of tokens that are looked up.
  static constexpr size_t kShortestMatch = 3;

  TextLookup();

  // Appends the text's next token.
  void Append(Token token);
  void TruncateTo(size_t size);
  [[nodiscard]] size_t size() const { return text_.size(); }
  [[nodiscard]] size_t memory_bytes() const {
    return text_.capacity() * sizeof(Token) + last_end_.capacity() * sizeof(uint32_t);
  }

  // Returns how many of the last tokens also stand at the earlier occurrence. 0: there is none, and
  // no guess.
  [[nodiscard]] size_t match() const { return match_; }
  // Returns the i-th token from here on if the text continues as it did there; the continuation may
  // reach into the guesses themselves. REQUIRES: match() > 0.
  [[nodiscard]] Token Next(size_t i) const;
  // Returns the probability that Next(i) is right if the guesses before it are.
  [[nodiscard]] double ProbabilityOfNext(size_t i) const;
  // Returns how many of the first `most` guesses to verify: the number that yields the most tokens
  // a second, or 0 if that is less than `rate`. seconds(num_tokens, num_taken) is the time of a
  // step of num_tokens tokens, of which num_taken become part of the text on average.
  [[nodiscard]] size_t NumWorthIt(
      size_t most, double rate,
      const std::function<double(int num_tokens, double num_taken)>& seconds) const;

 private:
  static constexpr int kKinds = 6;
  [[nodiscard]] static int KindOf(size_t match);
  // Returns whether the same kShortestMatch tokens precede both places.
  [[nodiscard]] bool SameBefore(size_t end, size_t other) const;
  // Returns the slot of the hash table for the kShortestMatch tokens before `end`.
  [[nodiscard]] size_t SlotOf(size_t end) const;
  void Remember(size_t end);
  void Find();

  std::vector<Token> text_;
  // Maps the kShortestMatch tokens before each place in the text to the last such place, as a hash
  // table; 0: empty slot.
  std::vector<uint32_t> last_end_;
  size_t num_ends_ = 0;  // in it
  size_t match_ = 0;
  size_t from_ = 0;                        // where the next token is looked up
  std::array<RunningMean, kKinds> right_;  // share of guesses, by the length of their match
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_TEXT_LOOKUP_H_
