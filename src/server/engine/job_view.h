// The view of a job for the dashboard: how far it is, where its rows are, and the fate of each of
// its tokens. Taken between steps, on the engine's thread.
#ifndef EBB_SERVER_ENGINE_JOB_VIEW_H_
#define EBB_SERVER_ENGINE_JOB_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "src/server/engine/figures.h"
#include "src/server/engine/job.h"

namespace ebb::server {

// The text that was generated for a job so far.
struct JobProgress {
  size_t generated_tokens = 0;
  size_t thought_tokens = 0;  // of them, up to the last one that brought a piece of the thought
  bool in_thought = false;    // the last one
  double decode_begin = 0;    // seconds since the driver began: the first token; 0: none yet
};

struct JobView {
  JobId id = 0;
  int priority = 0;
  Phase phase = Phase::kWaiting;
  double age_seconds = 0;
  double decode_seconds = 0;  // since the first token
  size_t prompt_tokens = 0;
  size_t prompt_left = 0;  // of them, not read yet
  JobProgress progress;
  bool is_lossless = false;
  int num_parks = 0;
  double t0_share = 1;
  uint64_t t0_floor_bytes = 0;  // that it needs of T0 as long as it runs
  // Rows by tier, (layer, kv head, token) triples, and bytes of their pages; T3: rows evicted.
  std::array<int64_t, kNumTiers> rows = {};
  std::array<size_t, kNumTiers> page_bytes = {};
  SelectionAccounting selection;
  // The tier of most tokens, of those that were looked at, in each of equal parts of the text: one
  // character each, '0' to '3'.
  std::string strip;
};

// All that is there. Times are seconds since the driver began.
struct Snapshot {
  double now = 0;
  Figures figures;
  std::vector<JobView> jobs;  // in order of arrival
};

// Session: null while the job waits.
[[nodiscard]] JobView ViewOf(const Job& job, const JobState& state, const JobProgress& progress,
                             const Session* session, double now);

// The report that a client gets of the memory of its own request, with at most `most_tiers` tiers
// of tokens.
[[nodiscard]] MemoryReport MemoryOf(const Session& session, size_t most_tiers);

// The tokens of one job.
struct TokenFates {
  JobId id = 0;
  size_t prompt_tokens = 0;
  JobProgress progress;
  std::vector<Token> tokens;
  // [tokens]: the tier in which most groups have it, '0' to '3'.
  std::string tiers;
  int64_t num_steps = 0;
  // Rows per tier after steps, evenly chosen, at most kMostHistory of them, the last one included.
  static constexpr size_t kMostHistory = 240;
  std::vector<Ledger::RowsPerTier> history;
};
[[nodiscard]] TokenFates FatesOf(JobId id, const JobProgress& progress, size_t prompt_tokens,
                                 const Session& session);

// `tiers` in at most `most` equal parts, each as the tier that most of its tokens have; of two the
// faster.
[[nodiscard]] std::string StripOf(const std::string& tiers, size_t most);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_VIEW_H_
