// Holds one sequence of tokens: its cache, its policy, and the RoPE positions of its keys. A step
// (step.h) calls the functions from CheckStep() to UndoStep() in the order of their declaration.
//
// Invariants between steps:
// - every token received a row in each group when it was read; the positions of the surviving rows
//   are below tokens().size().
// - scorer and selector have the same rows as the cache, group by group.
// - no row is hidden from any query.
#ifndef EBB_SEQUENCE_SEQUENCE_H_
#define EBB_SEQUENCE_SEQUENCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ebb/engine.h"
#include "ebb/policy.h"
#include "ebb/report.h"
#include "src/kv/sequence_cache.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/prompt_chunks.h"
#include "src/sequence/roll_back.h"
#include "src/sequence/step_settler.h"
#include "src/sequence/token_history.h"
#include "src/step/rotation/rope_positions.h"
#include "src/step/rotation/unrotated_key_cache.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {

// SequenceHealth records whether a sequence can continue:
//
// - kSound: everything is allowed.
// - kRefused: the tier moves that followed the last step failed. Logits and tokens can be read and
// the
//   sequence can be saved; a roll-back makes it sound. A step of this sequence alone runs once the
//   caps hold the decided rows (after a file's error, at once); a step in a batch runs in any case.
// - kBroken: rows were lost. Only logits and tokens can be read.
class SequenceHealth {
 public:
  enum class State { kSound, kRefused, kBroken };

  [[nodiscard]] State state() const {
    if (!broken_.ok()) return State::kBroken;
    return refused_.has_value() ? State::kRefused : State::kSound;
  }
  // Returns the error that made the state kBroken; OK in the other states.
  [[nodiscard]] const Status& CheckUnbroken() const { return broken_; }
  // Returns the kind of the step whose tier moves failed, if the state is kRefused or was before it
  // became kBroken.
  [[nodiscard]] std::optional<StepKind> refused() const { return refused_; }

  void Refuse(StepKind kind) { refused_ = kind; }
  void EndRefusal() { refused_.reset(); }
  // Makes the state kBroken for good, unless `why` is OK, which changes nothing.
  void Break(Status why) {
    if (!why.ok()) broken_ = std::move(why);
  }

 private:
  Status broken_;
  std::optional<StepKind> refused_;
};

class Sequence {
 public:
  // Makes an empty sequence. `options`: those of the session, with a context.
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
  // See Session::Explain().
  [[nodiscard]] std::vector<Explanation> Explain(Position position) const;
  [[nodiscard]] const StepReport& report() const { return report_; }
  [[nodiscard]] const SequenceHealth& health() const { return health_; }
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_.all(); }
  // Returns the position of the next token.
  [[nodiscard]] Position next() const { return tokens_.next(); }
  [[nodiscard]] PromptChunks& prompt() { return prompt_; }
  [[nodiscard]] const PromptChunks& prompt() const { return prompt_; }
  [[nodiscard]] RollBack& roll_back() { return roll_back_; }
  [[nodiscard]] const RollBack& roll_back() const { return roll_back_; }
  [[nodiscard]] CacheAccounting accounting() const;

  // Returns whether the context has RoPE positions for `num_tokens` more tokens.
  [[nodiscard]] bool HasRoom(size_t num_tokens) const;
  [[nodiscard]] Status CheckRoom(size_t num_tokens) const;
  // Returns the most tokens that the next step may have, so that it knows which rows it hides.
  [[nodiscard]] int LongestStep() const;
  // Returns whether keys may be re-rotated.
  [[nodiscard]] bool RotatesKeys() const;
  // Checks that rows of this sequence may lie below T0; see ebb::CheckBelowT0.
  [[nodiscard]] Status CheckBelowT0() const;
  [[nodiscard]] Status CheckTokens(std::span<const Token> tokens) const;
  // Checks that the policy and the caps of the tiers have room for a prompt of `num_tokens` tokens.
  [[nodiscard]] Status CheckPrompt(size_t num_tokens) const;
  // Demotes or evicts rows between steps as the policy decides, so that T0 has room for the next
  // step. `next`: its kind.
  Status MakeRoom(StepKind next);
  // SetT0Share(), SetT0Floor() and Park() implement the functions of Session with these names.
  Status SetT0Share(double share);
  Status SetT0Floor(uint64_t num_bytes);
  Status Park();
  // Copies the whole state of `other`, sharing pages of its cache. REQUIRES: both sequences have
  // the same core and options and a policy of the same kind; this sequence is empty.
  Status ForkFrom(Sequence* other);
  // Ends the state kRefused if the caps hold the rows that the policy decided to keep after the
  // last step. Errors: T0Full or T1Full if they still do not.
  Status EndRefusalIfCapsHold();
  // Tries the failed moves of the state kRefused again, and ends that state if they succeed.
  Status MoveRefused();
  // Rolls the sequence back to `end` tokens, and forgets signals. If memory runs out during this,
  // the sequence is broken. REQUIRES: 0 <= end <= next(), RollBack::Check().
  void TruncateTo(Position end);
  // Copies the first `end` tokens of a sequence whose rows this one has taken over.
  void TakeTokensOf(const Sequence& other, Position end);

  // Checks that the sequence can compute these tokens, before anything changes. This is the first
  // part of a step; the functions up to UndoStep() are the others, in order.
  [[nodiscard]] Status CheckStep(std::span<const Token> tokens) const;
  // Appends rows for the new tokens to the cache, and reserves memory in the lists of tokens.
  // frees_windows: evicts rows that are kept only for a roll-back if there is no room.
  Status AppendRows(size_t num_tokens, bool frees_windows);
  // Re-rotates keys to RoPE positions from 0 on if the context has no free positions left.
  Status MakePlaces(size_t num_tokens);
  // Prepares signals and policy for the step. `signals` receives those of the step. `num_taken`
  // tokens, the first ones, become part of the sequence; the policy learns of these alone.
  void BeginStep(StepKind kind, int num_tokens, int num_taken, SignalBuffers* signals);
  // Describes this sequence to the nodes of the graph, in `step`.
  void Describe(SequenceStep* step);
  // Ends a computed step: adds the tokens to the sequence and lets the policy decide, except after
  // a piece that does not end its chunk of a prompt, because the rows that a prompt leaves must not
  // depend on how it is cut. The error names the decision that could not be carried out.
  Status EndStep(StepKind kind, std::span<const Token> tokens, StepReport report, Decides decides);
  // Undoes AppendRows() and, if `has_begun`, BeginStep().
  void UndoStep(bool has_begun);
  // Removes the rows and signals of the step's tokens after the first, which the sequence does not
  // take. Follows the step, before EndStep(). If memory runs out, the sequence is broken.
  void KeepFirst(SignalBuffers* signals);
  // Returns after how many more decoded tokens, at most `most`, the placement decides next.
  [[nodiscard]] int TokensToDecision(int most) const;

 private:
  friend class SequenceFile;

  Status CheckRoomAfterRotation(size_t num_tokens) const;
  // Re-rotates the keys of old rows so that they and the newest rows have consecutive RoPE
  // positions. The newest keys of the longest group stay as they are.
  Status ClosePositionGaps();
  // Re-rotates all keys to consecutive RoPE positions that end before `end`; `num_tokens` counts
  // the step's new rows among them. If it fails, the sequence is broken.
  Status RotateKeys(Position end, size_t num_tokens);
  // Removes the rows from position `end` on, with everything that is kept about them.
  void DropRows(Position end);
  // Breaks the sequence because memory ran out in the middle of a change. May throw std::bad_alloc;
  // the sequence is broken then too.
  void BreakWithoutMemory(const char* purpose);
  // Returns the placement's input for the sequence; StepSettler::TurnTo() adds the facts of a
  // group.
  [[nodiscard]] PlacementInput MakePlacementInput(StepKind kind, int new_tokens = 1) const;
  // Runs a move of rows between steps. The sequence is broken if rows are lost.
  Status MoveRows(const std::function<Status()>& move);
  Result<int64_t> Decide(StepKind kind, int new_tokens, Decides decides);

  const std::shared_ptr<EngineCore> core_;
  SessionOptions options_;
  Policy policy_;
  SequenceCache cache_;
  SignalBuffers signals_;
  const std::unique_ptr<Ledger> ledger_;  // null: not asked for
  RollBack roll_back_;
  StepSettler settler_;
  PromptChunks prompt_;
  RopePositions rope_;
  UnrotatedKeyCache unrotated_keys_;
  TokenHistory tokens_;
  std::optional<double> t0_share_;  // since SetT0Share()
  SequenceHealth health_;
  StepReport report_;
  int64_t rows_unread_ = 0;                          // in the step under way; see StepReport
  bool selects_ = false;                             // the step that is under way
  int64_t all_rows_read_ = 0, all_rows_unread_ = 0;  // with a selector, so far
  MassAudit audit_;                                  // of what they would have received
  MoveAccounting moves_before_;                      // the step under way
};

// Returns whether keys may be re-rotated.
[[nodiscard]] bool RotatesKeys(PastContext past_context, const Policy& policy);
// Checks that rows of such a sequence may lie below T0. Errors: kInvalidArgument if keys are
// re-rotated, which works in T0 alone.
[[nodiscard]] Status CheckBelowT0(PastContext past_context, const Policy& policy);

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_H_
