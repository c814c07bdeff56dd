#include "src/server/engine/job_view.h"

#include <algorithm>

namespace ebb::server {
namespace {

constexpr size_t kStripParts = 160;
// kStripTokens is the number of tokens that a strip samples of a text of any length, because
// reading all tokens takes a pass over the ledger.
constexpr size_t kStripTokens = 2 * kStripParts;

// Returns the tiers of up to `most` evenly spaced tokens, one character each.
std::string TiersOf(const Session& session, size_t most) {
  const Ledger* const ledger = session.ledger();
  if (ledger == nullptr) return "";
  const auto num_tokens = static_cast<size_t>(ledger->next_position());
  std::string tiers(std::min(num_tokens, most), '0');
  for (size_t i = 0; i < tiers.size(); ++i) {
    const auto position = static_cast<Position>(i * num_tokens / tiers.size());
    tiers[i] = static_cast<char>('0' + static_cast<int>(ledger->CommonTier(position)));
  }
  return tiers;
}

}  // namespace

std::string StripOf(const std::string& tiers, size_t most) {
  const size_t num_parts = std::min(most, tiers.size());
  std::string strip;
  for (size_t part = 0; part < num_parts; ++part) {
    const size_t begin = part * tiers.size() / num_parts;
    const size_t end = (part + 1) * tiers.size() / num_parts;
    std::array<size_t, kNumTiers> counts = {};
    for (size_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(tiers[i] - '0')];
    const auto largest = std::ranges::max_element(counts);
    strip += static_cast<char>('0' + (largest - counts.begin()));
  }
  return strip;
}

JobView ViewOf(const Job& job, const JobState& state, const JobProgress& progress,
               const Session* session, double now) {
  JobView view = {.id = state.id,
                  .priority = state.priority,
                  .phase = state.phase,
                  .age_seconds = now - state.arrival,
                  .prompt_tokens = state.prompt_left,
                  .prompt_left = state.prompt_left,
                  .progress = progress,
                  .is_lossless = job.session.lossless.has_value(),
                  .num_parks = state.num_parks,
                  .t0_share = state.share,
                  .t0_floor_bytes = state.least_bytes};
  if (session == nullptr) return view;
  if (progress.decode_begin > 0) view.decode_seconds = now - progress.decode_begin;
  view.prompt_left = session->prompt_left();
  const CacheAccounting rows = session->accounting();
  for (int t = 0; t < kNumTiers; ++t) {
    view.rows[t] = rows.tiers[t].rows;
    view.page_bytes[t] = rows.tiers[t].page_bytes;
  }
  view.rows[kNumTiers - 1] = rows.rows_evicted;
  view.selection = rows.selection;
  view.strip = StripOf(TiersOf(*session, kStripTokens), kStripParts);
  return view;
}

MemoryReport MemoryOf(const Session& session, size_t most_tiers) {
  MemoryReport report = {.num_tokens = session.tokens().size(),
                         .tiers = TiersOf(session, most_tiers)};
  const CacheAccounting cache = session.accounting();
  for (int t = 0; t < kNumTiers; ++t) {
    report.rows[t] = cache.tiers[t].rows;
    report.page_bytes[t] = cache.tiers[t].page_bytes;
  }
  report.rows[kNumTiers - 1] = cache.rows_evicted;
  // A full cache has one row for each row that is stored or was evicted. The draft rows of a
  // lossless session are copies, so they are not counted: the ledger counts each row once.
  int64_t num_rows = report.rows[kNumTiers - 1];
  for (int t = 0; t < kNumTiers - 1; ++t) num_rows += report.rows[t];
  if (const Ledger* const ledger = session.ledger(); ledger != nullptr) {
    num_rows = 0;
    for (int t = 0; t < kNumTiers; ++t) num_rows += ledger->rows(static_cast<Tier>(t));
  }
  const TierAccounting& precise = cache.tiers[0].rows > 0 ? cache.tiers[0] : cache.tiers[1];
  if (precise.rows > 0) {
    const double row_bytes =
        static_cast<double>(precise.row_bytes) / static_cast<double>(precise.rows);
    report.full_bytes = static_cast<size_t>(row_bytes * static_cast<double>(num_rows));
  }
  return report;
}

TokenFates FatesOf(JobId id, const JobProgress& progress, size_t prompt_tokens,
                   const Session& session) {
  TokenFates fates = {.id = id,
                      .prompt_tokens = prompt_tokens,
                      .progress = progress,
                      .tokens = {session.tokens().begin(), session.tokens().end()},
                      .tiers = TiersOf(session, session.tokens().size())};
  const Ledger* const ledger = session.ledger();
  if (ledger == nullptr) return fates;
  fates.num_steps = ledger->num_steps();
  const std::vector<Ledger::RowsPerTier> all = ledger->RowsByStep();
  const size_t num_kept = std::min(all.size(), TokenFates::kMostHistory);
  for (size_t i = 0; i < num_kept; ++i) {
    fates.history.push_back(all[(i + 1) * all.size() / num_kept - 1]);
  }
  return fates;
}

TokenReasons ReasonsOf(const Session& session, const ModelShape& shape, Position position) {
  return {.num_tokens = session.tokens().size(),
          .groups_per_layer = shape.NumGroups(session.policy().granularity) / shape.num_layers,
          .groups = session.Explain(position)};
}

}  // namespace ebb::server
