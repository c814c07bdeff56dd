// RunRecorder records one prompt of `ebb-lab profile`: the parts of every decode step, and how much
// attention every token got.
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

// kImportantShare is the share of tokens that are important in a step: the fifth with the most
// attention, of those with any.
inline constexpr double kImportantShare = 0.2;

// StepTimes has the seconds of each part of a step.
struct StepTimes {
  double embedding = 0;
  double matmul = 0;
  double attention = 0;
  double other = 0;     // rest of the graph, and its preparation
  double io_wait = 0;   // waiting for T1's file
  double policy = 0;    // scoring, placing, evicting, compacting
  double moves = 0;     // moving rows between tiers
  double sampling = 0;  // also the hash of the logits
  [[nodiscard]] double Total() const {
    return embedding + matmul + attention + other + io_wait + policy + moves + sampling;
  }
};

// ProfiledStep is the record of one decode step.
struct ProfiledStep {
  StepTimes times;
  MoveAccounting moves;
  double overlap = -1;  // share of important tokens that were important before; -1: no step before
  Ledger::RowsPerTier rows = {};
};

// ProfiledRun is the record of one prompt and its answer.
struct ProfiledRun {
  int prompt_tokens = 0;
  GenerateResult result;
  std::vector<double> importance;  // [positions]: attention, summed over all decode steps
  std::vector<int> intervals;      // [positions]: RecurrenceTracker::intervals()
  std::array<TopHalfHistory::Kept, TopHalfHistory::kDistances> top_half = {};
  std::vector<ProfiledStep> steps;  // decode steps
  CacheAccounting cache;            // at the end of the run
  std::vector<double> retained;     // [groups]: share of tokens kept at the end
  std::vector<Token> tokens;
  std::vector<Explanation> explanations;  // decisions about the token of --why
};

// RunRecorder collects a ProfiledRun from a session. Make it first, pass the session's options to
// Ask(), open the session, and pass it to Bind().
class RunRecorder {
 public:
  RunRecorder() = default;
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // Adds the signals that the recorder needs to `options`. REQUIRES: the recorder outlives the
  // session.
  void Ask(SessionOptions* options);
  void Bind(const Session& session) { session_ = &session; }
  // Ends the record of a step. Must be called from GenerateOptions::on_token, after everything else
  // there, so that its time is counted in the step.
  void OnToken();
  // Completes the run. Must be called after the generation, because the last step has no OnToken().
  void Finish();

  // Returns the run. REQUIRES: before Finish(), the caller sets prompt_tokens and result in it.
  [[nodiscard]] ProfiledRun& run() { return run_; }

 private:
  using Clock = std::chrono::steady_clock;
  void OnSignals(int group, std::span<const Position> positions, const GroupSignals& signals,
                 const StepSignals& step);
  void EndSignals();
  void EndStep(double seconds_since_begin);

  const Session* session_ = nullptr;
  ProfiledRun run_;
  std::vector<double> mass_;            // [positions], in the current step
  std::vector<uint8_t> important_;      // [positions], in the step before
  std::vector<uint8_t> important_now_;  // [positions], in the current step
  size_t num_important_ = 0;
  double overlap_ = -1;
  RecurrenceTracker recurrence_;
  TopHalfHistory top_half_;
  int num_groups_ = 0;           // groups seen in the current step
  double observer_seconds_ = 0;  // own time in the current step, not counted
  Clock::time_point begin_;      // start of the current step
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_RUN_H_
