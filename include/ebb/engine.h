// Engine steps sequences through a model. Session is one sequence with its cache, its policy and
// its logits. Sessions of one engine share its threads, its compute buffers and its arenas, which
// have hard caps in bytes.
//
// A call that cannot proceed returns an error and changes nothing: the session can still be read,
// rolled back, or stepped once there is room. One case differs: if a step was computed and only the
// moves that its policy decided afterwards failed (a full tier, a failing file, no memory), the
// error comes with StepOutcome::taken. If the caps of the tiers refused those moves, they also
// refuse the next step that the session takes alone.
//
// Thread safety: an engine and its sessions belong to one thread at a time. A session keeps the
// parts of its engine that it needs; the engine may be destroyed first.
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

// EngineOptions configure an engine: its threads, memory caps, tiers and device.
struct EngineOptions {
  int threads = 0;  // 0: AvailableProcessors().threads, see ebb/device.h
  RowType kv_type = RowType::kF16;
  // Caps the memory for rows of all sessions together, in bytes; 0: no cap. If old rows lie in T2
  // and there is no T1, the cap is on T0 and T2 together. Refused with other tiers, which have caps
  // of their own.
  uint64_t kv_cap_bytes = 0;
  std::optional<EngineTiers> tiers;  // nothing: T0 alone, without a cap
  // Chooses the device that holds T0. t1_mode then says how a T1 in the host's memory is read.
  // kAuto streams; with allow_inexact it uses the faster way by measured bandwidths.
  DeviceSpec device;
  T1Mode t1_mode = T1Mode::kAuto;
  bool allow_inexact = false;
  // Names a file that keeps the measured bandwidths of an accelerator, so that the next engine
  // makes the same choice; empty: each engine measures. If the file cannot be written, the engine
  // ignores that.
  std::string rates_file;
  // Keeps the results of a check that steps of several tokens have the bits of steps of one, which
  // the engine makes before its first session with guesses; empty: it trusts its kernels.
  std::string checks_file;
  // Names a folder, made if only the last part of its path is missing, that keeps what int2 and
  // int3 need to know about the queries of a model (src/session/key_metrics.h), which takes the
  // reading of a text of 512 tokens; empty, or not writable: each engine reads the text.
  std::string metrics_folder;
  int prefill_chunk = 512;  // tokens per prefill step
  // Limits how long a step that reads pieces of prompts makes other sessions wait, as predicted
  // from earlier steps. Sessions whose policy sums the mass of prompts (h2o, vatp), delays
  // evictions (dms) or re-rotates keys read whole chunks of prefill_chunk tokens instead, so that
  // no bit depends on other sessions, and may make them wait longer.
  double max_stall_seconds = 0.2;
  // Guesses tokens for this engine's sessions, which verify them (SessionOptions::speculation): a
  // smaller model with the same vocabulary, or a head for the engine's model
  // (ModelOptions::target). Each of these sessions keeps a second cache, of this
  // model's rows, which a cap on the cache or T0 counts: it gets the part of the cap that its rows
  // have of all. Null: the model's MTP layer guesses, if it was loaded (ModelOptions::loads_mtp); a
  // cap leaves room for as many tokens in the cache of that layer, on top of its own bytes.
  std::shared_ptr<const Model> draft_model;
  // Selects the format of the draft model's old rows, which are compressed; none: all are f16.
  // Refused for a head.
  std::optional<CompressedType> draft_compressed_type;
  // Resolves policy names; null: the built-in policies.
  std::shared_ptr<const PolicyRegistry> policies;
  enum class Attention { kCpu, kReference };
  Attention attention = Attention::kCpu;
};

// PastContext selects the behaviour when a sequence reaches the context of its session.
enum class PastContext {
  kRefuse,    // ContextFull; generation ends with finish reason "context"
  kReRotate,  // keys are rotated to their rank among the surviving rows; needs a policy that
              // keeps fewer rows than the context
};

// SessionOptions configure a session: its policy, context, observers and recording.
struct SessionOptions {
  PolicySpec policy;
  // Makes a policy of the caller's own, instead of a built-in one by name. Such a session shares no
  // rows by BeginPromptFrom().
  std::function<Result<Policy>(const PolicyContext&)> make_policy;
  // Knows the future attention, for policies that need it; null: such a policy is refused.
  // REQUIRES: outlives the session.
  const Foresight* foresight = nullptr;
  int context = 0;  // tokens; 0: the trained context (times the rope factor)
  PastContext past_context = PastContext::kRefuse;
  // Requests signals beyond those that the policy needs, for observers; see on_signals and
  // last_signals().
  SignalNeeds extra_signals;
  // Called after every step for each group, before any row is removed, with the positions of the
  // group's rows. Must not throw, since the step would stay half finished.
  std::function<void(int group, std::span<const Position> positions, const GroupSignals& signals,
                     const StepSignals& step)>
      on_signals;
  // Makes the session lossless (lossless.h): the policy, with its tiers or its budget, only drafts;
  // T1, or memory if there is no T1, keeps every row. Steps of several sessions draft nothing.
  // Refused with keys that are re-rotated.
  std::optional<LosslessOptions> lossless;
  // Selects the guesses of a session that is not lossless. Ignored where steps of several tokens
  // would change bits; see Session::speculation_obstacle().
  Speculation speculation = Speculation::kOff;
  // Bound the guesses of a step. Where there are guesses, the session takes as many as pay, but at
  // least `least_guesses`; it takes at most kMostTokensWithGuesses - 1.
  int least_guesses = 0;
  int most_guesses = kMostTokensWithGuesses - 1;
  // Lets a session guess whose graph multiplies computed matrices, although rounding then depends
  // on the guesses.
  bool guesses_inexactly = false;
  // Reserves bytes of T0 for this session, as Session::SetT0Floor() does; 0: none.
  uint64_t t0_floor_bytes = 0;
  // Names the token whose way through the tiers Session::explanations() reports.
  std::optional<Position> explained;
  enum class Record { kNo, kYes };
  Record ledger = Record::kNo;      // see Session::ledger()
  Record step_costs = Record::kNo;  // see StepReport::costs
};

// DeviceReport reports the bytes and the work of a device.
struct DeviceReport {
  std::string_view name;  // "cpu", "cuda0"
  // Counts the device's memory for rows and for the buffers that transfer rows between steps. Zero
  // on the cpu, as are the members below.
  uint64_t row_bytes = 0;
  uint64_t weight_bytes = 0;         // bytes of its memory that weights take
  T1Mode t1_mode = T1Mode::kStream;  // of the last step: kStream or kCompute
  int64_t decode_steps = 0;
  double decode_seconds = 0;  // seconds of the decode steps, moves excluded
};

// StepOutcome is the outcome of a step.
struct [[nodiscard]] StepOutcome {
  // Records whether the session has appended the step's tokens; logits() are then the logits after
  // them. If so, an error in `status` means that moves of rows failed which the policy decided
  // after the step.
  bool taken = false;
  Status status;

  [[nodiscard]] bool ok() const { return status.ok(); }
};

// SessionStep describes a session's part in a step of several sessions; see Engine::Step().
struct SessionStep {
  Session* session = nullptr;
  // Holds a generated token; nothing: the session continues to read the prompt of
  // Session::BeginPrompt().
  std::optional<Token> token;
  // Limits the tokens of the session's prompt that the step reads; at least 2 are read, if so many
  // are left. 0: as many as keep the step within EngineOptions::max_stall_seconds, together with
  // the tokens of other prompts.
  size_t most_prompt_tokens = 0;
  // Limits the guesses that the step computes for a session with SessionOptions::speculation, so
  // that its next tokens need no step (Session::HasComputed()). The engine computes a guess only if
  // it makes the whole batch faster; a step that reads a prompt computes none.
  int most_guesses = 0;
  // Chooses guesses from the logits of the session's draft model or head, as for Session::Decode();
  // null: only lookup guesses.
  Guess guess;
  // `status` and the members below are results of Engine::Step().
  Status status;           // the error of this part, if it has one
  size_t num_taken = 0;    // tokens that the session has taken
  size_t num_guesses = 0;  // guesses that the step computed
};

// Engine holds what sessions share: the model, the threads, the compute buffers and the arenas.
class Engine {
 public:
  // Creates an engine. Errors: InvalidArgument (an option out of range, or options that exclude
  // each other); Unsupported (the device, the tiers or the kernel cannot run the model); NotFound
  // (no such device or folder); OutOfMemory, StorageFull, IoError.
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Opens a session without tokens. Errors: InvalidArgument (the context, the policy or the signals
  // do not fit the model, the engine or each other; caps that are too small; the engine lacks the
  // session's tiers); Unsupported (the model or the device cannot do what the options ask for);
  // T0Full (no room for t0_floor_bytes); OutOfMemory.
  [[nodiscard]] Result<std::unique_ptr<Session>> OpenSession(const SessionOptions& options);
  // Predicts the bytes of each tier that a session with these options takes while it reads
  // `prompt_tokens` tokens and holds at most `most_tokens` in all, before it is opened. Uses the
  // arithmetic of `ebb fit` (fit.h). A policy of the caller's own, and a policy whose budget is not
  // a number of rows, count as if they kept every row. Errors: those of OpenSession() that the
  // options alone cause; T0Full or T1Full if the caps of the tiers are too small; InvalidArgument
  // (numbers of tokens that no session of this context has).
  [[nodiscard]] Result<TierNeeds> CountNeeds(const SessionOptions& options, int prompt_tokens,
                                             int most_tokens) const;
  // Steps distinct sessions of this engine in one batch: generated tokens and pieces of prompts in
  // any mix. Either every session takes its part or none does; the error of one part is in its
  // SessionStep::status too. Each session gets the bits of stepping alone if matrix products give a
  // token the same bits in every batch, which holds for quantized weights and F32 on x86-64 with
  // AVX2 (docs/user/serve.md); otherwise up to rounding.
  StepOutcome Step(std::span<SessionStep> parts);
  // Appends tokens[i] to sessions[i] for all i in one batch: Step() with generated tokens alone.
  StepOutcome DecodeBatch(std::span<Session* const> sessions, std::span<const Token> tokens);

  [[nodiscard]] const Model& model() const;
  [[nodiscard]] const EngineOptions& options() const;  // threads resolved
  // Returns the bytes of T0, T1 or T2 of all sessions; for a T1 in a file, the file's bytes.
  [[nodiscard]] ArenaAccounting arena_accounting(Tier tier = Tier::kT0) const;
  // Returns the bytes of the newest verified rows of lossless sessions with a T1
  // (CacheAccounting::newest).
  [[nodiscard]] ArenaAccounting newest_accounting() const;
  // Returns the bytes and the work of the engine's device.
  [[nodiscard]] DeviceReport device_report() const;
  // Returns the attention kernel that runs: "reference", "cpu:AVX3_ZEN4", ...
  [[nodiscard]] std::string attention_name() const;

 private:
  friend struct Internals;
  Engine();
  std::shared_ptr<EngineCore> core_;
};

// PrefillOptions observe and cancel a prefill.
struct PrefillOptions {
  // Cancels the prefill between two chunks once it is true: the result is kCancelled, and the
  // tokens read so far stay.
  const std::atomic<bool>* cancel = nullptr;
  // Called after each chunk with the number of tokens read so far.
  std::function<void(size_t)> progress;
  // Called for every token with its logits [vocab_size]. The output matrix is then multiplied for
  // every token; if null, for the last token alone.
  std::function<void(Position, std::span<const float>)> on_logits;
};

// Session is one sequence: its tokens, its cache, its policy and its logits.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Reads given tokens (a prompt, a user turn). On error the tokens of finished chunks stay; the
  // outcome is `taken` if all tokens were read.
  StepOutcome Prefill(std::span<const Token> tokens, const PrefillOptions& options = {});
  // Begins a prompt that Engine::Step() then reads piece by piece, between other sessions' steps
  // (chunked prefill), with the bits of Prefill(). Until prompt_left() is 0 the session accepts no
  // other tokens, and logits() are the logits after the last piece read. A roll-back abandons the
  // rest of the prompt, and a session file does not hold it. Errors, after which nothing has
  // changed: those of Prefill().
  Status BeginPrompt(std::vector<Token> tokens);
  [[nodiscard]] size_t prompt_left() const;  // tokens that are still to be read
  // Appends one generated token and computes the logits after it. A lossless session also decodes
  // and verifies up to `most_guesses` tokens beyond it, which come from `guess` and from lookup in
  // its own text; without `guess` it verifies none, and each step reads all rows.
  StepOutcome Decode(Token token, const Guess& guess = nullptr, int most_guesses = kMostDrafted);
  // Returns whether Decode() asks its `guess` for tokens: in a lossless session, and in one that
  // guesses by a draft model or a head.
  [[nodiscard]] bool TakesGuesses() const;
  // Returns a copy of this session that continues independently: tokens, rows in all tiers, the
  // policy's state, logits and their hash, and SessionOptions with their callbacks. Both sessions
  // then give the bits that this one would have given. They share pages that are nearly full
  // (copy-on-write), so that a fork takes little memory and time. The copy lacks guesses that were
  // not verified yet; its last_step(), last_signals() and lossless_report() are empty, and its
  // ledger is that of a session resumed from a file. Errors, after which this session continues:
  // InvalidArgument (a prompt is being read), Unsupported (a policy without SaveState()), T0Full,
  // OutOfMemory.
  [[nodiscard]] Result<std::unique_ptr<Session>> Fork();
  // Sets the share of the full-precision rows that stay in T0, of those that may leave it; before
  // the first call it is TierShares::t0_share. Moves rows at once and at each later decision.
  // Changes no bit. REQUIRES: no step is running. Errors: InvalidArgument (not from 0 to 1; a
  // session without T1, with a cap on T0, or lossless); T0Full, T1Full, OutOfMemory and IoError if
  // rows could not be moved.
  Status SetT0Share(double share);
  // Reserves `num_bytes` of T0's pages for this session, including the pages that it holds:
  // allocations of other sessions fail if they would leave it less. Does nothing if T0 has no cap.
  // Pages that the session shares with a fork no longer count for either session once this one
  // releases them. A fork reserves as many bytes for itself. In a lossless session the floor is the
  // draft's. Errors, after which the floor is unchanged: T0Full (the floors of other sessions leave
  // less of T0).
  Status SetT0Floor(uint64_t num_bytes);
  // Moves all of the session's rows from T0 to T1 and frees their memory (preemption with
  // swap-out), and does ForgetGuesses(). The session can be stepped again at any time, bit for bit;
  // rows return with the policy's decisions, or at once with SetT0Share(). Errors: InvalidArgument
  // (a session without T1, or lossless), T1Full, StorageFull, OutOfMemory, IoError.
  Status Park();
  // Rolls the session back: forgets every token at `end` and later. Rows that were evicted do not
  // come back. logits() is empty until the next step. Errors: Unsupported, and nothing forgotten,
  // if NearestTruncation(end) is not `end`; truncating to 0 always succeeds.
  Status TruncateTo(Position end);
  // Returns whether TruncateTo(end) would succeed.
  [[nodiscard]] bool CanTruncateTo(Position end) const;
  // Returns the largest position up to `end` that TruncateTo() accepts. Models with recurrent state
  // can go back to a few checkpoints (4 to 16): the ends of recent prompts and of some messages. So
  // can models with sliding windows that run without a policy, tiers or a device; with any of
  // these, only to 0 once a row has left its window. Other models can go back to any position.
  [[nodiscard]] Position NearestTruncation(Position end) const;

  // Returns the logits after the last token, [vocab_size]. Valid until the next step or roll-back
  // of this session; empty before the first step.
  [[nodiscard]] std::span<const float> logits() const;
  // Returns a hash over all bits of the logits after each prompt and each decode step, in order. A
  // prompt that was read with on_logits adds the logits after each of its tokens.
  [[nodiscard]] uint64_t logits_hash() const;

  // Returns the number of tokens so far, which is the position of the next token.
  [[nodiscard]] Position next_position() const;
  [[nodiscard]] std::span<const Token> tokens() const;  // all so far
  [[nodiscard]] int context() const;
  [[nodiscard]] const Policy& policy() const;
  // Counts the cost of the session's cache, with a pass over its pages.
  [[nodiscard]] CacheAccounting accounting() const;
  // Returns accounting().tiers[tier].page_bytes, without a pass over the pages.
  [[nodiscard]] size_t page_bytes(Tier tier) const;
  // Counts the bytes of the policy's state by writing it as a file would hold it, which takes a
  // pass over the rows. Errors: Unsupported if the policy cannot be saved.
  [[nodiscard]] Result<size_t> CountPolicyBytes() const;
  // Returns the report of the session's last step.
  [[nodiscard]] const StepReport& last_step() const;
  // Returns null unless the session is lossless. In a lossless session accounting() counts the
  // draft's rows and, in T1, the rows of every token; the newest of these lie in memory (staging)
  // until they fill whole pages. visible_positions() and the ledger are the draft's, guesses
  // included.
  [[nodiscard]] const LosslessReport* lossless_report() const;
  // Gives the session a text that its answer may repeat in parts, as tokens: it guesses from this
  // text too. Replaces the text of an earlier call; does nothing if the session does not guess.
  void Predict(std::span<const Token> tokens);
  // Frees the memory of the session's draft model or head, which starts again when the session
  // decodes on, and guesses worse at first.
  void ForgetGuesses();
  // Returns the counts of all guesses, those of a lossless session included.
  [[nodiscard]] SpeculationReport speculation_report() const;
  // Returns why the session computes no guesses although SessionOptions::speculation asks for them;
  // empty: it computes them, or none were asked for.
  [[nodiscard]] const std::string& speculation_obstacle() const;
  // Returns whether the session has computed the token as a guess, so that a step of it computes
  // nothing.
  [[nodiscard]] bool HasComputed(Token token) const;
  // Returns the guesses that the next tokens will be compared with; mostly none.
  [[nodiscard]] std::span<const Token> drafted() const;
  // Returns the history of each token; null if SessionOptions::ledger is kNo.
  [[nodiscard]] const Ledger* ledger() const;
  // Returns why the rows of SessionOptions::explained lie where they do, in the order of decisions:
  // for each group the first decision about the token, each that changed its tier, and the latest.
  // Empty if the policy decides nothing. Valid until the session's next step.
  [[nodiscard]] std::span<const Explanation> explanations() const;
  // Returns for each group the tier of the token at `position`, and by which rule, score and rank
  // the policy would decide about it now, which may differ from the latest decision. Empty if the
  // policy decides nothing, if there is no such token, or if the session cannot go on. Takes a pass
  // over the rows of each group.
  [[nodiscard]] std::vector<Explanation> Explain(Position position) const;
  // Returns the signals of the last step that extra_signals and the policy requested.
  [[nodiscard]] const StepSignals& last_signals() const;
  // Returns the visible positions of a group at the policy's granularity, ascending.
  [[nodiscard]] std::span<const Position> visible_positions(int group) const;

  struct Impl;

 private:
  friend class Engine;
  friend struct Internals;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the place of T1 if EngineTiers::t1 selects none: a file, or the host's memory if the
// device is an accelerator.
[[nodiscard]] T1Place DefaultT1(const DeviceSpec& device);

// Returns the default policy of drafts: the first 20 tokens and the last 512, unless `spec` has
// sinks and a window of its own. A `spec` with tiers, a budget or another policy than the full
// cache is returned unchanged. A front end calls it for a lossless session whose user named no
// policy; if the user named the full cache, the draft is a full cache.
[[nodiscard]] PolicySpec DefaultDraft(PolicySpec spec);

// Returns the tiers that a session on such an engine has, with the defaults of both: T1 has a
// place, the caps are those that the session keeps its rows within, and T0 has a share unless a cap
// limits it. Returns nothing if the session leaves all rows in T0.
[[nodiscard]] std::optional<TierSetting> TiersOf(const EngineOptions& engine,
                                                 const SessionOptions& session);

// Gives the engine and the session their parts of `tiers`, or none.
void SetTiers(const std::optional<TierSetting>& tiers, EngineOptions* engine,
              SessionOptions* session);

}  // namespace ebb

#endif  // EBB_ENGINE_H_
