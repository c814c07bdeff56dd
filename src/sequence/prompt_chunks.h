// Decides how a sequence reads its prompts: into which chunks a prompt is cut (the policy decides
// after each of them), and which beginning of the first prompt another sequence may reuse (prefix
// caching).
#ifndef EBB_SEQUENCE_PROMPT_CHUNKS_H_
#define EBB_SEQUENCE_PROMPT_CHUNKS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/sequence/token_history.h"

namespace ebb {

class Sequence;

class PromptChunks {
 public:
  // Makes an object without a prompt. REQUIRES: it is a member of `sequence`.
  explicit PromptChunks(Sequence* sequence) : sequence_(*sequence) {}
  PromptChunks(const PromptChunks&) = delete;
  PromptChunks& operator=(const PromptChunks&) = delete;

  // Returns the number of tokens in every chunk of a prompt but the last. Rows of T2 and re-rotated
  // keys may require shorter chunks, see MaxChunk().
  [[nodiscard]] size_t WholeChunk() const;
  // Returns whether reading a chunk in several pieces would change bits: if keys are re-rotated
  // when a step finds no free RoPE positions, if the policy hides rows within a step (DMS), or if
  // the policy sums up a prompt's mass step by step.
  [[nodiscard]] bool ReadsWholeChunks() const;
  // Returns whether a step may have only one token of the sequence: when a device attends to rows
  // in T2, or T2 holds rows that a longer step would have to hide.
  [[nodiscard]] bool ReadsTokenByToken() const;
  // Returns how many of `num_tokens` tokens of a prompt one step may read if T0 were empty.
  [[nodiscard]] size_t MaxChunk(size_t num_tokens) const;
  // Returns how many tokens of a chunk the next step reads. If T0 has too little room for the
  // chunk, first demotes or evicts rows as the policy decides. Errors: those of
  // Sequence::MakeRoom().
  [[nodiscard]] Result<size_t> NextPiece(size_t chunk);
  // Sets how many tokens of the prompt follow the step's own; see PlacementInput.
  void SetTokensToCome(size_t num_tokens) { tokens_to_come_ = num_tokens; }
  [[nodiscard]] size_t tokens_to_come() const { return tokens_to_come_; }

  // Begins to read a prompt. AdoptPrefix() has provided the rows of its first `num_read` tokens.
  // May throw std::bad_alloc.
  void Begin(std::span<const Token> prompt, size_t num_read);
  // Returns the most tokens that the prompt's next step may read, so that the step ends at a
  // planned checkpoint; without a recurrent state in the model there is no such limit.
  [[nodiscard]] size_t TokensToCheckpoint() const;
  // Records a computed step of a prompt, whose tokens are part of the sequence by now, and keeps
  // checkpoints.
  void EndStep(size_t num_tokens, bool ends_chunk);
  // Ends the prompt, because it was read or because a token is generated. The first call also ends
  // the sequence's first prompt, and with it the scorer's first prefill.
  void End();
  void TruncateTo(Position end);

  // Returns how many tokens at the beginning of `prompt` have rows here that are bit for bit the
  // rows which a sequence with the same options would compute by reading all of `prompt`. At least
  // one token of the prompt is left to be read. Returns 0 if the policy learns more from a prompt
  // than its rows.
  [[nodiscard]] size_t ShareablePrefixLength(std::span<const Token> prompt) const;
  // Takes over the rows of the first `end` tokens of the other sequence's prompt, sharing full
  // pages. After a failure this sequence is unusable and must be destroyed. REQUIRES: both
  // sequences have the same core and options and a policy of the same kind; this sequence is empty;
  // end <= other->prompt().ShareablePrefixLength() for the prompt that is read next.
  Status AdoptPrefix(Sequence* other, Position end);
  // Copies the state of the first prompt from `other`, from which this sequence was forked.
  void TakeFrom(const PromptChunks& other) { first_ = other.first_; }

  void Save(StateWriter* to) const;
  void Load(StateReader* from);
  // Fails the reader if the sequence's tokens cannot begin with the loaded first prompt. REQUIRES:
  // Load() was called; `tokens` are the sequence's.
  void CheckLoaded(const TokenHistory& tokens, StateReader* from);

 private:
  // FirstPrompt describes the prompt that the sequence began with. It was cut into chunks from its
  // first token on, so that other sequences can reuse its rows.
  struct FirstPrompt {
    size_t num_tokens = 0;
    Position end = 0;      // so many of them were read, and are still there
    bool is_read = false;  // more of them may come
  };

  // Returns the tokens of the next chunk of a prompt that has `num_tokens` tokens left. Ignores the
  // limits of re-rotated keys and of devices, which MaxChunk() adds.
  [[nodiscard]] size_t ChunkOfRest(size_t num_tokens) const;
  // Returns ShareablePrefixLength() without regard to checkpoints: the first if old rows are
  // compressed, in whole chunks; the second for other tiers.
  [[nodiscard]] size_t NumFirstCompressedRows(std::span<const Token> prompt) const;
  [[nodiscard]] size_t NumFirstRowsWithoutState(std::span<const Token> prompt) const;
  // Returns whether the first tokens of a chunk that begins at `begin` get the same bits whether
  // the chunk has `a` tokens or `b`.
  [[nodiscard]] bool AreReadAlike(size_t begin, size_t a, size_t b) const;
  // Teaches the selector about the prefix that AdoptPrefix() took over: copies the other selector's
  // state of whole pages, and reads the keys of the remaining rows.
  Status TakeSelection(const Selector& from, Position end);
  // Keeps a checkpoint at the end of the sequence, and at planned positions within the last step,
  // which had `num_tokens` tokens. `lasts`: the next checkpoint does not replace it.
  void KeepCheckpoints(size_t num_tokens, bool lasts);

  Sequence& sequence_;
  FirstPrompt first_;
  bool first_is_over_ = false;
  size_t tokens_to_come_ = 0;
  std::vector<Position> planned_;  // checkpoints to come in the prompt that is read, ascending
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_PROMPT_CHUNKS_H_
