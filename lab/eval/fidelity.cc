#include "ebb/lab/fidelity.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "ebb/lab/foresight.h"
#include "lab/eval/fidelity_statistics.h"
#include "lab/eval/forgetting.h"

namespace ebb {
namespace {

Status KeysMove() {
  return InvalidArgument(
      "the cost of forgetting cannot be measured where keys are re-rotated: rows that are gone "
      "are not rotated with the others");
}

Status CheckOptions(const FidelityOptions& o) {
  if (o.prompt_tokens < 1 || o.block_tokens < 1 || o.resamples < 1 ||
      !(o.confidence > 0 && o.confidence < 1)) {
    return InvalidArgument(fmt::format(
        "fidelity needs a prompt, a block and resamples of at least 1 and a confidence between 0 "
        "and 1; found {}, {}, {} and {}",
        o.prompt_tokens, o.block_tokens, o.resamples, o.confidence));
  }
  if (o.forgetting == FidelityOptions::Forgetting::kMeasure &&
      o.setting.past_context == PastContext::kReRotate) {
    return KeysMove();
  }
  return OkStatus();
}

Status CheckWindow(std::span<const Token> window, const FidelityOptions& options, int context) {
  const auto size = static_cast<int>(window.size());
  if (size > options.prompt_tokens && size <= context) return OkStatus();
  return InvalidArgument(fmt::format(
      "a window of {} tokens; expected more than the prompt's {}, and no more than the context's "
      "{}",
      size, options.prompt_tokens, context));
}

using Watch = void (ReplayedAttention::*)(int, std::span<const Position>, const GroupSignals&,
                                          const StepSignals&);

// Returns the options of a full cache. If the setting's policy looks ahead, the cache reports its
// steps to `replay`.
SessionOptions FullCache(const FidelityOptions& options, const Policy& policy, Watch watch,
                         ReplayedAttention* replay) {
  SessionOptions full;
  full.context = options.setting.context;
  if (!policy.looks_ahead) return full;
  full.policy.granularity = policy.granularity;
  full.extra_signals = ReplayedAttention::Needs();
  full.on_signals = [watch, replay](int group, std::span<const Position> positions,
                                    const GroupSignals& signals, const StepSignals& step) {
    (replay->*watch)(group, positions, signals, step);
  };
  return full;
}

// Reads the window with a full cache first, as policies that look ahead need it.
Status Foresee(Engine& engine, std::span<const Token> window, const FidelityOptions& options,
               const Policy& policy, ReplayedAttention* replay) {
  if (!policy.looks_ahead) return OkStatus();
  replay->Begin(engine.model().shape(), policy.granularity);
  EBB_ASSIGN_OR_RETURN(const auto full, engine.OpenSession(FullCache(
                                            options, policy, &ReplayedAttention::Add, replay)));
  PrefillOptions prefill;
  prefill.cancel = options.cancel;
  EBB_RETURN_IF_ERROR(full->Prefill(window.first(options.prompt_tokens), prefill).status);
  for (const Token token : window.subspan(options.prompt_tokens)) {
    if (options.cancel != nullptr && *options.cancel) return Cancelled("fidelity was cancelled");
    EBB_RETURN_IF_ERROR(full->Decode(token).status);
  }
  return OkStatus();
}

size_t PageBytes(const Session& session) {
  const CacheAccounting cache = session.accounting();
  return std::accumulate(cache.tiers.begin(), cache.tiers.end(), size_t{0},
                         [](size_t sum, const TierAccounting& t) { return sum + t.page_bytes; });
}

// BytesTaken adds up the bytes of the setting's caches over all windows.
struct BytesTaken {
  int64_t steps = 0;
  double pages = 0;  // bytes of pages, summed over the steps
  size_t policy = 0;
};

// Measures one window, with two new sessions.
Status MeasureWindow(Engine& engine, std::span<const Token> window, const FidelityOptions& options,
                     BytesTaken* taken, FidelitySums* sums, ForgettingCosts* costs) {
  ReplayedAttention replay;
  SessionOptions setting_options = options.setting;
  setting_options.foresight = &replay;
  if (costs != nullptr) {
    setting_options.extra_signals = Union(setting_options.extra_signals, ForgettingNeeds());
  }
  if (costs != nullptr && engine.model().shape().SmallestWindow() > 0) {
    return Unsupported(
        "what forgetting costs is not measured in models with sliding windows, whose layers forget "
        "by themselves");
  }
  EBB_ASSIGN_OR_RETURN(const auto setting, engine.OpenSession(setting_options));
  if (costs != nullptr && setting->policy().key_turns == KeyTurns::kAfterEviction) {
    return KeysMove();
  }
  EBB_RETURN_IF_ERROR(CheckWindow(window, options, setting->context()));
  EBB_RETURN_IF_ERROR(Foresee(engine, window, options, setting->policy(), &replay));
  EBB_ASSIGN_OR_RETURN(const auto full,
                       engine.OpenSession(FullCache(options, setting->policy(),
                                                    &ReplayedAttention::Remove, &replay)));
  const auto prompt = window.first(options.prompt_tokens);
  PrefillOptions prefill;
  prefill.cancel = options.cancel;
  EBB_RETURN_IF_ERROR(full->Prefill(prompt, prefill).status);
  std::optional<ForgettingShadow> shadow;
  if (costs != nullptr) {
    shadow.emplace(*setting, engine.model(), costs);
    prefill.progress = [&](size_t) { shadow->AddPrefill(); };
  }
  EBB_RETURN_IF_ERROR(setting->Prefill(prompt, prefill).status);
  std::vector<float> full_logits;
  for (size_t i = prompt.size(); i < window.size(); ++i) {
    if (options.cancel != nullptr && *options.cancel) return Cancelled("fidelity was cancelled");
    EBB_RETURN_IF_ERROR(full->Decode(window[i]).status);
    full_logits.assign(full->logits().begin(), full->logits().end());
    if (shadow.has_value()) shadow->BeforeDecode();
    EBB_RETURN_IF_ERROR(setting->Decode(window[i]).status);
    if (shadow.has_value()) shadow->AfterDecode();
    std::optional<Token> next;
    if (i + 1 < window.size()) next = window[i + 1];
    sums->Add(CompareLogits(full_logits, setting->logits(), next));
    taken->pages += static_cast<double>(PageBytes(*setting));
    ++taken->steps;
    if (options.progress) options.progress(taken->steps);
  }
  sums->EndWindow();
  // A policy made by the caller may not support counting its bytes.
  const Result<size_t> policy_bytes = setting->CountPolicyBytes();
  if (policy_bytes.ok()) taken->policy = std::max(taken->policy, *policy_bytes);
  return OkStatus();
}

}  // namespace

std::vector<std::vector<Token>> CutWindows(std::span<const Token> text,
                                           std::span<const Token> prefix, int window_tokens,
                                           int prompt_tokens) {
  std::vector<std::vector<Token>> windows;
  if (window_tokens <= static_cast<int>(prefix.size())) return windows;
  const size_t room = window_tokens - prefix.size();
  for (size_t begin = 0; begin < text.size(); begin += room) {
    const auto part = text.subspan(begin, std::min(room, text.size() - begin));
    std::vector<Token> window(prefix.begin(), prefix.end());
    window.insert(window.end(), part.begin(), part.end());
    if (window.size() > static_cast<size_t>(prompt_tokens)) windows.push_back(std::move(window));
  }
  return windows;
}

Result<FidelityReport> MeasureFidelity(Engine& engine, std::span<const std::vector<Token>> windows,
                                       const FidelityOptions& options) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  if (windows.empty()) {
    return InvalidArgument(
        fmt::format("no text to measure fidelity on: expected more than {} "
                    "tokens",
                    options.prompt_tokens));
  }
  FidelitySums sums(options.block_tokens);
  const ModelShape& shape = engine.model().shape();
  ForgettingCosts costs(shape.num_layers, shape.num_q_heads);
  const bool forgets = options.forgetting == FidelityOptions::Forgetting::kMeasure;
  BytesTaken taken;
  for (const std::vector<Token>& window : windows) {
    EBB_RETURN_IF_ERROR(
        MeasureWindow(engine, window, options, &taken, &sums, forgets ? &costs : nullptr));
  }
  FidelityReport report = sums.Report(options);
  report.kv_bytes = taken.pages / static_cast<double>(std::max<int64_t>(1, taken.steps));
  report.policy_bytes = taken.policy;
  if (forgets) report.forgetting = costs.Report();
  return report;
}

}  // namespace ebb
