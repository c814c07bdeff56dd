#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "ebb/processors.h"
#include "src/engine/engine_impl.h"

namespace ebb {
namespace {

constexpr int kMaxThreads = 512;  // ggml's own limit

// EBB_ATTENTION forces a kernel; see attention.h.
Result<const AttentionKernel*> ChooseKernel(EngineOptions::Attention wanted) {
  if (const char* forced = std::getenv("EBB_ATTENTION"); forced != nullptr && *forced != '\0') {
    return AttentionByName(forced);
  }
  return wanted == EngineOptions::Attention::kReference ? &ReferenceAttention() : &CpuAttention();
}

Status CheckOptions(const EngineOptions& options) {
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

Status CheckTiers(const Policy& policy, const SessionOptions& options) {
  if (TurnsKeys(options, policy)) {
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

// Thread t of n takes the parts t, t + n, t + 2n ...
RunParts PartsOnThreads(GraphRunner* runner) {
  return [runner](int num_parts, const std::function<void(int)>& work) {
    runner->RunOnThreads([&](int thread, int num_threads) {
      for (int part = thread; part < num_parts; part += num_threads) work(part);
    });
  };
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
    impl.options.threads = std::min(AvailableProcessors().threads, kMaxThreads);
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
      .eviction_shift = impl_->model->eviction_shift(),
      .run_parts = PartsOnThreads(impl_->runner.get()),
  };
  const CacheUse use = options.lossless.has_value() ? CacheUse::kDraft : CacheUse::kSession;
  PolicySpec spec = options.policy;
  if (use == CacheUse::kDraft) spec = Lossless::DraftSpec(std::move(spec));
  EBB_ASSIGN_OR_RETURN(Policy policy, options.make_policy ? options.make_policy(policy_context)
                                                          : MakePolicy(spec, policy_context));
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
    EBB_RETURN_IF_ERROR(impl_->stores.Check(*options.policy.tiers, use));
    EBB_RETURN_IF_ERROR(CheckTiers(policy, options));
  }
  auto session = std::make_unique<Session::Impl>(impl_.get(), options, std::move(policy), context,
                                                 impl_->stores.caches(use));
  session->logits.reserve(shape.vocab_size);  // where they are shown, the token is there already
  if (options.lossless.has_value()) {
    EBB_ASSIGN_OR_RETURN(session->lossless, Lossless::Create(*options.lossless, session.get()));
  }
  return std::unique_ptr<Session>(new Session(std::move(session)));
}

Status Engine::DecodeBatch(std::span<Session* const> sessions, std::span<const Token> tokens) try {
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
    if (session->lossless != nullptr) {
      return InvalidArgument("a batch holds a lossless session, which steps by itself");
    }
    const auto same = [&](const Impl::Part& part) { return part.session == session; };
    if (std::any_of(parts.begin(), parts.end(), same)) {
      return InvalidArgument("a batch holds one session twice");
    }
    parts.push_back({.session = session, .tokens = tokens.subspan(i, 1)});
  }
  return impl_->StepAndShow(StepKind::kDecode, parts);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for a batch");
}

const Model& Engine::model() const { return *impl_->model; }
const EngineOptions& Engine::options() const { return impl_->options; }

ArenaAccounting Engine::arena_accounting(Tier tier) const { return impl_->stores.accounting(tier); }

ArenaAccounting Engine::newest_accounting() const { return impl_->stores.newest_accounting(); }

DeviceReport Engine::device_report() const {
  DeviceReport report = impl_->device_report;
  const Device& device = *impl_->stores.device();
  if (!device.one_memory()) report.seconds = device.Seconds();
  return report;
}

std::string Engine::TimelineJson() const {
  const SimDevice* sim = impl_->stores.sim();
  return sim == nullptr || !impl_->options.keep_timeline ? "" : TraceJson(sim->timeline());
}

std::string Engine::attention_name() const {
  const std::string name(impl_->kernel->name);
  return impl_->kernel->name == ReferenceAttention().name ? name : "cpu:" + name;
}

}  // namespace ebb
