// One sequence of tokens: its rows, what its policy knows of them, and where its keys stand. It
// takes part in steps (step.h), which call the functions under "A step" in the order in which they
// stand there.
//
// Invariants between steps:
// - every token got a row in each group when it was read; the positions of the rows that are left
//   are below tokens().size().
// - the scorer's and selector's rows are those of the cache, group by group.
// - no row is hidden from any query.
#ifndef EBB_SEQUENCE_SEQUENCE_H_
#define EBB_SEQUENCE_SEQUENCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/policy.h"
#include "ebb/report.h"
#include "ebb/state.h"
#include "src/kv/sequence_cache.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/sequence_health.h"
#include "src/sequence/step_settler.h"
#include "src/step/recurrent_state.h"
#include "src/step/rotation/rope_positions.h"
#include "src/step/rotation/unrotated_key_cache.h"
#include "src/step/signal_buffers.h"

namespace ebb {

class Sequence {
 public:
  // `options`: of the session, with a context.
  Sequence(std::shared_ptr<EngineCore> core, SessionOptions options, Policy policy,
           const CacheStores& stores);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  [[nodiscard]] const std::shared_ptr<EngineCore>& core() const { return core_; }
  [[nodiscard]] const SessionOptions& options() const { return options_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }
  [[nodiscard]] SequenceCache& cache() { return cache_; }
  [[nodiscard]] const SequenceCache& cache() const { return cache_; }
  [[nodiscard]] SignalBuffers& signals() { return signals_; }
  [[nodiscard]] const SignalBuffers& signals() const { return signals_; }
  [[nodiscard]] StepSettler& settler() { return settler_; }
  [[nodiscard]] const StepSettler& settler() const { return settler_; }
  [[nodiscard]] RopePositions& rope() { return rope_; }
  [[nodiscard]] const Ledger* ledger() const { return ledger_.get(); }
  [[nodiscard]] std::span<const Explanation> explanations() const {
    return settler_.explanations();
  }
  [[nodiscard]] const StepReport& report() const { return report_; }
  [[nodiscard]] const SequenceHealth& health() const { return health_; }
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  // The position of the token to come.
  [[nodiscard]] Position next() const { return static_cast<Position>(tokens_.size()); }
  [[nodiscard]] CacheAccounting accounting() const;

  // Whether the context has places for so many tokens more.
  [[nodiscard]] bool HasRoom(size_t num_tokens) const;
  [[nodiscard]] Status CheckRoom(size_t num_tokens) const;
  // Whether keys are ever re-rotated.
  [[nodiscard]] bool RotatesKeys() const;
  // See ebb::CheckBelowT0.
  [[nodiscard]] Status CheckBelowT0() const;
  [[nodiscard]] Status CheckTokens(std::span<const Token> tokens) const;
  // Whether the policy and the tiers have room for a prompt of so many tokens.
  [[nodiscard]] Status CheckPrompt(size_t num_tokens) const;
  // How many tokens each chunk of a prompt has, except the last one, and except where rows of T2 or
  // keys that are rotated again allow fewer.
  [[nodiscard]] size_t WholeChunk() const;
  // Whether pieces of a chunk would change bits: keys turn when a step has no places, rows of
  // policies that delay are hidden within a step, and mass of prompts is summed step by step.
  [[nodiscard]] bool ReadsWholeChunks() const;
  // How many of so many tokens of a prompt one step may take, were T0 empty.
  [[nodiscard]] size_t MaxPrefillChunk(size_t num_tokens) const;
  // Whether a step has one token of it at most: where a device attends beside rows in T2.
  [[nodiscard]] bool ReadsTokenByToken() const;
  // How many of them a step takes now; rows leave T0 for them where it has too little room.
  [[nodiscard]] Result<size_t> NextPrefillPiece(size_t chunk);
  // Tokens of a prompt that come after the step's own; see PlacementInput.
  void SetTokensToCome(size_t num_tokens) { tokens_to_come_ = num_tokens; }
  // Begins to read a prompt. Its first `num_read` tokens are there already, by AdoptPrefix().
  void BeginPrompt(std::span<const Token> prompt, size_t num_read);
  // Returns how many tokens the next step of the prompt takes at most, so that it ends where the
  // recurrent state is to be kept.
  [[nodiscard]] size_t TokensToCheckpoint() const;
  // Ends the prompt: it was read, or a token is generated. The first call ends the first prompt of
  // the sequence.
  void EndPrompt();
  // Returns how many tokens at the beginning of `prompt` have rows here with the bits that reading
  // all of `prompt` in a sequence of the same options would give them; at least one token of the
  // prompt is left to be read. 0 if the policy takes more from a prompt than its rows.
  [[nodiscard]] size_t ShareablePrefixLength(std::span<const Token> prompt) const;
  // Takes over the rows of the first `end` tokens of the other sequence's prompt, and shares the
  // pages that they fill. On failure the sequence is unusable and must be destroyed. REQUIRES:
  // the same core and options, a policy of the same kind, and nothing in this sequence; end <=
  // other->ShareablePrefixLength(the prompt that is read then).
  Status AdoptPrefix(Sequence* other, Position end);

  // Between steps: rows leave T0 for the tokens of the next one.
  Status MakeRoom(StepKind next);
  // See Session.
  Status SetT0Share(double share);
  Status SetT0Floor(uint64_t num_bytes);
  Status Park();
  // Becomes a sequence that stands where `other` does, with the pages of its cache.
  // REQUIRES: the same core and options, a policy of the same kind, and nothing in this sequence.
  Status ForkFrom(Sequence* other);
  // Ends the state kRefused once the caps hold what was decided after the last step;
  // T0Full or T1Full while they do not.
  Status EndRefusalIfCapsHold();
  // Tries the refused moves again.
  Status MoveRefused();
  // Unsupported where rows that are seen from position `end` on have left the window of a layer, or
  // the recurrent state was not kept there.
  [[nodiscard]] Status CheckTruncateTo(Position end) const;
  // The largest position up to `end` that TruncateTo() can go back to.
  [[nodiscard]] Position NearestTruncation(Position end) const;
  // Forgets tokens from position `end` on, and their signals. A sequence that runs out of memory
  // meanwhile is broken. REQUIRES: 0 <= end <= next(), CheckTruncateTo().
  void TruncateTo(Position end);
  // The tokens of a sequence whose rows this one has.
  void TakeTokensOf(const Sequence& other);

  // A step.
  // Whether it can take these tokens; nothing has changed.
  [[nodiscard]] Status CheckStep(std::span<const Token> tokens) const;
  // Gives the new tokens rows in the cache and makes room in the lists of tokens.
  Status AppendRows(size_t num_tokens);
  // If the context has no places left, rotates keys again, to places from 0 on.
  Status MakePlaces(size_t num_tokens);
  // Signals and policy take notice. `signals`: where those of the step go.
  void BeginStep(StepKind kind, int num_tokens, SignalBuffers* signals);
  // Sets the parts of `step` that describe this sequence to the nodes of the graph.
  void Describe(SequenceStep* step);
  // The rows are computed: the tokens become part of the sequence, and the policy decides, unless
  // the step is a piece that does not end its chunk of a prompt: what a prompt leaves must not
  // depend on how it is cut. The error says which decision was not carried out.
  Status EndStep(StepKind kind, std::span<const Token> tokens, StepReport report, Decides decides);
  // Takes back AppendRows(), and BeginStep() where it has begun.
  void UndoStep(bool has_begun);

  // Into a file and from it: a session puts its logits between the two parts. Errors: Corrupt.
  void SaveTokens(StateWriter* to) const;
  void SavePlaces(StateWriter* to) const;
  [[nodiscard]] Status SavePolicy(StateWriter* to) const;
  [[nodiscard]] Status LoadTokens(StateReader* from);
  [[nodiscard]] Status LoadPlaces(StateReader* from);
  [[nodiscard]] Status LoadPolicy(StateReader* from);
  // Once the rows are known: whether they have places. InvalidArgument: the context is too short.
  [[nodiscard]] Status CheckPlaces() const;

 private:
  // The part of SavePlaces() that a fork does not share.
  void SaveKeyPlaces(StateWriter* to) const;
  [[nodiscard]] Status LoadKeyPlaces(StateReader* from);
  // The tokens of the next chunk of a prompt of which `num_tokens` are left, as far as neither keys
  // that are rotated nor a device allow fewer.
  [[nodiscard]] size_t ChunkOfRest(size_t num_tokens) const;
  // As ShareablePrefixLength(), where all old rows are compressed: whole chunks.
  [[nodiscard]] size_t NumFirstCompressedRows(std::span<const Token> prompt) const;
  // As ShareablePrefixLength(), of the rows alone.
  [[nodiscard]] size_t NumFirstRowsWithoutState(std::span<const Token> prompt) const;
  // The selector learns the prefix that AdoptPrefix() took, from the other sequence's and from
  // keys.
  Status TakeSelection(const Selector& from, Position end);
  Status CheckRoomAfterRotation(size_t num_tokens) const;
  // Rotates keys of old rows so that no places are free after them; of the longest group the
  // newest stay as they are.
  Status ClosePositionGaps();
  // Rotates all keys to consecutive RoPE positions that end before `end`, with `num_tokens` rows to
  // come counted in. The sequence is broken when it fails.
  Status RotateKeys(Position end, size_t num_tokens);
  // Whether a token of a prompt's chunk that begins at `begin` has the same bits where the chunk
  // has `a` tokens as where it has `b`.
  [[nodiscard]] bool AreReadAlike(size_t begin, size_t a, size_t b) const;
  // The largest position up to `end` that the recurrent state and all windows can go back to.
  [[nodiscard]] Position NearestCheckpoint(Position end) const;
  // Keeps the state and the rows of windows that going back to next() needs, and, after a step of
  // `num_tokens` tokens of a prompt, to positions within it. `lasts`: the next checkpoint does not
  // replace this one.
  void KeepCheckpoints(size_t num_tokens, bool lasts);
  // Drops rows from position `end` on, and all that is kept about them.
  void DropRows(Position end);
  // Memory ran out half-way. May throw std::bad_alloc, and has broken the sequence then too.
  void BreakWithoutMemory(const char* purpose);
  // Returns the placement's input for the sequence; StepSettler::TurnTo() adds the group.
  [[nodiscard]] PlacementInput MakePlacementInput(StepKind kind, int new_tokens = 1) const;
  // Runs a move of rows between steps, which breaks the sequence if rows are lost.
  Status MoveRows(const std::function<Status()>& move);
  Result<int64_t> Decide(StepKind kind, int new_tokens, Decides decides);

  const std::shared_ptr<EngineCore> core_;
  SessionOptions options_;
  Policy policy_;
  SequenceCache cache_;
  SignalBuffers signals_;
  const std::unique_ptr<Ledger> ledger_;  // null: not asked for
  WindowCheckpoints window_checkpoints_;
  StepSettler settler_;
  RopePositions rope_;
  UnrotatedKeyCache unrotated_keys_;
  RecurrentState state_;
  bool checkpoint_lasts_ = true;   // the newest one; else it is that of a piece of a prompt
  std::vector<Position> planned_;  // of the prompt that is read: checkpoints to come

  std::vector<Token> tokens_;
  std::vector<TokenKind> kinds_;  // [tokens]
  // The prompt that the sequence began with, which was cut into chunks from its first token on.
  struct FirstPrompt {
    size_t num_tokens = 0;
    Position end = 0;      // so many of them were read, and are still there
    bool is_read = false;  // more of them may come
  };
  FirstPrompt first_prompt_;
  Position first_generated_ = -1;  // -1: none yet
  int64_t generated_tokens_ = 0;   // generated tokens that are still there
  bool first_prompt_over_ = false;
  size_t tokens_to_come_ = 0;
  std::optional<double> t0_share_;  // since SetT0Share()
  SequenceHealth health_;
  StepReport report_;
  int64_t rows_unread_ = 0;                          // in the step under way; see StepReport
  bool selects_ = false;                             // the step that is under way
  int64_t all_rows_read_ = 0, all_rows_unread_ = 0;  // with a selector, so far
  MassAudit audit_;                                  // of what they would have received
  MoveAccounting moves_before_;                      // the step under way
};

// Whether keys are ever re-rotated.
[[nodiscard]] bool RotatesKeys(PastContext past_context, const Policy& policy);
// Errors: kInvalidArgument when rows of such a sequence cannot lie below T0, since keys are rotated
// again or rows are chosen within a step.
[[nodiscard]] Status CheckBelowT0(PastContext past_context, const Policy& policy);

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_H_
