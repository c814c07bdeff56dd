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
#include "src/step/signal_buffers.h"

namespace ebb {

// Whether a sequence can go on:
//
// - kSound: everything is allowed.
// - kRefused: the moves decided after the last step failed. Logits and tokens can
//   be read and the sequence saved; a roll-back makes it sound. A step alone is taken once the caps
//   hold the decided rows (for a failed file, at once); in a batch it is taken in any case.
// - kBroken: rows were lost. Logits and tokens can be read, nothing else.
class SequenceHealth {
 public:
  enum class State { kSound, kRefused, kBroken };

  [[nodiscard]] State state() const {
    if (!broken_.ok()) return State::kBroken;
    return refused_.has_value() ? State::kRefused : State::kSound;
  }
  // Why the state is kBroken; OK in the other two.
  [[nodiscard]] const Status& CheckUnbroken() const { return broken_; }
  // The kind of the step whose tier moves failed.
  [[nodiscard]] std::optional<StepKind> refused() const { return refused_; }

  void Refuse(StepKind kind) { refused_ = kind; }
  void EndRefusal() { refused_.reset(); }
  // For good, unless `why` is OK, which changes nothing.
  void Break(Status why) {
    if (!why.ok()) broken_ = std::move(why);
  }

 private:
  Status broken_;
  std::optional<StepKind> refused_;
};

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
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_.all(); }
  // The position of the token to come.
  [[nodiscard]] Position next() const { return tokens_.next(); }
  [[nodiscard]] PromptChunks& prompt() { return prompt_; }
  [[nodiscard]] const PromptChunks& prompt() const { return prompt_; }
  [[nodiscard]] RollBack& roll_back() { return roll_back_; }
  [[nodiscard]] const RollBack& roll_back() const { return roll_back_; }
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
  // Forgets tokens from position `end` on, and their signals. A sequence that runs out of memory
  // meanwhile is broken. REQUIRES: 0 <= end <= next(), RollBack::Check().
  void TruncateTo(Position end);
  // Takes the first `end` tokens of a sequence whose rows this one has.
  void TakeTokensOf(const Sequence& other, Position end);

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

 private:
  friend class SequenceFile;

  Status CheckRoomAfterRotation(size_t num_tokens) const;
  // Rotates keys of old rows so that no places are free after them; of the longest group the
  // newest stay as they are.
  Status ClosePositionGaps();
  // Rotates all keys to consecutive RoPE positions that end before `end`, with `num_tokens` rows to
  // come counted in. The sequence is broken when it fails.
  Status RotateKeys(Position end, size_t num_tokens);
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

// Whether keys are ever re-rotated.
[[nodiscard]] bool RotatesKeys(PastContext past_context, const Policy& policy);
// Errors: kInvalidArgument when rows of such a sequence cannot lie below T0, since keys are rotated
// again or rows are chosen within a step.
[[nodiscard]] Status CheckBelowT0(PastContext past_context, const Policy& policy);

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_H_
