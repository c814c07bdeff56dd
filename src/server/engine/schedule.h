// The next action of a server, as a pure function of its state: which requests begin, give up T0,
// rest and go on, and which tokens are computed. No clock, no engine and no memory is touched here,
// so that a trace can be replayed.
//
// Turns: requests of a lower `priority` begin first. Among equals a parked one goes on before
// others begin; then comes the owner with the least work (FairShares), and of one owner's the one
// that came first. A waiting request rises one priority every kAgeSeconds, up to the lowest number
// of all that are there, so that none starves. Prompts are read in the same order.
//
// Urgency: of those that run, a lower `priority` is more urgent, among equals the one that came
// first. The least urgent request is parked first when memory is short, independently of its
// owner's other requests.
//
// Memory: a request's part of T0 consists of a least part (its prompt, its window, the tokens until
// the policy's next decision), and an elastic one, whose rows T1 holds as well as T0. All elastic
// parts shrink alike before any request is parked, and only T0's share changes, so that no bit of
// any answer does.
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

// Seconds of waiting that raise a request's priority by one.
inline constexpr double kAgeSeconds = 20;

enum class Phase {
  kWaiting,   // has no session
  kReading,   // of its prompt some tokens are left
  kDecoding,  // has a token that is to be appended
  kParked,    // has a session whose rows are all in T1
};

// How a request takes part in steps.
enum class Stepping {
  kTogether,  // in a batch with others
  kAlone,     // a lossless session, which drafts only by itself
};

struct JobState {
  JobId id = 0;
  OwnerId owner = 0;
  double served = 0;   // work that its owner has had, as FairShares counts it
  int priority = 0;    // lower is more urgent
  double arrival = 0;  // seconds
  double waited = 0;   // seconds in all, for its turn or parked
  std::optional<double> deadline = {};
  std::optional<double> held_until = {};  // of kWaiting: it begins no sooner, and lets others pass
  bool cancelled = false;
  Phase phase = Phase::kWaiting;
  bool was_reading = false;  // of kParked: when it was parked
  Stepping stepping = Stepping::kTogether;
  int num_parks = 0;

  // Bytes of T0: to begin with; as long as it runs, at the least; of its pages, T0 and T1
  // together, and may take within the next steps.
  uint64_t start_bytes = 0;
  uint64_t least_bytes = 0;
  uint64_t held_bytes = 0;
  // Most bytes of T1 and T2 that it will take.
  uint64_t t1_bytes = 0;
  uint64_t t2_bytes = 0;
  bool is_elastic = false;  // its share of T0 can change
  bool can_park = false;    // it has a T1
  double share = 1;         // of T0 now
  double most_share = 1;    // as it was asked for

  // For predictions.
  size_t prompt_left = 0;
  size_t tokens_left = 0;  // that it will probably generate
};

inline constexpr uint64_t kNoCap = std::numeric_limits<uint64_t>::max();

struct MachineState {
  uint64_t t0_bytes = kNoCap;  // caps
  uint64_t t1_bytes = kNoCap;
  uint64_t t2_bytes = kNoCap;
  size_t most_running = std::numeric_limits<size_t>::max();
  bool t0_refused = false;  // the last step found no room in T0
  // A request that should have begun found no room, and none has ended since.
  bool start_refused = false;
  // As measured.
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
  kNoRoom,  // it runs alone, and T0 holds no more of it
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
  // To be carried out in this order.
  std::vector<End> ends;
  std::vector<JobId> parks;
  std::vector<Share> shares;  // that shrink; those that grow come behind `starts`
  std::vector<JobId> resumes;
  std::vector<JobId> starts;
  std::vector<Share> grown_shares;
  // The step: tokens of these, and a piece of the prompt of `reader`.
  std::vector<JobId> decodes;
  std::optional<JobId> reader;
  // When nothing is to be done before; nothing: until something comes.
  std::optional<double> wake_at;

  [[nodiscard]] bool HasStep() const { return !decodes.empty() || reader.has_value(); }
  // It changes nothing, and would not do so before `wake_at`, if nothing comes.
  [[nodiscard]] bool IsIdle() const {
    return !HasStep() && ends.empty() && parks.empty() && shares.empty() && resumes.empty() &&
           starts.empty() && grown_shares.empty();
  }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Every job that the plan does not end is still there. The same state and time give the same plan.
[[nodiscard]] Plan Next(const State& state, double now);

// Whether a request can ever run: by itself, within the caps.
[[nodiscard]] bool EverFits(const JobState& job, const MachineState& machine);

// Seconds until a request that comes now begins: the work of all that are there, shared by as many
// as run at once.
[[nodiscard]] double PredictWait(const State& state);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SCHEDULE_H_
