// Guesses from the text itself: where its last few tokens stood before, what followed them there.
//
// Such a guess costs no draft step. How often it is right depends on how long the match is, which
// is learnt from every token of the text, whether or not anything was guessed there.
#ifndef EBB_LOSSLESS_TEXT_LOOKUP_H_
#define EBB_LOSSLESS_TEXT_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ebb/types.h"
#include "src/lossless/running_mean.h"

namespace ebb {

class TextLookup {
 public:
  // Fewer tokens than this are not looked for.
  static constexpr size_t kShortestMatch = 3;

  TextLookup();

  // The text's next token.
  void Append(Token token);
  void TruncateTo(size_t size);
  [[nodiscard]] size_t size() const { return text_.size(); }
  [[nodiscard]] size_t memory_bytes() const {
    return text_.capacity() * sizeof(Token) + last_end_.capacity() * sizeof(uint32_t);
  }

  // How many of the last tokens stood before, side by side with a guess at the next one. 0: there
  // is none.
  [[nodiscard]] size_t match() const { return match_; }
  // The i-th token from here on, if the text goes on as it did there; it may reach into the guesses
  // themselves. REQUIRES: match() > 0.
  [[nodiscard]] Token Next(size_t i) const;
  // How likely it is right, if those before it are.
  [[nodiscard]] double ProbabilityOfNext(size_t i) const;
  // How many of the first `most` guesses to verify: as many as bring the most tokens a second,
  // where a step takes seconds(its tokens, how many of them become part of the text on average), or
  // none if that is fewer than `rate`.
  [[nodiscard]] size_t NumWorthIt(
      size_t most, double rate,
      const std::function<double(int num_tokens, double num_taken)>& seconds) const;

 private:
  static constexpr int kKinds = 6;
  [[nodiscard]] static int KindOf(size_t match);
  // Whether the same few tokens lie before both.
  [[nodiscard]] bool SameBefore(size_t end, size_t other) const;
  // Returns the slot for the few tokens before `end`.
  [[nodiscard]] size_t SlotOf(size_t end) const;
  void Remember(size_t end);
  void Find();

  std::vector<Token> text_;
  // A hash table of the few tokens before each place in the text: the last such place; 0: none.
  std::vector<uint32_t> last_end_;
  size_t num_ends_ = 0;  // in it
  size_t match_ = 0;
  size_t from_ = 0;                        // where the next token is looked up
  std::array<RunningMean, kKinds> right_;  // share of guesses, by the length of their match
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_TEXT_LOOKUP_H_
