// The engine steps sequences through a model. A Session is one sequence: its cache, its policy, its
// logits. Sessions of one engine share its threads, its compute buffers and its arenas with their
// hard byte caps.
//
// A request that cannot proceed returns an error and changes nothing: the session can still be
// read, rolled back or stepped once there is room. If a step was computed and only the moves that
// its policy decided afterwards failed (a full tier, a failing file, no memory), the error comes
// with StepOutcome::taken. If the caps of the tiers refused those moves, they refuse the next step
// that the session takes alone.
//
// Thread safety: an engine and its sessions belong to one thread at a time. A session keeps what it
// needs of its engine, which may go before it.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_ENGINE_H_
#define EBB_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/device.h"
#include "ebb/lossless.h"
#include "ebb/model.h"
#include "ebb/policy.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

class Session;
struct EngineCore;
struct Internals;

struct EngineOptions {
  int threads = 0;  // 0: AvailableProcessors().threads, see ebb/device.h
  RowType kv_type = RowType::kF16;
  // Hard cap on memory for rows, of all sessions: of T0 and T2 together where all old rows lie in
  // T2 and there is no T1. Refused with other tiers, which have caps of their own. 0: none.
  uint64_t kv_cap_bytes = 0;
  // The tiers besides T0 that sessions may use: where T1 lies, the caps, T2's format. Their caps
  // are of all sessions together. None: T0 alone.
  std::optional<TierSpec> tiers;
  // Device that holds T0; a T1 in the host's memory is then read as t1_mode says. kAuto: streamed,
  // or with allow_inexact the faster way by measured bandwidths.
  DeviceSpec device;
  T1Mode t1_mode = T1Mode::kAuto;
  bool allow_inexact = false;
  // File that keeps measured bandwidths of a backend's device, so that the next engine chooses
  // alike; empty: each engine measures. A file that cannot be written is left out.
  std::string rates_file;
  int prefill_chunk = 512;  // tokens per prefill step
  // How long a step that reads pieces of prompts keeps other sessions waiting, as far as the steps
  // before it tell. Sessions whose policy sums the mass of prompts (h2o, vatp), delays (dms) or
  // turns keys read whole chunks of prefill_chunk tokens, so that no bit depends on others, and may
  // keep them waiting for longer.
  double max_stall_seconds = 0.2;
  // Registry for policy names; null: the built-in ones.
  std::shared_ptr<const PolicyRegistry> policies;
  enum class Attention { kCpu, kReference };
  Attention attention = Attention::kCpu;
};

// The action when a sequence reaches the context of its session.
enum class PastContext {
  kRefuse,    // ContextFull; generation ends with finish reason "context"
  kReRotate,  // keys are rotated to their rank among the surviving rows; needs a policy that
              // keeps fewer rows than the context
};

struct SessionOptions {
  PolicySpec policy;
  // Makes a policy of the caller's own, instead of a built-in by name. Such a session shares no
  // rows with others by BeginPromptFrom().
  std::function<Result<Policy>(const PolicyContext&)> make_policy;
  // For policies that look ahead; outlives the session. Null: such a policy is refused.
  const Foresight* foresight = nullptr;
  int context = 0;  // tokens; 0: the trained context (times the rope factor)
  PastContext past_context = PastContext::kRefuse;
  // Signals beyond those that the policy needs, for observers; see on_signals and last_signals().
  SignalNeeds extra_signals;
  // Called after every step for each group, before any row goes, with the positions of its rows.
  // Must not throw: the step would stay half settled.
  std::function<void(int group, std::span<const Position> positions, const GroupSignals& signals,
                     const StepSignals& step)>
      on_signals;
  // The policy, with its tiers or its budget, only drafts; T1, or memory where there is none, keeps
  // every row. See lossless.h. In a batch nothing is drafted. Refused: keys that are re-rotated.
  std::optional<LosslessOptions> lossless;
  // T0 that is kept for this session, as Session::SetT0Floor() keeps it; 0: none.
  uint64_t t0_floor_bytes = 0;
  // The token whose way through the tiers Session::explanations() tells.
  std::optional<Position> explained;
  enum class Record { kNo, kYes };
  Record ledger = Record::kNo;      // see Session::ledger()
  Record step_costs = Record::kNo;  // see StepReport::costs
};

// Bytes and work of a device.
struct DeviceReport {
  std::string_view name;  // "cpu", "cuda0"
  // Its memory that rows take, together with what carries them between steps. On the cpu this is
  // 0, and so is what follows.
  uint64_t row_bytes = 0;
  uint64_t weight_bytes = 0;         // and weights
  T1Mode t1_mode = T1Mode::kStream;  // of the last step: kStream or kCompute
  int64_t decode_steps = 0;
  double decode_seconds = 0;  // of them, without moves
};

// The outcome of a step.
struct [[nodiscard]] StepOutcome {
  // Whether the session has taken its tokens, and logits() are those after them. If so, `status` is
  // an error only where moves of rows failed that the policy decided after the step.
  bool taken = false;
  Status status;

  [[nodiscard]] bool ok() const { return status.ok(); }
};

// A session's part in a step of several; see Engine::Step().
struct SessionStep {
  Session* session = nullptr;
  // A generated token; nothing: the session reads on in the prompt of Session::BeginPrompt().
  std::optional<Token> token;
  // How many tokens of its prompt; at least 2 are read, where there are so many. 0: as many as keep
  // the step within EngineOptions::max_stall_seconds, together with those of other prompts.
  size_t most_prompt_tokens = 0;
  // Set by the step:
  Status status;         // the error of this part, if it has one
  size_t num_taken = 0;  // tokens that the session has taken
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Result<std::unique_ptr<Session>> OpenSession(const SessionOptions& options);
  // Predicts the bytes that a session of these options takes of each tier while it reads
  // `prompt_tokens` and has at most `most_tokens` in all: the arithmetic of `ebb fit` (fit.h), so
  // that it can be known before the session is opened. Policies of the caller's own, and those
  // whose budget is no number of rows, are counted as if they kept every row. Errors: those of
  // OpenSession() that the options alone cause; T0Full or T1Full when the caps of its tiers do not
  // hold it; InvalidArgument (numbers of tokens that no session of this context has).
  [[nodiscard]] Result<TierNeeds> CountNeeds(const SessionOptions& options, int prompt_tokens,
                                             int most_tokens) const;
  // One step of distinct sessions of this engine in one batch, generated tokens and pieces of
  // prompts in any mix. Each session gets the bits of stepping alone where matrix products give a
  // token the same bits in every batch: with quantized weights and F32 on x86-64 with
  // AVX2 (docs/user/serve.md); with others up to rounding. Either every session has taken its part
  // or none; an error of one part is in its SessionStep::status too.
  StepOutcome Step(std::span<SessionStep> parts);
  // Step() with generated tokens alone: tokens[i] is appended to sessions[i].
  StepOutcome DecodeBatch(std::span<Session* const> sessions, std::span<const Token> tokens);

  [[nodiscard]] const Model& model() const;
  [[nodiscard]] const EngineOptions& options() const;  // threads resolved
  // Bytes of T0, T1 or T2; a T1 in a file counts the file's bytes.
  [[nodiscard]] ArenaAccounting arena_accounting(Tier tier = Tier::kT0) const;
  // Bytes of the newest verified rows of lossless sessions with a T1
  // (CacheAccounting::newest).
  [[nodiscard]] ArenaAccounting newest_accounting() const;
  [[nodiscard]] DeviceReport device_report() const;
  // Which attention kernel runs: "reference", "cpu:AVX3_ZEN4", ...
  [[nodiscard]] std::string attention_name() const;

 private:
  friend struct Internals;
  Engine();
  std::shared_ptr<EngineCore> core_;
};

struct PrefillOptions {
  // Stops between chunks when it becomes true: kCancelled; tokens read so far stay.
  const std::atomic<bool>* cancel = nullptr;
  // Called after each chunk with the tokens read so far.
  std::function<void(size_t)> progress;
  // Called for every token with its logits [vocab_size]; costs the output matrix for each of them.
  // When null, only the last token's logits are computed.
  std::function<void(Position, std::span<const float>)> on_logits;
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Reads given tokens (a prompt, a user turn). On error the tokens of finished chunks stay; the
  // outcome is `taken` if all tokens were read.
  StepOutcome Prefill(std::span<const Token> tokens, const PrefillOptions& options = {});
  // A prompt that Engine::Step() reads piece by piece, between other sessions' steps, with the bits
  // of Prefill(). Until prompt_left() is 0 the session takes no other tokens, and logits() are
  // those after the last piece; a roll-back gives the rest up, and a file does not hold it.
  // Errors, after which nothing has changed, are those of Prefill().
  Status BeginPrompt(std::vector<Token> tokens);
  [[nodiscard]] size_t prompt_left() const;  // tokens that are still to be read
  // Appends one generated token and computes the logits after it. A lossless session also decodes
  // and verifies up to `most_guesses` tokens beyond it, those that `guess` says and those that it
  // finds in its own text; without `guess` there are none, and each step reads all rows.
  StepOutcome Decode(Token token, const Guess& guess = nullptr, int most_guesses = kMostDrafted);
  // A copy of this session that goes on independently: tokens, rows in all tiers, the policy's
  // state, logits and their hash. Both then give the bits that this one would have
  // given. Pages that are nearly full are held by both until one of them lets their rows go, so
  // that a fork takes little memory and time; unconsumed draft tokens of
  // a lossless session are discarded. Last_step(), last_signals() and lossless_report() start
  // empty, and the ledger as for a session that a file resumed. SessionOptions are those of this
  // session, its callbacks among them. Errors, after which this session goes on: InvalidArgument (a
  // prompt is being read), Unsupported (a policy without SaveState()), T0Full, OutOfMemory.
  [[nodiscard]] Result<std::unique_ptr<Session>> Fork();
  // Between steps, the share of rows in full precision, of those that may leave T0, that stay in
  // it; TierSpec::t0_share until then. Rows move at once and at each decision. Changes no bit.
  // Errors: InvalidArgument (not from 0 to 1; a session without T1, with a cap on T0, or lossless);
  // T0Full, T1Full, OutOfMemory and IoError where rows could not move.
  Status SetT0Share(double share);
  // Keeps so many bytes of T0's pages for this session, those that it has among them: other
  // sessions are refused what would leave it less. Needs and uses nothing without a cap on T0.
  // Pages still shared with a fork are charged to neither session once this one releases them. A
  // fork keeps as many for itself. Of a lossless session, whose draft alone has a floor. Errors,
  // after which the floor is as it was: T0Full (the floors of other sessions leave less of T0).
  Status SetT0Floor(uint64_t num_bytes);
  // Moves all rows of T0 to T1 and gives their memory back. The session goes on at any time, bit
  // for bit: rows come back with the policy's decisions, or at once with SetT0Share(). Errors:
  // InvalidArgument (a session without T1, or lossless), T1Full, StorageFull, OutOfMemory, IoError.
  Status Park();
  // Forgets every token at `end` and later. Removed rows are not revived. logits() is empty until
  // the next step. Unsupported, and nothing forgotten, where NearestTruncation(end) is not `end`;
  // all tokens can always be forgotten.
  Status TruncateTo(Position end);
  [[nodiscard]] bool CanTruncateTo(Position end) const;
  // The largest position up to `end` that TruncateTo() can go back to. Models with recurrent state
  // can go back to the ends of the last two prompts; so can models with sliding windows, without a
  // policy, tiers or a device, and else to 0 once a row has left its window. Others: to any.
  [[nodiscard]] Position NearestTruncation(Position end) const;

  // After the last token: [vocab_size]. Valid until the next step or roll-back of this session;
  // empty before the first.
  [[nodiscard]] std::span<const float> logits() const;
  // A hash over all bits of the logits after each prompt and each decode step, in order; of a
  // prompt that was read with on_logits, after each of its tokens.
  [[nodiscard]] uint64_t logits_hash() const;

  [[nodiscard]] Position next_position() const;
  [[nodiscard]] std::span<const Token> tokens() const;  // all so far
  [[nodiscard]] int context() const;
  [[nodiscard]] const Policy& policy() const;
  [[nodiscard]] CacheAccounting accounting() const;
  // accounting().tiers[tier].page_bytes alone, without a pass over the pages.
  [[nodiscard]] size_t page_bytes(Tier tier) const;
  // Bytes of the policy's state about the rows: as many as it would put into a file, which it
  // is asked for, so that this takes a pass over them. Unsupported when it cannot be saved.
  [[nodiscard]] Result<size_t> CountPolicyBytes() const;
  [[nodiscard]] const StepReport& last_step() const;
  // Null unless the session is lossless. Then accounting() counts the draft's rows and, in T1,
  // those of every token; the newest of these are in memory until they make whole pages: staging.
  // visible_positions() and the ledger are those of the draft, drafted tokens included.
  [[nodiscard]] const LosslessReport* lossless_report() const;
  // The guesses that the tokens to come will be compared with; mostly none.
  [[nodiscard]] std::span<const Token> drafted() const;
  // The history of each token; null when SessionOptions asked for none.
  [[nodiscard]] const Ledger* ledger() const;
  // Returns why rows of SessionOptions::explained lie where they do, in the order of decisions: for
  // each group the first decision about the token, and each that changed its tier. Empty where the
  // policy decides nothing. Valid until the session's next step.
  [[nodiscard]] std::span<const Explanation> explanations() const;
  // The signals of the last step (extra_signals and the policy's).
  [[nodiscard]] const StepSignals& last_signals() const;
  // Visible positions of a group at the policy's granularity, ascending.
  [[nodiscard]] std::span<const Position> visible_positions(int group) const;

  struct Impl;

 private:
  friend class Engine;
  friend struct Internals;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Defaults for options that a user did not set, the same in every front end. A front end fills in
// the options that its user set, and says which these are:
//
//   EngineOptions engine;
//   SessionOptions session = {.policy = {.tiers = tiers}, .lossless = LosslessOptions()};
//   ApplyDefaults({.t1 = true}, &engine, &session);

// Returns the default location of T1: a file; on a device, the host's memory.
[[nodiscard]] T1Place DefaultT1(const DeviceSpec& device);

// Returns the default policy of drafts: the first 20 tokens and the last 512, unless `spec` has
// sinks and a window of its own. A `spec` with tiers, a budget or another policy than the full
// cache is returned as it is.
[[nodiscard]] PolicySpec DefaultDraft(PolicySpec spec);

// Says which options the user set; the others may be chosen.
struct ExplicitOptions {
  bool policy = false;  // the policy, or what drafts
  bool t1 = false;      // where T1 lies
  bool tiers = false;   // another part of a TierSpec: a share, a cap on T0, T2
};

// Fills in the options that the user did not set: an engine without tiers takes the session's; the
// location of T1; for a lossless session a T1 that keeps every row, and the policy that drafts.
// Tiers that only say where T1 lies place no rows of a draft, so a lossless session's policy loses
// them. REQUIRES: if the engine and the session's policy both have tiers, they are equal.
void ApplyDefaults(const ExplicitOptions& given, EngineOptions* engine, SessionOptions* session);

}  // namespace ebb

#endif  // EBB_ENGINE_H_
