// Predicts the bytes that a session will take of each tier, before it is opened.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "src/lossless/speculator.h"
#include "src/policy/tier_forecast.h"
#include "src/rows/rows_under_caps.h"
#include "src/sequence/roll_back.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

// Returns the pages for `num_rows` rows of a stream from which rows leave. They leave holes in
// pages, which compaction fills only in later steps, so one page more may be in use.
size_t PagesWithHoles(size_t num_rows, size_t most_tokens) {
  return std::min(PagesFor(num_rows) + 1, PagesFor(most_tokens));
}

class Counter {
 public:
  // Counts rows of `policy`, which the options make.
  Counter(const EngineCore& core, const SessionOptions& options, const Policy& policy,
          size_t prompt_tokens, size_t most_tokens)
      : core_(core),
        options_(options),
        policy_(policy),
        prompt_tokens_(prompt_tokens),
        most_tokens_(most_tokens) {}

  Result<TierNeeds> Count() const {
    EBB_ASSIGN_OR_RETURN(TierNeeds needs, CountOfPolicy());
    if (CacheUseOf(options_) == CacheUse::kSession) return needs;
    // Besides the draft's rows, every row is kept in T1, or in T0 if there is no T1.
    const std::optional<EngineTiers>& tiers = core_.options.tiers;
    const bool has_t1 = tiers.has_value() && tiers->t1 != T1Place::kNone;
    const uint64_t all = BytesOf(PagesFor(most_tokens_), core_.format.PageBytes());
    (has_t1 ? needs.t1_bytes : needs.t0_bytes) += all;
    return needs;
  }

 private:
  [[nodiscard]] uint64_t BytesOf(size_t pages_per_stream, size_t page_bytes) const {
    // Rows leave a layer's sliding window only at the end of a step, so the window's rows and those
    // of one chunk of the prompt are in memory together.
    const size_t beyond = static_cast<size_t>(core_.options.prefill_chunk) + kRowsPerPage;
    return WindowCheckpoints::MostRows(core_.model->shape(), pages_per_stream * kRowsPerPage,
                                       /*checkpoints=*/0, beyond, kRowsPerPage) /
           kRowsPerPage * page_bytes;
  }

  [[nodiscard]] Result<TierNeeds> CountOfPolicy() const {
    const std::optional<PolicyTiers> placed = TiersOfPolicy(core_.options, options_);
    if (placed.has_value() && !options_.make_policy) return CountTiers(*placed);
    const size_t rows = RetainedRows(Request(TierSetting())).peaks.t0;
    const uint64_t bytes = BytesOf(PagesWithHoles(rows, most_tokens_), core_.format.PageBytes());
    return TierNeeds{.t0_floor_bytes = bytes, .t0_bytes = bytes};
  }

  [[nodiscard]] Result<TierNeeds> CountTiers(const PolicyTiers& placed) const {
    ForecastRequest request = Request(placed.tiers);
    request.rows_available =
        RowsUnderCaps(placed.tiers.engine, core_.model->shape(), core_.format.PageBytes());
    request.protected_rows = placed.protected_rows;
    // Quest reads pages of T1 as selective reading does.
    if (policy_.selector != nullptr) request.tiers.shares.t1_read = T1Read::kSelect;
    EBB_ASSIGN_OR_RETURN(const RowsOverTime rows, ForecastRows(request));
    const bool rows_leave = rows.peaks.t1 + rows.peaks.t2 > 0 || Evicts(placed.tiers.shares) ||
                            request.retention != nullptr;
    const auto t0_pages = [&](size_t num_rows) {
      return rows_leave ? PagesWithHoles(num_rows, most_tokens_) : PagesFor(num_rows);
    };
    const size_t page_bytes = core_.format.PageBytes();
    const size_t floor_rows = std::min(FloorRows(request), rows.peaks.t0);
    return TierNeeds{.t0_floor_bytes = BytesOf(t0_pages(floor_rows), page_bytes),
                     .t0_bytes = BytesOf(t0_pages(rows.peaks.t0), page_bytes),
                     .t1_bytes = BytesOf(BelowT0(rows.peaks.t1), page_bytes),
                     .t2_bytes = BytesOf(BelowT0(rows.peaks.t2), PageBytesOfT2())};
  }

  [[nodiscard]] ForecastRequest Request(const TierSetting& tiers) const {
    const PolicySpec& spec = options_.policy;
    const bool evicts = !options_.make_policy && EvictsByItself(spec, core_.options.policies.get());
    return {.tiers = tiers,
            .prompt_tokens = prompt_tokens_,
            .most_tokens = most_tokens_,
            .retention = evicts ? policy_.placement.get() : nullptr,
            .chunk_tokens = static_cast<size_t>(core_.options.prefill_chunk),
            .sinks = spec.sinks.value_or(kDefaultSinks),
            .window = spec.window.value_or(kDefaultWindow),
            .interval = spec.interval.value_or(kDefaultInterval)};
  }

  [[nodiscard]] size_t PageBytesOfT2() const {
    const Arena* t2 = core_.stores.caches().t2;
    return t2 == nullptr ? 0 : t2->page_bytes();
  }

  // Returns the pages of a tier below T0. Rows are promoted from it again, so its pages may have
  // holes.
  [[nodiscard]] size_t BelowT0(size_t num_rows) const {
    return num_rows == 0 ? 0 : PagesWithHoles(num_rows, most_tokens_);
  }

  const EngineCore& core_;
  const SessionOptions& options_;
  const Policy& policy_;
  const size_t prompt_tokens_;
  const size_t most_tokens_;
};

}  // namespace

Result<TierNeeds> Engine::CountNeeds(const SessionOptions& options, int prompt_tokens,
                                     int most_tokens) const try {
  EBB_ASSIGN_OR_RETURN(const Policy policy, Internals::MakeSessionPolicy(*core_, options));
  const int context = Internals::ContextOf(*core_, options);
  const bool is_endless = options.past_context == PastContext::kReRotate;
  if (prompt_tokens < 0 || most_tokens < prompt_tokens || (most_tokens > context && !is_endless)) {
    return InvalidArgument(
        fmt::format("{} tokens, {} of them given, of a session with a context of {}", most_tokens,
                    prompt_tokens, context));
  }
  return Counter(*core_, options, policy, static_cast<size_t>(prompt_tokens),
                 static_cast<size_t>(most_tokens))
      .Count();
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for what a session needs");
}

}  // namespace ebb
