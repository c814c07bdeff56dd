// The insides of Engine and Session, shared by their source files.
#ifndef EBB_ENGINE_ENGINE_IMPL_H_
#define EBB_ENGINE_ENGINE_IMPL_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/state.h"
#include "src/attention/attention.h"
#include "src/engine/first_keys.h"
#include "src/engine/graph_runner.h"
#include "src/engine/lossless.h"
#include "src/engine/policy_driver.h"
#include "src/engine/rope_positions.h"
#include "src/engine/signal_buffers.h"
#include "src/engine/tier_stores.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

struct Engine::Impl {
  std::shared_ptr<const Model> model;
  EngineOptions options;
  const AttentionKernel* kernel = nullptr;
  PageFormat format;
  TierStores stores;
  std::unique_ptr<GraphRunner> runner;
  DeviceReport device_report;

  // One step of one or several sequences, each with new tokens of its own.
  struct Part {
    Session::Impl* session = nullptr;
    std::span<const Token> tokens;
    // Where `session` is the store of a lossless one: its drafting sequence, which takes the same
    // tokens, with the rows and signals that this step computes.
    Session::Impl* draft = nullptr;
    // The same, which has the tokens: their rows are written anew.
    Session::Impl* rewritten = nullptr;
    bool tokens_apart = false;  // see StepWork
    // Of a prompt: see SequenceStep; 0: the tokens are the chunk.
    Position chunk_first = 0;
    size_t chunk_tokens = 0;
  };
  // Logits of the last tokens or of all, or what logits of all are computed from later.
  enum class Outputs { kLast, kAll, kLater };
  // They are the runner's. On error see the top of engine.h.
  Status Step(StepKind kind, std::span<const Part> parts, Outputs outputs);
  static Status CheckParts(std::span<const Part> parts);
  // A step whose sessions show the logits of their last tokens.
  Status StepAndShow(StepKind kind, std::span<const Part> parts);
  Status Append(StepKind kind, std::span<const Part> parts, Outputs outputs, StepWork* work);
  // A step of the device began then; nothing has moved since it ended.
  void ReportDevice(StepKind kind, const StepWork& work, double begin);
  // What its policy decides about a step that was computed: the rows evicted.
  static Result<int64_t> Decide(Session::Impl* session, StepKind kind, int new_tokens);
  // Between steps: rows leave T0 for the tokens of the next one.
  static Status MakeRoom(Session::Impl* session, StepKind next);
  // What the caps refused behind the last step, if they still do.
  static Status CheckRefused(Session::Impl* session);
  // The same of a lossless session's store, whose rows are moved, or refused again.
  static Status MoveRefused(Session::Impl* store);
  // A sequence's part in a step that was computed: its policy decides. The first error stays in
  // `status`.
  static void EndStep(StepKind kind, const Part& part, StepReport report, Status* status);
  void Undo(std::span<const Part> parts, const StepWork& work);

 private:
  Status AppendRows(Session::Impl* session, size_t num_tokens);
  static void BeginPart(StepKind kind, const Part& part, SequenceStep* step);
};

// Whether keys are ever rotated anew.
[[nodiscard]] inline bool TurnsKeys(const SessionOptions& options, const Policy& policy) {
  return options.past_context == PastContext::kReRotate ||
         policy.key_turns == KeyTurns::kAfterEviction;
}

struct Session::Impl {
  Impl(Engine::Impl* engine_in, const SessionOptions& options_in, Policy policy_in, int context_in,
       const CacheStores& stores);

  Engine::Impl* const engine;
  const SessionOptions options;
  const int context;
  Policy policy;
  SequenceCache cache;
  SignalBuffers signals;
  std::unique_ptr<Ledger> ledger;  // null: not asked for
  PolicyDriver driver;
  RopePositions rope;
  FirstKeys first_keys;

  std::vector<Token> tokens;
  std::vector<TokenKind> kinds;   // [tokens]
  Position first_generated = -1;  // -1: none yet
  int64_t decode_steps = 0;       // generated tokens that are still there
  bool first_prefill_over = false;
  size_t tokens_to_come = 0;  // see PlacementInput
  Status broken;              // why the sequence cannot go on
  // What was decided behind the last step, of this kind, could not be done: where that is for the
  // caps, the next step is refused too.
  std::optional<StepKind> refused;
  StepReport report;
  int64_t rows_unread = 0;    // in the step under way; see StepReport
  std::vector<float> logits;  // [vocab_size], empty before the first step and after a roll-back
  uint64_t logits_hash = 0;   // of all that were shown so far
  // Null unless the session is lossless. Then this sequence, which drafts, may be ahead of what the
  // caller has asked for.
  std::unique_ptr<Lossless> lossless;

  // To and from a file.
  void SaveSequence(StateWriter* to) const;
  [[nodiscard]] Status LoadSequence(StateReader* from);
  [[nodiscard]] Status CheckPlaces() const;

  // Rows from position `end` on, and what is known of them.
  void DropRows(Position end);
  // Why it cannot go on, or the sequence that verifies it.
  [[nodiscard]] Status CheckUnbroken() const;
  // Memory ran out half-way. May throw std::bad_alloc, and has broken the sequence then too.
  void EndWithoutMemory(const char* purpose);
  // As Session's; the logits stay.
  void TruncateTo(Position end);
  // As many as the caller knows of.
  [[nodiscard]] size_t num_asked_for() const {
    return tokens.size() - (lossless == nullptr ? 0 : lossless->num_ahead());
  }
  // Of the sequence itself.
  [[nodiscard]] Position next() const { return static_cast<Position>(tokens.size()); }
  // Whether the context has places for so many tokens more.
  [[nodiscard]] bool HasRoom(size_t num_tokens) const;
  // ResourceExhausted where it has not.
  Status CheckRoom(size_t num_tokens) const;
  // The same where keys may be rotated anew.
  Status CheckRoomAfterTurning(size_t num_tokens) const;
  // Whether keys are ever rotated anew.
  [[nodiscard]] bool TurnsKeys() const;
  // Rotates keys anew, to places from 0 on, when the context is full. The rows of the new tokens
  // are in the cache already.
  Status TurnKeysIfFull(size_t num_tokens);
  // Rotates keys of old rows so that no places are free behind them; of the longest group the
  // newest stay as they are.
  Status CloseGaps();
  // So that they end before place `end`, the rows of so many new tokens too. The sequence is broken
  // when it fails.
  Status TurnKeys(Position end, size_t num_tokens);
  // Whether the policy has room for what it must keep of so many tokens more.
  [[nodiscard]] Status CheckPrompt(size_t num_tokens) const;
  // How many of so many tokens one prefill step may take, were T0 empty.
  [[nodiscard]] size_t LargestChunk(size_t num_tokens) const;
  // How many it takes; rows leave T0 for them where it has too little room.
  [[nodiscard]] Result<size_t> PieceOf(size_t chunk);
  Status CheckTokens(std::span<const Token> new_tokens) const;
  void ShowLogits(std::span<const float> of_last_token);
  void HashLogits();
  // Behind a step of so many tokens.
  [[nodiscard]] PlacementInput Facts(StepKind kind, int new_tokens = 1) const;
};

}  // namespace ebb

#endif  // EBB_ENGINE_ENGINE_IMPL_H_
