#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ebb/device.h"
#include "src/attention/trellis.h"
#include "src/lossless/speculator.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/loaded_model.h"
#include "src/policy/pairs.h"
#include "src/policy/tier_forecast.h"
#include "src/rows/rows_under_caps.h"
#include "src/sequence/draft_options.h"
#include "src/session/assistant_drafter.h"
#include "src/session/column_check.h"
#include "src/session/head_drafter.h"
#include "src/session/key_metrics.h"
#include "src/session/model_drafter.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

constexpr int kMaxThreads = 512;  // ggml's own limit

// Returns the kernel that `wanted` names, or the one that the variable EBB_ATTENTION forces (see
// attention.h).
Result<const AttentionKernel*> ChooseKernel(EngineOptions::Attention wanted) {
  if (const char* forced = std::getenv("EBB_ATTENTION"); forced != nullptr && *forced != '\0') {
    return AttentionByName(forced);
  }
  return wanted == EngineOptions::Attention::kReference ? &ReferenceAttention() : &CpuAttention();
}

Status CheckOptions(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument("threads", "expected 0 to " + std::to_string(kMaxThreads) + ", found " +
                                          std::to_string(options.threads));
  }
  if (options.prefill_chunk < 1) {
    return InvalidArgument("prefill_chunk", "expected at least 1 token, found " +
                                                std::to_string(options.prefill_chunk));
  }
  if (!(options.max_stall_seconds > 0)) {
    return InvalidArgument("a stall of at most " + std::to_string(options.max_stall_seconds) +
                           " s; expected a longer time");
  }
  return OkStatus();
}

Status CheckContext(const Model& model, int context, PastContext past_context) {
  const int trained = model.shape().trained_context;
  if (context >= 1 && context <= trained) return OkStatus();
  std::string message =
      fmt::format("{} tokens, and {} was trained for {}", context, model.description(), trained);
  if (past_context == PastContext::kReRotate) {
    message += "; with keys re-rotated a sequence may be of any length in a context up to that";
  } else if (context > trained) {
    message += fmt::format("; RoPE scaling by a factor of {} or more makes them possible",
                           (context + trained - 1) / trained);
  }
  return InvalidArgument("context", std::move(message));
}

Status CheckNeeds(const EngineCore& core, const SignalNeeds& needs, int context) {
  const Model& model = *core.model;
  const ModelShape& shape = model.shape();
  if (needs.eviction_logits && model.eviction_window() == 0) {
    return InvalidArgument("no eviction logits: " + model.description() +
                           " has no eviction head; use a model trained with DMS");
  }
  const Hyperparameters& hparams = model.loaded().hparams;
  if (needs.keys_before_rope && !hparams.has_keys_before_rope) {
    return Unsupported("no keys before RoPE: the graph of " + model.description() +
                       " does not contain them");
  }
  std::vector<int> blocks = needs.hidden_layers;
  if (IsHead(hparams)) std::erase(blocks, kHeadRows);
  if (core.draft != nullptr && IsHead(core.draft->model().loaded().hparams)) {
    for (const int row : RowsReadBy(core.draft->model().loaded().hparams)) std::erase(blocks, row);
  }
  if (!blocks.empty() && !hparams.has_hidden_states) {
    return Unsupported("no hidden states: the graph of " + model.description() +
                       " does not name them");
  }
  for (const int layer : blocks) {
    if (layer < 0 || layer >= shape.num_layers) {
      return InvalidArgument("hidden_layers", "expected layers 0 to " +
                                                  std::to_string(shape.num_layers - 1) +
                                                  ", found " + std::to_string(layer));
    }
  }
  if (needs.num_recent_queries < 0 || needs.num_recent_queries > context) {
    return InvalidArgument("num_recent_queries", "expected 0 to the context, " +
                                                     std::to_string(context) + ", found " +
                                                     std::to_string(needs.num_recent_queries));
  }
  return OkStatus();
}

// Refuses to compress all old rows if the device leaves T2 to the host: a prompt after such rows
// would be read token by token.
Status CheckOldRows(const EngineCore& core, const SessionOptions& options) {
  if (!CompressesOldRows(options.policy.tiers) || !core.stores.device()->IsClosed() ||
      core.stores.HasT2OnDevice()) {
    return OkStatus();
  }
  return Unsupported("tiers.t2_rows",
                     fmt::format("a compressed cache of all old rows needs T2 in the memory of "
                                 "device {}, whose backend cannot read compressed "
                                 "rows of {} channels there (docs/user/gpu.md)",
                                 core.stores.device()->name(), core.model->shape().head_dim));
}

Status CheckSelection(const EngineCore& core, const SessionOptions& options) {
  if (!ReadsSelectively(options.policy.tiers)) return OkStatus();
  if (core.options.t1_mode == T1Mode::kCompute && core.stores.device()->IsClosed()) {
    return Unsupported(
        "T1 mode compute: rows that are read selectively are attended to in the device's memory");
  }
  if (options.past_context == PastContext::kReRotate) {
    return Unsupported("tiers.t1_read", "select cannot be combined with keys that are re-rotated");
  }
  return OkStatus();
}

Status CheckTiers(const EngineCore& core, const Policy& policy, const SessionOptions& options) {
  EBB_RETURN_IF_ERROR(CheckBelowT0(options.past_context, policy));
  // MakePolicy() keeps rows out of T2 that a policy hides or does not read; a policy of the
  // caller's may not.
  if (!options.make_policy || core.stores.caches().t2 == nullptr) return OkStatus();
  const bool hides_rows = policy.placement != nullptr && policy.placement->LongestStep() < kAnyStep;
  if (!hides_rows && policy.selector == nullptr) return OkStatus();
  return InvalidArgument(fmt::format("policy \"{}\" {} within a step, which is not for rows of T2",
                                     policy.name, hides_rows ? "hides rows" : "chooses rows"));
}

Result<DeviceUse> UseOf(const EngineOptions& options, BackendDevice* device) {
  if (device == nullptr) return DeviceUse();
  if (options.tiers.has_value() && options.tiers->t1 == T1Place::kFile) {
    if (options.t1_mode == T1Mode::kCompute) {
      return Unsupported("T1 mode compute: rows of a file are attended to in the device's memory");
    }
    return DeviceUse{.device = device, .t1_mode = T1Mode::kStream};
  }
  return DeviceUse{.device = device,
                   .t1_mode = options.t1_mode,
                   .allow_inexact = options.allow_inexact,
                   .has_t1 = options.tiers.has_value() && options.tiers->t1 != T1Place::kNone,
                   .rates_file = options.rates_file};
}

// Returns a function that runs parts of work on the runner's threads: thread t of n runs the parts
// t, t + n, t + 2n ...
RunParts PartsOnThreads(GraphRunner* runner) {
  return [runner](int num_parts, const std::function<void(int)>& work) {
    runner->RunOnThreads([&](int thread, int num_threads) {
      for (int part = thread; part < num_parts; part += num_threads) work(part);
    });
  };
}

Status CheckDraftModel(const Model& model, const Model& draft, const EngineOptions& options) {
  EBB_RETURN_IF_ERROR(CheckSameVocabulary(model, draft));
  const LoadedModel& loaded = draft.loaded();
  if (!IsHead(loaded.hparams)) return OkStatus();
  if (loaded.target.get() != &model) {
    return InvalidArgument("the draft model is a head that was loaded for another model");
  }
  if (!options.draft_compressed_type.has_value()) return OkStatus();
  return InvalidArgument("draft_kv_type", fmt::format("the rows of a head ({}) are not compressed",
                                                      SpeculationName(draft.draft_source())));
}

}  // namespace

Engine::Engine() : core_(std::make_shared<EngineCore>()) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                               const EngineOptions& options) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Engine> engine(new Engine());
  EngineCore& core = *engine->core_;
  core.options = options;
  std::shared_ptr<const Model> drafts = options.draft_model;
  if (drafts != nullptr) {
    EBB_RETURN_IF_ERROR(CheckDraftModel(*model, *drafts, options));
  } else if (model->loaded().mtp != nullptr) {
    drafts = {model, model->loaded().mtp.get()};
  }
  const bool has_cache = drafts == nullptr || drafts->loaded().hparams.has_cache;
  if (drafts != nullptr && has_cache) {
    const EngineOptions of_draft = TakeDraftOptions(*model, *drafts, &core.options);
    auto draft = Create(drafts, of_draft);
    if (draft.ok()) {
      core.draft = *std::move(draft);
    } else if (options.draft_model != nullptr) {
      return draft.status().WithPrefix("the draft model");
    } else {
      core.mtp_obstacle = draft.status().message();
    }
  }
  if (core.options.threads == 0) {
    core.options.threads = std::min(AvailableProcessors().threads, kMaxThreads);
  }
  if (core.options.tiers.has_value() && !core.options.tiers->t1.has_value()) {
    core.options.tiers->t1 = DefaultT1(options.device);
  }
  EBB_ASSIGN_OR_RETURN(core.kernel, ChooseKernel(options.attention));
  core.format = PageFormat::Of(model->shape(), options.kv_type);
  if (core.options.tiers.has_value() && core.options.tiers->t2_type.has_value()) {
    EBB_RETURN_IF_ERROR(CheckCompressedType(*core.options.tiers->t2_type, model->shape().head_dim,
                                            options.device.kind != DeviceKind::kCpu));
  }
  EBB_ASSIGN_OR_RETURN(
      core.stores, TierStores::Create(core.options, model->loaded(), core.format, *core.kernel));
  if (core.stores.caches().t2 != nullptr && UsesKeyMetric(core.stores.caches().compressed)) {
    const std::span<float> metrics = core.stores.MakeKeyMetrics(model->shape());
    core.before_first_step = [&core, model, metrics] {
      return ComputeKeyMetrics(model, core.options, core.kernel->name, metrics);
    };
  }
  EBB_ASSIGN_OR_RETURN(const DeviceUse device, UseOf(core.options, core.stores.backend()));
  EBB_ASSIGN_OR_RETURN(core.runner, GraphRunner::Create(*model, *core.kernel, options.kv_type,
                                                        core.stores.caches().compressed, device,
                                                        core.options.threads));
  if (!has_cache) {
    // It opens no sessions, so it has no stores.
    core.draft.reset(new Engine());
    EngineCore& of_draft = *core.draft->core_;
    EBB_ASSIGN_OR_RETURN(
        of_draft.runner,
        GraphRunner::Create(*drafts, *core.kernel, options.kv_type, core.stores.caches().compressed,
                            DeviceUse(), core.options.threads));
    of_draft.model = std::move(drafts);
  }
  core.device_report.name = core.stores.device()->name();
  core.model = std::move(model);
  return engine;
}

namespace {

PolicyContext PolicyContextOf(const EngineCore& core, const SessionOptions& options,
                              const EngineTiers& tiers, int context) {
  const RowsAvailable rows = RowsUnderCaps(tiers, core.model->shape(), core.format.PageBytes());
  return {.shape = core.model->shape(),
          .row_bytes = core.format.RowBytes(),
          .compressed_row_bytes =
              core.stores.caches().t2 == nullptr ? 0 : core.stores.caches().compressed.RowStride(),
          .max_tokens = context,
          .tiers = tiers,
          .rows_available = rows,
          .foresight = options.foresight,
          .eviction_window = core.model->eviction_window(),
          .eviction_shift = core.model->eviction_shift(),
          .attention_scale = core.model->attention_scale(),
          .run_parts = PartsOnThreads(core.runner.get()),
          .registry = core.options.policies.get()};
}

// Refuses lossless sessions of models with recurrent state, since the draft and the verified rows
// have read different numbers of tokens and would need two states.
Status CheckState(const EngineCore& core, const SessionOptions& options) {
  if (core.model->loaded().hparams.state_bytes == 0 || !options.lossless.has_value()) {
    return OkStatus();
  }
  return Unsupported("lossless sessions are not supported by models with recurrent state");
}

// Refuses options that models with sliding windows cannot serve: rows leave a window layer by
// layer, and a truncation does not bring them back.
Status CheckWindows(const ModelShape& shape, const Policy& policy, const SessionOptions& options) {
  if (shape.SmallestWindow() == 0) return OkStatus();
  if (options.lossless.has_value()) {
    return Unsupported("lossless sessions are not supported by models with sliding windows");
  }
  if (RotatesKeys(options.past_context, policy)) {
    return Unsupported("keys cannot be re-rotated in models with sliding windows");
  }
  if (policy.granularity != Granularity::kToken) return OkStatus();
  return Unsupported("policy \"" + policy.name +
                     "\" decides about all layers together (granularity token), but this model's "
                     "sliding windows evict rows layer by layer; choose granularity layer or head");
}

// Refuses choices that exclude each other in lossless sessions alone.
Status CheckLossless(const EngineCore& core, const SessionOptions& options) {
  const PolicySpec& spec = options.policy;
  if (!options.lossless.has_value() || !spec.tiers.has_value()) return OkStatus();
  std::vector<MadeChoice> made;
  if (EvictsByItself(spec, core.options.policies.get())) {
    made.push_back({Choice::kBudget, fmt::format("policy \"{}\", which evicts rows", spec.name)});
  }
  if (spec.tiers->t0_share.has_value()) {
    made.push_back({Choice::kDraftShare, "T0's share of a draft", "tiers.t0_share"});
  }
  if (ReadsSelectively(spec.tiers)) {
    made.push_back({Choice::kLosslessSelect, "selective drafting", "tiers.t1_read"});
    if (spec.tiers->evict_share > 0) made.push_back({Choice::kEvictShare, "evicting a share"});
  }
  return CheckPairs(made);
}

// Refuses a scorer that the user chose and the policy would not use.
Status CheckScorer(const Policy& policy, const SessionOptions& options) {
  const bool asks_scores = policy.placement != nullptr && policy.placement->NeedsScores();
  if (options.make_policy || options.policy.scorer.empty() || asks_scores) return OkStatus();
  return InvalidArgument(
      "policy.scorer", "policy \"" + options.policy.name + "\" uses no scores, so scorer \"" +
                           options.policy.scorer +
                           "\" would change nothing; choose a policy that ranks rows, such as h2o "
                           "or attention");
}

Status CheckPolicy(const EngineCore& core, const Policy& policy, const SessionOptions& options,
                   int context) {
  EBB_RETURN_IF_ERROR(CheckScorer(policy, options));
  if (options.past_context == PastContext::kReRotate && policy.placement == nullptr) {
    return InvalidArgument("policy \"" + policy.name +
                           "\" keeps every row, so re-rotating keys frees no room; choose a "
                           "policy that evicts");
  }
  if (StepSettler::ComparesKeys(policy) && RotatesKeys(options.past_context, policy)) {
    return InvalidArgument("policy \"" + policy.name +
                           "\" compares keys of different steps, which re-rotating keys would "
                           "make incomparable; choose another policy");
  }
  if (RotatesKeys(options.past_context, policy) && !core.model->loaded().hparams.can_rotate_keys) {
    return Unsupported("keys cannot be rotated to other positions in " + core.model->description() +
                       ": RoPE is not the last operation on them, or it differs between layers");
  }
  return CheckNeeds(core, StepSettler::Needs(policy), context);
}

}  // namespace

Result<std::unique_ptr<Session>> Engine::OpenSession(const SessionOptions& options) try {
  return Internals::Open(core_, options);
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for a session");
}

int Internals::ContextOf(const EngineCore& core, const SessionOptions& options) {
  return options.context == 0 ? core.model->shape().trained_context : options.context;
}

namespace {

Status CheckTiersOfEngine(const EngineOptions& engine, const std::optional<TierShares>& shares) {
  if (!shares.has_value()) return OkStatus();
  if (!engine.tiers.has_value()) return InvalidArgument("the engine was made without tiers");
  if (engine.kv_cap_bytes > 0 && !CompressesOldRows(shares)) return RefuseCapOfCache();
  if (HasT2(*shares) && !engine.tiers->t2_type.has_value()) {
    return InvalidArgument("the engine was made without a T2");
  }
  return OkStatus();
}

// Checks that the caps leave room for decisions of a policy.
Status CheckCapsOf(const EngineCore& core, const TierSetting& tiers, const PolicySpec& spec,
                   int context) {
  const ModelShape& shape = core.model->shape();
  const size_t page_bytes = core.format.PageBytes();
  if (const auto rows = RowsOfSelectiveStep(tiers, static_cast<size_t>(context))) {
    EBB_RETURN_IF_ERROR(CheckCapOfSelection(tiers.engine, shape, page_bytes, *rows));
  }
  return CheckCaps(tiers.engine, shape, page_bytes, spec.interval.value_or(kDefaultInterval));
}

}  // namespace

Result<Policy> Internals::MakeSessionPolicy(const EngineCore& core, const SessionOptions& options) {
  const int context = ContextOf(core, options);
  EBB_RETURN_IF_ERROR(CheckContext(*core.model, context, options.past_context));
  EBB_RETURN_IF_ERROR(CheckNeeds(core, options.extra_signals, context));
  EBB_RETURN_IF_ERROR(CheckSelection(core, options));
  EBB_RETURN_IF_ERROR(CheckOldRows(core, options));
  PolicySpec spec = options.policy;
  // A policy that the caller made (make_policy) names no tiers, so it may use all tiers of the
  // engine.
  EngineTiers tiers = core.options.tiers.value_or(EngineTiers());
  const std::optional<PolicyTiers> placed = TiersOfPolicy(core.options, options);
  if (placed.has_value()) {
    if (!options.make_policy) EBB_RETURN_IF_ERROR(CheckCapsOf(core, placed->tiers, spec, context));
    tiers = placed->tiers.engine;
    spec.tiers = placed->tiers.shares;
  }
  const PolicyContext policy_context = PolicyContextOf(core, options, tiers, context);
  EBB_ASSIGN_OR_RETURN(
      Policy policy,
      options.make_policy
          ? options.make_policy(policy_context)
          : MakePolicy(spec, policy_context, placed.value_or(PolicyTiers()).protected_rows));
  EBB_RETURN_IF_ERROR(CheckWindows(core.model->shape(), policy, options));
  EBB_RETURN_IF_ERROR(CheckState(core, options));
  EBB_RETURN_IF_ERROR(CheckLossless(core, options));
  EBB_RETURN_IF_ERROR(CheckPolicy(core, policy, options, context));
  EBB_RETURN_IF_ERROR(CheckTiersOfEngine(core.options, options.policy.tiers));
  const bool may_move = options.make_policy && core.options.tiers.has_value();
  if (may_move || options.policy.tiers.has_value()) {
    EBB_RETURN_IF_ERROR(CheckTiers(core, policy, options));
  }
  return policy;
}

namespace {

// Returns whether EngineCore::draft is an assistant that cannot read the sessions' rows.
bool LacksRows(const EngineCore& core) {
  return !core.draft->model().loaded().hparams.has_cache && core.stores.caches().t1_file != nullptr;
}

// Returns whether a session guesses by EngineCore::draft, if it guesses.
bool Drafts(const EngineCore& core, const SessionOptions& options) {
  if (core.draft == nullptr || options.lossless.has_value()) return false;
  return options.speculation == Speculation::kAuto
             ? !LacksRows(core)
             : options.speculation == core.draft->model().draft_source();
}

// Refuses a source of guesses that the engine does not have, except that "model" without a draft
// model stands for lookup.
Status CheckSource(const EngineCore& core, const SessionOptions& options) {
  const Speculation wanted = options.speculation;
  const bool is_draft = std::ranges::find(kDraftSources, wanted) != kDraftSources.end();
  const bool is_lookup =
      wanted == Speculation::kModel && (core.draft == nullptr || options.lossless.has_value());
  if (!is_draft || is_lookup) return OkStatus();
  if (Drafts(core, options)) {
    if (!LacksRows(core)) return OkStatus();
    return InvalidArgument("speculate",
                           "assistant: it reads the session's rows in memory, and T1 is a file");
  }
  const Speculation has =
      core.draft != nullptr ? core.draft->model().draft_source() : Speculation::kOff;
  std::string why = "the engine has no such draft model";
  if (wanted == Speculation::kMtp) {
    why = core.mtp_obstacle.empty() ? core.model->mtp_obstacle() : core.mtp_obstacle;
  }
  if (has == Speculation::kModel) {
    why = "the engine guesses by a draft model";
  } else if (has != Speculation::kOff) {
    why = fmt::format("the engine guesses by a head ({})", SpeculationName(has));
  }
  if (options.lossless.has_value()) why = "a lossless session drafts by itself";
  return InvalidArgument("speculate", fmt::format("{}: {}", SpeculationName(wanted), why));
}

// Opens the session of EngineCore::draft that guesses for a session. Null: it needs none, since it
// reads the session's own rows. REQUIRES: Drafts().
Result<std::unique_ptr<Session>> OpenDraft(const EngineCore& core, const SessionOptions& options) {
  const Hyperparameters& hparams = core.draft->model().loaded().hparams;
  if (!hparams.has_cache) return std::unique_ptr<Session>();
  SessionOptions own = {.context = std::min(Internals::ContextOf(core, options),
                                            core.draft->model().shape().trained_context)};
  if (!IsHead(hparams)) {
    if (const auto type = core.options.draft_compressed_type) {
      own.policy.tiers = CompressedCache(*type).shares;
    }
  } else if (hparams.block_tokens == 0) {
    own.extra_signals.hidden_layers = {kHeadRows};
  }
  return core.draft->OpenSession(own);
}

// Returns the source of guesses by EngineCore::draft. `draft`: of OpenDraft().
std::unique_ptr<Drafter> MakeDrafter(const EngineCore& core, std::unique_ptr<Session> draft,
                                     Sequence* sequence) {
  if (draft == nullptr) {
    GraphRunner* const runner = Internals::Of(*core.draft).runner.get();
    return std::make_unique<AssistantDrafter>(runner, sequence);
  }
  if (IsHead(core.draft->model().loaded().hparams)) {
    return std::make_unique<HeadDrafter>(std::move(draft));
  }
  return std::make_unique<ModelDrafter>(std::move(draft), core.model->shape().vocab_size);
}

}  // namespace

Result<std::unique_ptr<Session>> Internals::Open(std::shared_ptr<EngineCore> shared_core,
                                                 const SessionOptions& options) {
  const EngineCore& core = *shared_core;
  EBB_ASSIGN_OR_RETURN(Policy policy, MakeSessionPolicy(core, options));
  EBB_RETURN_IF_ERROR(CheckSource(core, options));
  auto impl = std::make_unique<Session::Impl>();
  bool guesses = options.speculation != Speculation::kOff && !options.lossless.has_value();
  if (guesses) {
    impl->speculation_obstacle = ComputedTokens::Obstacle(core, policy, options);
    if (impl->speculation_obstacle.empty() && !options.guesses_inexactly) {
      impl->speculation_obstacle = CheckColumns(shared_core);
    }
    guesses = impl->speculation_obstacle.empty();
  }
  bool drafts = guesses && Drafts(core, options);
  std::unique_ptr<Session> draft;
  if (drafts) {
    Result<std::unique_ptr<Session>> opened = OpenDraft(core, options);
    drafts = opened.ok();
    // A source that the caller did not name fails no session.
    if (!drafts && options.speculation != Speculation::kAuto) return opened.status();
    if (drafts) draft = *std::move(opened);
  }
  SessionOptions complete = options;
  complete.context = ContextOf(core, options);
  if (drafts && IsHead(core.draft->model().loaded().hparams)) {
    const Hyperparameters& head = core.draft->model().loaded().hparams;
    complete.extra_signals = Union(complete.extra_signals, {.hidden_layers = RowsReadBy(head)});
  }
  auto sequence = std::make_unique<Sequence>(shared_core, std::move(complete), std::move(policy),
                                             core.stores.caches(CacheUseOf(options)));
  EBB_RETURN_IF_ERROR(sequence->cache().SetT0Floor(options.t0_floor_bytes));
  // Showing logits must not fail for lack of memory, because the token is appended by then.
  impl->logits.values.reserve(core.model->shape().vocab_size);
  impl->core = std::move(shared_core);
  if (options.lossless.has_value()) {
    EBB_ASSIGN_OR_RETURN(impl->speculator, Speculator::Create(*options.lossless, sequence.get()));
  }
  impl->sequence = std::move(sequence);
  if (guesses) {
    impl->lookup = std::make_unique<GuessingDecoder>(impl->sequence.get());
    auto drafter = drafts ? MakeDrafter(core, std::move(draft), impl->sequence.get()) : nullptr;
    const bool looks_up = drafter == nullptr || options.speculation == Speculation::kAuto;
    impl->lookup->SetSources(looks_up, std::move(drafter));
  }
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const Model& Engine::model() const { return *core_->model; }
const EngineOptions& Engine::options() const { return core_->options; }

ArenaAccounting Engine::arena_accounting(Tier tier) const { return core_->stores.accounting(tier); }

ArenaAccounting Engine::newest_accounting() const { return core_->stores.newest_accounting(); }

DeviceReport Engine::device_report() const {
  DeviceReport report = core_->device_report;
  if (const BackendDevice* backend = core_->stores.backend(); backend != nullptr) {
    report.row_bytes = backend->buffer_bytes() + backend->transfer_bytes();
    report.weight_bytes = core_->runner->steps().weight_bytes_on_device();
  }
  return report;
}

std::string Engine::attention_name() const {
  const std::string name(core_->kernel->name);
  return core_->kernel->name == ReferenceAttention().name ? name : "cpu:" + name;
}

}  // namespace ebb
