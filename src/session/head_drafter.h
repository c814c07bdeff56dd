// HeadDrafter guesses by a head: the model's own layer for multi-token prediction (MTP, also called
// NextN), or an EAGLE-3 or DFlash head in a file of its own. It keeps a session of the head, with a
// cache of its own, at the text of the guessing session.
//
// The head reads each token together with a hidden row of the token before it, and its logits
// predict the token after. The row comes from the model: for an MTP layer, from behind the last
// block; for EAGLE-3, which calls it a feature, from the outputs of three blocks. A guess has no
// row of the model yet, so the head reads it with its own row; once the guess is part of the text,
// the head reads it again with the model's row.
//
// A DFlash head stores rows of its cache from the features of each token of the text alone. One
// step of a block, the last token and then masks, which all see each other, computes all guesses.
#ifndef EBB_SESSION_HEAD_DRAFTER_H_
#define EBB_SESSION_HEAD_DRAFTER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "src/lossless/drafter.h"
#include "src/model/loaded/loaded_model.h"
#include "src/sequence/step.h"

namespace ebb {

// kKeptRows is how many hidden rows are kept behind the head's last token, for small roll-backs.
inline constexpr Position kKeptRows = 32;

// HeadRows holds hidden rows of consecutive tokens, which wait for the head.
class HeadRows {
 public:
  explicit HeadRows(size_t floats) : floats_(floats) {}

  [[nodiscard]] Position begin() const { return begin_; }
  [[nodiscard]] Position end() const {
    return begin_ + static_cast<Position>(rows_.size() / floats_);
  }
  // Adds the hidden rows of a step's tokens, in which those of several blocks stand one behind the
  // other. Does nothing if the step has not all of them. May throw std::bad_alloc.
  void AppendStep(const StepSignals& step, std::span<const int> blocks);
  // Adds the rows of the tokens from `first` on, in place of those that there are. Drops all others
  // if there is a gap before `first`. May throw std::bad_alloc.
  void Append(Position first, std::span<const float> rows);
  void TruncateTo(Position end);
  void DropBefore(Position begin);
  void Clear() { rows_ = std::vector<float>(); }
  // Returns the rows of the `num_rows` tokens from `first` on; zeros for those that are missing.
  [[nodiscard]] std::vector<float> Copy(Position first, size_t num_rows) const;
  [[nodiscard]] size_t memory_bytes() const { return rows_.capacity() * sizeof(float); }

 private:
  size_t floats_;  // of a row
  Position begin_ = 0;
  std::vector<float> rows_;
};

class HeadDrafter : public Drafter {
 public:
  // Makes a drafter. REQUIRES: `head` is a session of a head that has kHeadRows among its extra
  // signals; the steps that Follow() gets have RowsReadBy() the head; its engine outlives this.
  explicit HeadDrafter(std::unique_ptr<Session> head);

  [[nodiscard]] Speculation source() const override { return hparams_.draft_source; }
  void Follow(std::span<const Token> text, const StepSignals& step) override;
  void Rest() override;
  void ForkFrom(const Drafter& other) override;
  void TruncateTo(Position end) override { rows_.TruncateTo(end); }
  std::span<const float> Begin(std::span<const Token> text, Token token) override;
  std::span<const float> Append(Token guess) override;
  [[nodiscard]] size_t memory_bytes() const override;

 private:
  // Reads the tokens of the text that the head has not read with the model's rows. Returns false
  // if the head's cache has no room.
  bool Read(std::span<const Token> text);
  // Drops the head's rows of guesses and of another text. Starts again where hidden rows begin if
  // those before are missing.
  void DropOthers(std::span<const Token> text);
  void TruncateHead(size_t num_tokens);
  // Returns the rows with which the head reads the `num_tokens` tokens from `first` on; nothing:
  // no memory.
  [[nodiscard]] std::vector<float> RowsFor(Position first, size_t num_tokens);
  // Reads tokens with these rows. Returns false if there is no room. With Logits::kWanted, sets
  // logits_ to those after the last token, and last_.
  enum class Logits { kWanted, kNone };
  bool Step(std::span<const Token> tokens, std::span<const float> rows, Logits logits);
  // Computes the guesses after `token` in one step, from which NextOfBlock() returns the logits of
  // one after the other. Returns false if there is no room.
  bool StepBlock(Token token);
  std::span<const float> NextOfBlock();
  [[nodiscard]] Position next() const { return first_ + static_cast<Position>(num_read_); }

  std::unique_ptr<Session> head_;
  const Hyperparameters& hparams_;  // of the head
  const bool encodes_;       // the rows of the model are features, which become rows of the head
  HeadRows rows_;            // of the model; features, if the head reads them
  Position first_ = 0;       // the text's position of the head's first token
  size_t num_read_ = 0;      // of the head's tokens, with the model's rows; guesses follow
  std::vector<float> last_;  // the head's own row of its last token
  std::span<const float> logits_;
  StepResult block_;  // of the last block
  size_t num_taken_of_block_ = 0;
};

}  // namespace ebb

#endif  // EBB_SESSION_HEAD_DRAFTER_H_
