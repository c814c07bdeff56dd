// Schedule plans the next action of a server as a pure function of its state: which requests start,
// are parked (preempted), resume or end, and which tokens are computed. It uses no clock, no engine
// and no memory, so that a trace can be replayed.
//
// Order of starting: requests with a lower `priority` number start first. Among equals, a parked
// request resumes before others start; then comes the owner with the least work (FairShares), and
// among one owner's requests the one that arrived first. A waiting request improves by one priority
// every kAgeSeconds, up to the lowest number of all requests present, so that none starves. Prompts
// are read in the same order.
//
// Urgency: among running requests, a lower `priority` is more urgent, and among equals the one that
// arrived first. When memory is short, the least urgent request is parked first, regardless of its
// owner.
//
// Memory: a request's part of T0 consists of a least part (its prompt, its window, the tokens until
// the policy's next decision) and an elastic part, whose rows T1 holds as well. All elastic parts
// shrink by the same factor before any request is parked. Only T0's share changes, which changes no
// bit of an answer.
#ifndef EBB_SERVER_ENGINE_SCHEDULE_H_
#define EBB_SERVER_ENGINE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "src/server/engine/fair_shares.h"

namespace ebb::server {

using JobId = uint64_t;

// kAgeSeconds is the waiting time in seconds that improves a request's priority by one.
inline constexpr double kAgeSeconds = 20;

enum class Phase {
  kWaiting,   // has no session yet
  kReading,   // reads its prompt
  kDecoding,  // has a token that the next step appends
  kParked,    // preempted: its session has all rows in T1
};

// Stepping selects whether a request's steps may be batched.
enum class Stepping {
  kTogether,  // in a batch with other requests
  kAlone,     // in its own steps, because its lossless session drafts
};

struct JobState {
  JobId id = 0;
  OwnerId owner = 0;
  double served = 0;   // the work of its owner; see FairShares
  int priority = 0;    // lower is more urgent
  double arrival = 0;  // seconds
  double waited = 0;   // seconds in the queue or parked
  std::optional<double> deadline = {};
  // Holds the time before which a waiting request must not start; others may start before it.
  std::optional<double> held_until = {};
  bool cancelled = false;
  Phase phase = Phase::kWaiting;
  bool was_reading = false;  // if kParked: it had not read all of its prompt
  Stepping stepping = Stepping::kTogether;
  int num_parks = 0;

  // Count bytes of T0. `start_bytes`: needed to start. `least_bytes`: needed while the request
  // runs. `held_bytes`: the pages that it has in T0 and T1 together, plus the pages that it may add
  // in the next steps.
  uint64_t start_bytes = 0;
  uint64_t least_bytes = 0;
  uint64_t held_bytes = 0;
  // Are the most bytes of T1 and T2 that the request will use.
  uint64_t t1_bytes = 0;
  uint64_t t2_bytes = 0;
  bool is_elastic = false;  // its share of T0 can change
  bool can_park = false;    // it has a T1
  double share = 1;         // current share of T0, 0 to 1
  double most_share = 1;    // the share that it may have at most

  // Counts the prompt tokens that are not read yet, for predictions.
  size_t prompt_left = 0;
  size_t tokens_left = 0;  // expected answer tokens
};

inline constexpr uint64_t kNoCap = std::numeric_limits<uint64_t>::max();

struct MachineState {
  uint64_t t0_bytes = kNoCap;  // caps of the tiers; kNoCap: none
  uint64_t t1_bytes = kNoCap;
  uint64_t t2_bytes = kNoCap;
  size_t most_running = std::numeric_limits<size_t>::max();
  bool t0_refused = false;  // the last step was refused because T0 was full
  // Is true if a request could not start for lack of memory, and no request has ended since.
  bool start_refused = false;
  // Holds measured means.
  double seconds_per_prompt_token = 0;
  double seconds_per_step = 0;
};

struct State {
  MachineState machine;
  std::vector<JobState> jobs;
};

enum class EndReason {
  kCancelled,  // the client has disconnected
  kDeadline,
  kNoRoom,  // it runs alone, and T0 is full
};

struct Plan {
  struct End {
    JobId id = 0;
    EndReason reason = EndReason::kCancelled;
    friend bool operator==(const End&, const End&) = default;
  };
  struct Share {
    JobId id = 0;
    double share = 0;
    friend bool operator==(const Share&, const Share&) = default;
  };
  // Lists the actions of the plan, in this order.
  std::vector<End> ends;
  std::vector<JobId> parks;
  std::vector<Share> shares;  // only shares that shrink; larger ones are set after `starts`
  std::vector<JobId> resumes;
  std::vector<JobId> starts;
  std::vector<Share> grown_shares;
  // Describe the step: it appends one token of each job in `decodes` and reads a chunk of the
  // prompt of `reader`.
  std::vector<JobId> decodes;
  std::optional<JobId> reader;
  // Holds the time at which to plan again if no message comes; nullopt: only a message changes the
  // plan.
  std::optional<double> wake_at;

  [[nodiscard]] bool HasStep() const { return !decodes.empty() || reader.has_value(); }
  // Returns whether the plan does nothing, so that the loop may sleep until `wake_at` or a message.
  [[nodiscard]] bool IsIdle() const {
    return !HasStep() && ends.empty() && parks.empty() && shares.empty() && resumes.empty() &&
           starts.empty() && grown_shares.empty();
  }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Returns the plan for `state` at time `now` (seconds). The same state and time give the same plan.
// Jobs not in Plan::ends remain.
[[nodiscard]] Plan Next(const State& state, double now);

// WaitCause is the reason why a job cannot start or resume.
enum class WaitCause {
  kTurn,     // another job comes first
  kRunning,  // as many jobs run as may
  kT0,       // T0 lacks room; the next two: T1, T2
  kT1,
  kT2,
  kStoredPrompt,  // its prompt is looked up in the store
};

// Wait describes the reason why a job waits or stays parked.
struct Wait {
  JobId id = 0;
  WaitCause cause = WaitCause::kTurn;
  uint64_t bytes = 0;  // that the tier lacks; 0 for causes that are no tier
  JobId behind = 0;    // kTurn: the job that comes first
  friend bool operator==(const Wait&, const Wait&) = default;
};

// Returns why the jobs wait that do not run after the plan of Next(), one entry for each.
[[nodiscard]] std::vector<Wait> FindWaits(const State& state, double now);

// Returns whether the caps are large enough for the request to run alone.
[[nodiscard]] bool EverFits(const JobState& job, const MachineState& machine);

// Predicts the seconds until a request that arrives now starts: the remaining work of all jobs
// divided by the number that run at once.
[[nodiscard]] double PredictWait(const State& state);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SCHEDULE_H_
