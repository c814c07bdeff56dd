// Figures holds counters and means that the engine's thread measures, for /metrics and for
// predictions.
#ifndef EBB_SERVER_ENGINE_FIGURES_H_
#define EBB_SERVER_ENGINE_FIGURES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "ebb/report.h"
#include "ebb/types.h"

namespace ebb::server {

// Histogram counts durations in seconds by upper bounds.
class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   300};
  void Add(double seconds) {
    size_t i = 0;
    while (i < kBounds.size() && seconds > kBounds[i]) ++i;
    ++counts_[i];
    sum_ += seconds;
  }
  // Returns the counts: element i counts values above kBounds[i - 1] and up to kBounds[i], the last
  // one values above all bounds.
  [[nodiscard]] const std::array<uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

// Adds `value` to a mean that favours recent values; a mean of 0 has no value yet.
inline void Blend(double value, double* mean) {
  *mean = *mean == 0 ? value : 0.9 * *mean + 0.1 * value;
}

// Adds the selective reads of a session between its reports `before` and `now` to `sum`. If it read
// anything, the means of the unread mass in `sum` become those of `now`.
inline void AddSince(const SelectionAccounting& before, const SelectionAccounting& now,
                     SelectionAccounting* sum) {
  sum->rows_read += now.rows_read - before.rows_read;
  sum->rows_unread += now.rows_unread - before.rows_unread;
  sum->pages_cached += now.pages_cached - before.pages_cached;
  sum->pages_read += now.pages_read - before.pages_read;
  sum->bytes_read += now.bytes_read - before.bytes_read;
  sum->wait_seconds += now.wait_seconds - before.wait_seconds;
  if (now.rows_read > before.rows_read) sum->unread_mass = now.unread_mass;
  if (now.num_samples > before.num_samples) {
    sum->sampled_unread_mass = now.sampled_unread_mass;
    sum->num_samples += now.num_samples - before.num_samples;
  }
}

// Guesses counts guessed tokens, and those among them that became part of a text.
struct Guesses {
  uint64_t drafted = 0;
  uint64_t accepted = 0;
};

// Figures describes the server after the last step. Totals count since the server began.
struct Figures {
  size_t waiting = 0;
  size_t reading = 0;
  size_t decoding = 0;
  size_t parked = 0;
  uint64_t prompt_tokens = 0;  // prompt tokens read, total
  uint64_t generated_tokens = 0;
  uint64_t prefix_queries = 0;    // prompt tokens looked up by prefix caching, total
  uint64_t prefix_hits = 0;       // lookups' tokens that were found
  uint64_t prefixes_demoted = 0;  // cached prompts moved to T1 for requests, total
  uint64_t prefixes_dropped = 0;
  size_t prefixes = 0;
  uint64_t prefix_bytes = 0;  // see PrefixCache::bytes()
  uint64_t steps = 0;
  uint64_t parks = 0;
  uint64_t resumes = 0;
  uint64_t share_changes = 0;
  uint64_t t0_refusals = 0;               // steps refused because T0 was full
  std::map<std::string, uint64_t> ended;  // number of ended jobs by finish reason
  // Sums the times of jobs that have ended.
  double prompt_seconds = 0;
  double decode_seconds = 0;
  uint64_t decoded_tokens = 0;    // answer tokens without each job's first one
  uint64_t most_tokens = 0;       // the longest prompt with its answer, in tokens
  uint64_t stepped_jobs = 0;      // sum of the batch sizes of all steps
  SelectionAccounting selection;  // totals; the means are of the last job that selected
  // Counts the tokens that speculative decoding guessed in jobs that have ended, by source.
  std::map<std::string, Guesses> guesses = {{"lookup", {}}};
  Histogram queue, first_token, between_tokens, whole;
  std::array<ArenaAccounting, kNumTiers> arenas = {};
  // Counts the rows of all sessions, in (layer, kv head, token) triples.
  std::array<int64_t, kNumTiers> rows = {};
  double tokens_per_answer = 0;         // moving mean over jobs
  double seconds_per_step = 0;          // moving mean
  double seconds_per_prompt_token = 0;  // moving mean
  double predicted_wait = 0;            // seconds that a new request would wait
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_FIGURES_H_
