// How a sequence reads its prompts: the chunks that a prompt is cut into, after each of which the
// policy decides, and the beginning of the first prompt that another sequence may take.
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
  // `sequence` has it as a member.
  explicit PromptChunks(Sequence* sequence) : sequence_(*sequence) {}
  PromptChunks(const PromptChunks&) = delete;
  PromptChunks& operator=(const PromptChunks&) = delete;

  // Returns how many tokens each chunk of a prompt has, except the last one, and except where rows
  // of T2 or keys that are rotated again allow fewer.
  [[nodiscard]] size_t WholeChunk() const;
  // Returns whether pieces of a chunk would change bits: keys turn when a step has no places, rows
  // of policies that delay are hidden within a step, and mass of prompts is summed step by step.
  [[nodiscard]] bool ReadsWholeChunks() const;
  // Returns whether a step has one token of the sequence at most: where a device attends beside
  // rows in T2.
  [[nodiscard]] bool ReadsTokenByToken() const;
  // Returns how many of so many tokens of a prompt one step may take, were T0 empty.
  [[nodiscard]] size_t MaxChunk(size_t num_tokens) const;
  // Returns how many tokens of a chunk a step takes now; rows leave T0 for them where it has too
  // little room.
  [[nodiscard]] Result<size_t> NextPiece(size_t chunk);
  // Tells how many tokens of the prompt come after the step's own; see PlacementInput.
  void SetTokensToCome(size_t num_tokens) { tokens_to_come_ = num_tokens; }
  [[nodiscard]] size_t tokens_to_come() const { return tokens_to_come_; }

  // Begins to read a prompt. Its first `num_read` tokens are there already, by AdoptPrefix(). May
  // throw std::bad_alloc.
  void Begin(std::span<const Token> prompt, size_t num_read);
  // Returns how many tokens the next step of the prompt takes at most, so that it ends where the
  // recurrent state is to be kept.
  [[nodiscard]] size_t TokensToCheckpoint() const;
  // Takes note of a step of a prompt that was computed: its tokens are part of the sequence.
  void EndStep(size_t num_tokens, bool ends_chunk);
  // Ends the prompt: it was read, or a token is generated. The first call ends the first prompt of
  // the sequence.
  void End();
  void TruncateTo(Position end);

  // Returns how many tokens at the beginning of `prompt` have rows here with the bits that reading
  // all of `prompt` in a sequence of the same options would give them; at least one token of the
  // prompt is left to be read. 0 if the policy takes more from a prompt than its rows.
  [[nodiscard]] size_t ShareablePrefixLength(std::span<const Token> prompt) const;
  // Takes over the rows of the first `end` tokens of the other sequence's prompt, and shares the
  // pages that they fill. On failure the sequence is unusable and must be destroyed. REQUIRES: the
  // same core and options, a policy of the same kind, and nothing in this sequence; end <=
  // ShareablePrefixLength() of the other one for the prompt that is read then.
  Status AdoptPrefix(Sequence* other, Position end);
  // Continues as the first prompt of `other` does, which the sequence was forked from.
  void TakeFrom(const PromptChunks& other) { first_ = other.first_; }

  void Save(StateWriter* to) const;
  void Load(StateReader* from);
  // Fails the reader unless these, which the sequence has, can begin with what was loaded.
  void CheckLoaded(const TokenHistory& tokens, StateReader* from);

 private:
  // The prompt that the sequence began with, which was cut into chunks from its first token on.
  struct FirstPrompt {
    size_t num_tokens = 0;
    Position end = 0;      // so many of them were read, and are still there
    bool is_read = false;  // more of them may come
  };

  // Returns the tokens of the next chunk of a prompt of which `num_tokens` are left, as far as
  // neither keys that are rotated nor a device allow fewer.
  [[nodiscard]] size_t ChunkOfRest(size_t num_tokens) const;
  // Return what ShareablePrefixLength() does: where all old rows are compressed, in whole chunks;
  // else of the rows alone, whatever the recurrent state is.
  [[nodiscard]] size_t NumFirstCompressedRows(std::span<const Token> prompt) const;
  [[nodiscard]] size_t NumFirstRowsWithoutState(std::span<const Token> prompt) const;
  // Returns whether a token of a chunk that begins at `begin` has the same bits where the chunk has
  // `a` tokens as where it has `b`.
  [[nodiscard]] bool AreReadAlike(size_t begin, size_t a, size_t b) const;
  // Teaches the selector the prefix that AdoptPrefix() took, from the other sequence's and from
  // keys.
  Status TakeSelection(const Selector& from, Position end);
  // Keeps a checkpoint at the end of the sequence, and where one is planned within the last step.
  void KeepCheckpoints(size_t num_tokens, bool lasts);

  Sequence& sequence_;
  FirstPrompt first_;
  bool first_is_over_ = false;
  size_t tokens_to_come_ = 0;
  std::vector<Position> planned_;  // checkpoints to come in the prompt that is read, ascending
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_PROMPT_CHUNKS_H_
