#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "src/engine/engine_impl.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// EBB_ATTENTION forces a kernel; see attention.h.
Result<const AttentionKernel*> ChooseKernel(EngineOptions::Attention wanted) {
  if (const char* forced = std::getenv("EBB_ATTENTION"); forced != nullptr && *forced != '\0') {
    return AttentionByName(forced);
  }
  return wanted == EngineOptions::Attention::kReference ? &ReferenceAttention() : &CpuAttention();
}

Status CheckOptions(const EngineOptions& options) {
  constexpr int kMaxThreads = 512;
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument("threads: " + std::to_string(options.threads) + "; expected 0 to " +
                           std::to_string(kMaxThreads));
  }
  if (options.prefill_chunk < 1) {
    return InvalidArgument("prefill chunk: " + std::to_string(options.prefill_chunk) +
                           "; expected at least 1 token");
  }
  return OkStatus();
}

Status CheckContext(const Model& model, int context, PastContext past_context) {
  const int trained = model.shape().trained_context;
  if (context >= 1 && context <= trained) return OkStatus();
  const std::string way_out =
      past_context == PastContext::kRefuse
          ? "ask for rope scaling, or for keys to be rotated anew past it"
          : "with keys rotated anew a sequence may be of any length in a context up to that";
  return InvalidArgument("context of " + std::to_string(context) +
                         " tokens: " + model.description() + " was trained for " +
                         std::to_string(trained) + "; " + way_out);
}

Status CheckNeeds(const SignalNeeds& needs, const Model& model, int context) {
  const ModelShape& shape = model.shape();
  if (needs.eviction_logits && model.eviction_window() == 0) {
    return InvalidArgument("eviction logits asked for; " + model.description() +
                           " marks no rows: it was not trained to");
  }
  for (const int layer : needs.hidden_layers) {
    if (layer < 0 || layer >= shape.num_layers) {
      return InvalidArgument("hidden state of layer " + std::to_string(layer) +
                             " asked for; the model has layers 0 to " +
                             std::to_string(shape.num_layers - 1));
    }
  }
  if (needs.num_recent_queries < 0 || needs.num_recent_queries > context) {
    return InvalidArgument(std::to_string(needs.num_recent_queries) +
                           " recent queries asked for; expected 0 to the context, " +
                           std::to_string(context));
  }
  return OkStatus();
}

bool WantsCosts(const Session::Impl& session) {
  return session.options.step_costs == SessionOptions::Record::kYes;
}

MoveAccounting Since(const MoveAccounting& before, const MoveAccounting& now) {
  return {.rows_down = now.rows_down - before.rows_down,
          .rows_up = now.rows_up - before.rows_up,
          .bytes_down = now.bytes_down - before.bytes_down,
          .bytes_up = now.bytes_up - before.bytes_up,
          .rows_compressed = now.rows_compressed - before.rows_compressed,
          .seconds = now.seconds - before.seconds,
          .seconds_down = now.seconds_down - before.seconds_down,
          .seconds_up = now.seconds_up - before.seconds_up};
}

Status CheckTiers(const Policy& policy, PastContext past_context) {
  if (past_context == PastContext::kReRotate) {
    return InvalidArgument("keys in the tiers below T0 cannot be rotated anew");
  }
  if (policy.selector != nullptr) {
    return InvalidArgument("policy \"" + policy.name +
                           "\" chooses rows within a step, which works in T0 alone");
  }
  return OkStatus();
}

Result<DeviceUse> UseOf(const EngineOptions& options, Device* device) {
  if (device->one_memory()) return DeviceUse();
  DeviceUse::Options use = {.t1_mode = options.t1_mode, .allow_inexact = options.allow_inexact};
  if (options.t1_mode == T1Mode::kAuto && options.allow_inexact) {
    EBB_ASSIGN_OR_RETURN(use.rates, MeasureRates(device));
  }
  return DeviceUse(device, use);
}

}  // namespace

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                               const EngineOptions& options) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Engine> engine(new Engine());
  Impl& impl = *engine->impl_;
  impl.options = options;
  if (impl.options.threads == 0) {
    impl.options.threads = std::max(1u, std::thread::hardware_concurrency());
  }
  EBB_ASSIGN_OR_RETURN(impl.kernel, ChooseKernel(options.attention));
  impl.format = {.type = options.kv_type, .head_dim = model->shape().head_dim};
  EBB_ASSIGN_OR_RETURN(impl.stores, TierStores::Create(options, impl.format, *impl.kernel));
  EBB_ASSIGN_OR_RETURN(const DeviceUse device, UseOf(options, impl.stores.device()));
  EBB_ASSIGN_OR_RETURN(impl.runner, GraphRunner::Create(*model, *impl.kernel, options.kv_type,
                                                        impl.stores.caches().compressed, device,
                                                        impl.options.threads));
  impl.device_report.name = impl.stores.device()->name();
  impl.model = std::move(model);
  return engine;
}

Result<std::unique_ptr<Session>> Engine::OpenSession(const SessionOptions& options) {
  const ModelShape& shape = impl_->model->shape();
  const int context = options.context == 0 ? shape.trained_context : options.context;
  EBB_RETURN_IF_ERROR(CheckContext(*impl_->model, context, options.past_context));
  EBB_RETURN_IF_ERROR(CheckNeeds(options.extra_signals, *impl_->model, context));
  const PolicyContext policy_context = {
      .shape = shape,
      .row_bytes = 2 * impl_->format.RowStride(),
      .max_tokens = context,
      .foresight = options.foresight,
      .eviction_window = impl_->model->eviction_window(),
  };
  EBB_ASSIGN_OR_RETURN(Policy policy, options.make_policy
                                          ? options.make_policy(policy_context)
                                          : MakePolicy(options.policy, policy_context));
  if (options.past_context == PastContext::kReRotate && policy.placement == nullptr) {
    return InvalidArgument("policy \"" + policy.name +
                           "\" keeps every row, so rotating keys anew gains no room; choose a "
                           "policy that evicts");
  }
  if (PolicyDriver::ComparesKeys(policy) && TurnsKeys(options, policy)) {
    return InvalidArgument("policy \"" + policy.name +
                           "\" compares keys of different steps, which rotating keys anew would "
                           "tear apart; choose another policy");
  }
  EBB_RETURN_IF_ERROR(CheckNeeds(PolicyDriver::Needs(policy), *impl_->model, context));
  if (options.policy.tiers.has_value()) {
    EBB_RETURN_IF_ERROR(impl_->stores.Check(*options.policy.tiers));
    EBB_RETURN_IF_ERROR(CheckTiers(policy, options.past_context));
  }
  auto session = std::make_unique<Session::Impl>(impl_.get(), options, std::move(policy), context);
  return std::unique_ptr<Session>(new Session(std::move(session)));
}

Status Engine::DecodeBatch(std::span<Session* const> sessions, std::span<const Token> tokens) {
  if (sessions.size() != tokens.size() || sessions.empty()) {
    return InvalidArgument("a batch of " + std::to_string(sessions.size()) + " sessions and " +
                           std::to_string(tokens.size()) + " tokens; expected one for each");
  }
  std::vector<Impl::Part> parts;
  for (size_t i = 0; i < sessions.size(); ++i) {
    Session::Impl* session = &sessions[i]->impl();
    if (session->engine != impl_.get()) {
      return InvalidArgument("a batch holds a session of another engine");
    }
    const auto same = [&](const Impl::Part& part) { return part.session == session; };
    if (std::any_of(parts.begin(), parts.end(), same)) {
      return InvalidArgument("a batch holds one session twice");
    }
    parts.push_back({session, tokens.subspan(i, 1)});
  }
  return impl_->Step(StepKind::kDecode, parts, Impl::Outputs::kLast);
}

// A policy that ran out of memory half-way may know of other rows than the cache has.
Result<int64_t> Engine::Impl::Decide(Session::Impl* session, StepKind kind) {
  try {
    EBB_ASSIGN_OR_RETURN(const int64_t evicted, session->driver.EndStep(session->Facts(kind)));
    if (evicted > 0 && session->policy.key_turns == KeyTurns::kAfterEviction) {
      EBB_RETURN_IF_ERROR(session->TurnKeys(0));
    }
    return evicted;
  } catch (const std::bad_alloc&) {
    session->broken =
        ResourceExhausted("no memory for what the policy decided; this sequence cannot go on");
    return session->broken;
  }
}

void Engine::Impl::EndStep(StepKind kind, const Part& part, StepReport report, Status* status) {
  Session::Impl& session = *part.session;
  const auto start = Clock::now();
  session.tokens.insert(session.tokens.end(), part.tokens.begin(), part.tokens.end());
  const TokenKind token_kind =
      kind == StepKind::kDecode ? TokenKind::kGenerated : TokenKind::kGiven;
  if (kind == StepKind::kDecode) {
    if (session.first_generated < 0) {
      session.first_generated = session.next() - static_cast<Position>(part.tokens.size());
    }
    ++session.decode_steps;
  }
  session.kinds.resize(session.tokens.size(), token_kind);
  const MoveAccounting before = session.cache.moves();
  const Result<int64_t> evicted = Decide(&session, kind);
  if (!evicted.ok() && status->ok()) *status = evicted.status();
  report.num_tokens = static_cast<int>(part.tokens.size());
  report.rows_evicted = evicted.ok() ? *evicted : 0;
  report.policy_seconds = SecondsSince(start);
  report.moves = Since(before, session.cache.moves());
  report.mass_computed = session.signals.wants_mass();
  session.report = report;
}

// Everything that can fail comes before anything that the caller could see.
Status Engine::Impl::Step(StepKind kind, std::span<const Part> parts, Outputs outputs) {
  for (const Part& part : parts) {
    EBB_RETURN_IF_ERROR(part.session->broken);
    EBB_RETURN_IF_ERROR(part.session->CheckTokens(part.tokens));
    EBB_RETURN_IF_ERROR(part.session->CheckRoomAfterTurning(part.tokens.size()));
  }
  StepWork work;
  StepCosts costs;
  std::vector<double> waited;
  bool wants_costs = false;
  for (const Part& part : parts) {
    waited.push_back(part.session->cache.stage_wait_seconds());
    wants_costs = wants_costs || WantsCosts(*part.session);
  }
  Status status;
  const auto start = Clock::now();
  const double device_begin = stores.device()->Seconds();
  try {
    status = Append(kind, parts, outputs, &work);
    if (status.ok()) status = runner->Run(work, wants_costs ? &costs : nullptr);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("no memory for a step of " + std::to_string(work.tokens.size()) +
                               " tokens");
  }
  if (!status.ok()) {
    Undo(parts, work);
    return status;
  }
  const double compute_seconds = SecondsSince(start);
  ReportDevice(kind, work, device_begin);
  // What a policy could not move ends its own request; the others go on.
  Status moved;
  for (size_t i = 0; i < parts.size(); ++i) {
    Session::Impl& session = *parts[i].session;
    StepReport report = {.kind = kind, .compute_seconds = compute_seconds};
    report.rows_unread = session.rows_unread;
    report.io_wait_seconds = session.cache.stage_wait_seconds() - waited[i];
    if (WantsCosts(session)) report.costs = costs;
    EndStep(kind, parts[i], report, &moved);
    if (outputs == Outputs::kLast) session.ShowLogits(runner->logits(i));
  }
  return moved;
}

// Rows for the new tokens, and what the step's nodes need to know of them.
Status Engine::Impl::Append(StepKind kind, std::span<const Part> parts, Outputs outputs,
                            StepWork* work) {
  for (const Part& part : parts) {
    Session::Impl& session = *part.session;
    session.tokens.reserve(session.tokens.size() + part.tokens.size());
    session.kinds.reserve(session.tokens.size() + part.tokens.size());
    EBB_RETURN_IF_ERROR(session.cache.Append(session.next(), static_cast<int>(part.tokens.size())));
  }
  for (const Part& part : parts) {
    EBB_RETURN_IF_ERROR(part.session->TurnKeysIfFull(part.tokens.size()));
  }
  for (const Part& part : parts) {
    Session::Impl& session = *part.session;
    const int num_tokens = static_cast<int>(part.tokens.size());
    session.rows_unread = 0;
    // First: Undo() takes back what began for the sequences that stand here.
    work->sequences.push_back(
        {.cache = &session.cache,
         .signals = &session.signals,
         .selector = kind == StepKind::kDecode ? session.policy.selector.get() : nullptr,
         .rows_unread = &session.rows_unread,
         .first = session.next(),
         .num_tokens = num_tokens,
         .first_token = static_cast<int>(work->tokens.size())});
    session.signals.Begin(session.cache, kind, session.next(), num_tokens);
    session.driver.BeginStep(session.next(), num_tokens);
    work->sequences.back().hides_rows = session.driver.HidesRows();
    for (int t = 0; t < num_tokens; ++t) {
      if (outputs == Outputs::kAll || t + 1 == num_tokens) {
        work->output_rows.push_back(static_cast<int32_t>(work->tokens.size()));
      }
      work->tokens.push_back(part.tokens[t]);
      work->rope_positions.push_back(session.rope.Next(session.next() + t));
    }
  }
  return OkStatus();
}

void Engine::Impl::ReportDevice(StepKind kind, const StepWork& work, double begin) {
  const Device& device = *stores.device();
  if (device.one_memory() || kind != StepKind::kDecode) return;
  device_report.t1_mode = runner->t1_mode();
  ++device_report.decode_steps;
  device_report.decode_seconds += device.Seconds() - begin;
  device_report.critical_path_seconds +=
      runner->CriticalPathSeconds(RatesOf(options.device), work.sequences);
}

// Takes back what Append() did, as far as it came.
void Engine::Impl::Undo(std::span<const Part> parts, const StepWork& work) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Session::Impl& session = *parts[i].session;
    // Its history of queries moved up when the step began.
    if (i < work.sequences.size()) session.signals.Forget();
    session.driver.TruncateTo(session.next());
    session.cache.TruncateTo(session.next());
    session.rope.TruncateTo(session.cache, session.next());
  }
}

const Model& Engine::model() const { return *impl_->model; }
const EngineOptions& Engine::options() const { return impl_->options; }

ArenaAccounting Engine::arena_accounting(Tier tier) const { return impl_->stores.accounting(tier); }

DeviceReport Engine::device_report() const { return impl_->device_report; }

std::string Engine::TimelineJson() const {
  const SimDevice* sim = impl_->stores.sim();
  return sim == nullptr || !impl_->options.keep_timeline ? "" : TraceJson(sim->timeline());
}

std::string Engine::attention_name() const {
  const std::string name(impl_->kernel->name);
  return impl_->kernel->name == ReferenceAttention().name ? name : "cpu:" + name;
}

}  // namespace ebb
