// Records one prompt of `ebb-lab profile`: the parts of every decode step, and how much attention
// every token got.
#ifndef EBB_APPS_PROFILE_RUN_H_
#define EBB_APPS_PROFILE_RUN_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/lab/profile/recurrence.h"
#include "apps/lab/profile/top_half.h"
#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/report.h"

namespace ebb::cli {

// kImportantShare is the share of the tokens with any attention that form a step's important set:
// the fifth with the most.
inline constexpr double kImportantShare = 0.2;

// StepTimes holds the seconds of a step by part.
struct StepTimes {
  double embedding = 0;
  double matmul = 0;
  double attention = 0;
  double other = 0;     // of the graph, and of preparing it
  double io_wait = 0;   // for T1's file
  double policy = 0;    // scoring, placing, evicting, compacting
  double moves = 0;     // between tiers
  double sampling = 0;  // and the hash of the logits
  [[nodiscard]] double Total() const {
    return embedding + matmul + attention + other + io_wait + policy + moves + sampling;
  }
};

// ProfiledStep holds the figures of one decode step.
struct ProfiledStep {
  StepTimes times;
  MoveAccounting moves;
  double overlap =
      -1;  // share of the important set that was important in the step before; -1: none
  Ledger::RowsPerTier rows = {};
};

// ProfiledRun holds the figures of one prompt and its answer.
struct ProfiledRun {
  int prompt_tokens = 0;
  GenerateResult result;
  std::vector<double> importance;  // by position: attention over all decode steps; sums to their
                                   // number
  std::vector<int> intervals;      // by position: RecurrenceTracker::intervals()
  std::array<TopHalfHistory::Kept, TopHalfHistory::kDistances> top_half = {};
  std::vector<ProfiledStep> steps;  // of decoding
  CacheAccounting cache;            // at the end
  std::vector<double> retained;     // at the end: of each group, the share of tokens that are alive
  std::vector<Token> tokens;
  std::vector<Explanation> explanations;  // of the token of --why
};

// RunRecorder collects a ProfiledRun from a session. Create it first and pass the session's options
// to Ask(), then Bind() it to the opened session.
class RunRecorder {
 public:
  RunRecorder() = default;
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // Adds the signals that the recorder needs to `options`. REQUIRES: the recorder outlives the
  // session.
  void Ask(SessionOptions* options);
  void Bind(const Session& session) { session_ = &session; }
  // Ends the record of a step. Call it from GenerateOptions::on_token, after everything else there,
  // so that its time counts for the step.
  void OnToken();
  // Completes the run. Call it after the generation; no OnToken() followed its last step.
  void Finish();

  // Returns the run. REQUIRES: the caller sets prompt_tokens and result before Finish().
  [[nodiscard]] ProfiledRun& run() { return run_; }

 private:
  using Clock = std::chrono::steady_clock;
  void OnSignals(int group, std::span<const Position> positions, const GroupSignals& signals,
                 const StepSignals& step);
  void EndSignals();
  void EndStep(double seconds_since_begin);

  const Session* session_ = nullptr;
  ProfiledRun run_;
  std::vector<double> mass_;            // by position, of this step
  std::vector<uint8_t> important_;      // by position, of the step before
  std::vector<uint8_t> important_now_;  // by position
  size_t num_important_ = 0;
  double overlap_ = -1;
  RecurrenceTracker recurrence_;
  TopHalfHistory top_half_;
  int num_groups_ = 0;           // that were seen
  double observer_seconds_ = 0;  // of this step, to be left out
  Clock::time_point begin_;      // of the step under way
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_RUN_H_
