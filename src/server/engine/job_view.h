// JobView describes a job for the dashboard: its progress and the tiers of its rows and tokens. It
// is made between steps, on the engine's thread.
#ifndef EBB_SERVER_ENGINE_JOB_VIEW_H_
#define EBB_SERVER_ENGINE_JOB_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "src/server/engine/figures.h"
#include "src/server/engine/job.h"

namespace ebb::server {

// JobProgress counts the tokens that a job has generated so far.
struct JobProgress {
  size_t generated_tokens = 0;
  size_t thought_tokens = 0;  // up to the last token that added thought text
  bool in_thought = false;    // the last text belonged to the thought
  double decode_begin = 0;  // time of the first token, seconds since the driver began; 0: none yet
};

struct JobView {
  JobId id = 0;
  int priority = 0;
  Phase phase = Phase::kWaiting;
  double age_seconds = 0;
  double decode_seconds = 0;  // since the first token
  size_t prompt_tokens = 0;
  size_t prompt_left = 0;  // prompt tokens not read yet
  JobProgress progress;
  bool is_lossless = false;
  int num_parks = 0;
  std::optional<Wait> wait;  // why it waits or stays parked; nothing: it does not, or starts next
  double t0_share = 1;
  uint64_t t0_floor_bytes = 0;  // T0 bytes that the job needs while it runs
  // Count the rows in each tier, in (layer, kv head, token) triples, and the bytes of their pages;
  // for T3, the evicted rows.
  std::array<int64_t, kNumTiers> rows = {};
  std::array<size_t, kNumTiers> page_bytes = {};
  SelectionAccounting selection;
  // Divides the sequence into equal parts and holds for each the tier of most of its sampled
  // tokens, one character '0' to '3'.
  std::string strip;
};

// Snapshot holds the figures and all jobs. Times are seconds since the driver began.
struct Snapshot {
  double now = 0;
  Figures figures;
  std::vector<JobView> jobs;  // in order of arrival
};

// Returns the view of a job. `session` is null while the job waits.
[[nodiscard]] JobView ViewOf(const Job& job, const JobState& state, const JobProgress& progress,
                             const Session* session, double now);

// Returns the report that a client gets about its own request, with the tiers of at most
// `most_tiers` tokens.
[[nodiscard]] MemoryReport MemoryOf(const Session& session, size_t most_tiers);

// TokenFates holds the tokens of one job and the tiers of their rows.
struct TokenFates {
  JobId id = 0;
  size_t prompt_tokens = 0;
  JobProgress progress;
  std::vector<Token> tokens;
  // Holds for each token the tier in which most groups have it, '0' to '3'.
  std::string tiers;
  int64_t num_steps = 0;
  // Holds the rows per tier after at most kMostHistory evenly spaced steps, the last one included.
  static constexpr size_t kMostHistory = 240;
  std::vector<Ledger::RowsPerTier> history;
};
[[nodiscard]] TokenFates FatesOf(JobId id, const JobProgress& progress, size_t prompt_tokens,
                                 const Session& session);

// TokenReasons names the tiers of one token's rows, and the rules that selected them.
struct TokenReasons {
  size_t num_tokens = 0;     // tokens of the sequence
  int groups_per_layer = 0;  // 0: one group is all layers
  std::vector<Explanation> groups;
};
[[nodiscard]] TokenReasons ReasonsOf(const Session& session, const ModelShape& shape,
                                     Position position);

// Divides `tiers` into at most `most` equal parts and returns for each the tier that most of its
// tokens have; of two equally frequent tiers, the faster.
[[nodiscard]] std::string StripOf(const std::string& tiers, size_t most);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_JOB_VIEW_H_
