// Invariants:
// 1. The least parts of all running requests fit into T0's cap, or a request is parked.
// 2. The most urgent running request is never parked, so that it ends and frees its memory.
// 3. No request starts or resumes before those that come earlier in the order, so that none
//    starves.
#include "src/server/engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

// kShareStep: shares of T0 are multiples of it.
constexpr double kShareStep = 1.0 / 8;
// kGrowth is the least growth of a share, unless all shares become full: otherwise rows would move
// between T0 and T1 with every token.
constexpr double kGrowth = 1.0 / 4;
// kManyParks is the number of parkings after which a request is parked only if no other one can be.
constexpr int kManyParks = 3;

// Entry is a job and its state in the plan.
struct Entry {
  const JobState* job = nullptr;
  Phase phase = Phase::kWaiting;
  double share = 1;  // its share of T0 in the plan
};

bool Runs(const Entry& entry) {
  return entry.phase == Phase::kReading || entry.phase == Phase::kDecoding;
}
bool HasSession(const Entry& entry) { return entry.phase != Phase::kWaiting; }

bool IsMoreUrgent(const JobState& a, const JobState& b) {
  return std::tie(a.priority, a.arrival, a.id) < std::tie(b.priority, b.arrival, b.id);
}

uint64_t Less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

class Planner {
 public:
  Planner(const State& state, double now) : state_(state), now_(now) {}

  Plan Make() {
    EndJobs();
    Order();
    if (state_.machine.t0_refused) {
      MakeRoom();
    } else {
      ParkWhatIsTooMuch();
    }
    // If the last start was refused for lack of memory, first halves the shares of others.
    const bool may_admit = !state_.machine.start_refused || HalveShares();
    if (plan_.parks.empty() && !state_.machine.t0_refused && may_admit) Admit();
    SetShares();
    Step();
    return std::move(plan_);
  }

  // Returns why jobs wait. REQUIRES: after Make().
  [[nodiscard]] std::vector<Wait> FindWaits() {
    const Entry* const next = NextToAdmit();
    std::vector<Wait> waits;
    for (const Entry& entry : entries_) {
      if (Runs(entry)) continue;
      if (IsHeld(*entry.job)) {
        waits.push_back({.id = entry.job->id, .cause = WaitCause::kStoredPrompt});
      } else if (next != nullptr && next != &entry) {
        waits.push_back({.id = entry.job->id, .behind = next->job->id});
      } else {
        // A refused step or start found less room than the sums promise.
        const Wait refused = {entry.job->id, WaitCause::kT0, NeededT0(entry)};
        waits.push_back(WaitOf(entry, LeastOfRunning(), NumRunning()).value_or(refused));
      }
    }
    return waits;
  }

 private:
  void EndJobs() {
    for (const JobState& job : state_.jobs) {
      if (job.cancelled) {
        plan_.ends.push_back({job.id, EndReason::kCancelled});
      } else if (job.deadline.has_value() && *job.deadline <= now_) {
        plan_.ends.push_back({job.id, EndReason::kDeadline});
      } else {
        entries_.push_back({&job, job.phase, job.share});
        if (job.deadline.has_value()) WakeAt(*job.deadline);
        if (IsHeld(job)) WakeAt(*job.held_until);
      }
    }
  }

  void WakeAt(double time) { plan_.wake_at = std::min(plan_.wake_at.value_or(time), time); }

  // Returns whether a waiting job must not start before its held_until.
  [[nodiscard]] bool IsHeld(const JobState& job) const {
    return job.phase == Phase::kWaiting && job.held_until.has_value() && *job.held_until > now_;
  }

  void Order() {
    std::ranges::sort(entries_,
                      [](const Entry& a, const Entry& b) { return IsMoreUrgent(*a.job, *b.job); });
    for (const Entry& entry : entries_) served_[entry.job->owner] = entry.job->served;
    if (!entries_.empty()) lowest_priority_ = entries_.front().job->priority;
  }

  [[nodiscard]] uint64_t LeastOfRunning() const {
    uint64_t bytes = 0;
    for (const Entry& entry : entries_) {
      if (Runs(entry)) bytes += LeastOf(entry);
    }
    return bytes;
  }
  [[nodiscard]] size_t NumRunning() const {
    return static_cast<size_t>(std::ranges::count_if(entries_, Runs));
  }
  [[nodiscard]] bool HoldsT0(uint64_t bytes) const { return bytes <= state_.machine.t0_bytes; }

  // Returns the running job to park: the least urgent one that can be parked, preferably one parked
  // fewer than kManyParks times, and never the most urgent one. Null: there is none.
  [[nodiscard]] Entry* Victim() {
    Entry* victim = nullptr;
    bool is_first = true;
    for (Entry& entry : entries_) {
      if (!Runs(entry)) continue;
      const bool most_urgent = std::exchange(is_first, false);
      if (most_urgent || !entry.job->can_park) continue;
      const bool immune = entry.job->num_parks >= kManyParks;
      if (victim == nullptr || !immune || victim->job->num_parks >= kManyParks) victim = &entry;
    }
    return victim;
  }

  bool ParkOne() {
    Entry* victim = Victim();
    if (victim == nullptr) return false;
    plan_.parks.push_back(victim->job->id);
    victim->phase = Phase::kParked;
    return true;
  }

  void ParkWhatIsTooMuch() {
    while (!HoldsT0(LeastOfRunning()) && ParkOne()) {
    }
  }

  // Halves the elastic part of T0 of every running job. Returns false if no job has one.
  bool HalveShares() {
    bool any = false;
    for (Entry& entry : entries_) {
      if (!Runs(entry) || !entry.job->is_elastic || entry.share <= 0) continue;
      const double half = std::floor(entry.share / 2 / kShareStep) * kShareStep;
      plan_.shares.push_back({entry.job->id, half});
      entry.share = half;
      any = true;
    }
    return any;
  }

  // Frees T0 after a step was refused because T0 was full: halves the elastic parts; if there are
  // none, parks a job; if none can be parked, ends one.
  void MakeRoom() {
    if (HalveShares() || ParkOne()) return;
    // No job can shrink or be parked: the least urgent one ends.
    const auto last = std::find_if(entries_.rbegin(), entries_.rend(), Runs);
    if (last == entries_.rend()) return;
    plan_.ends.push_back({last->job->id, EndReason::kNoRoom});
    entries_.erase(std::next(last).base());
  }

  // Returns the bytes of T0 that a request needs to start or to resume. A resumed one needs its
  // whole least part, because it would be parked again soon otherwise.
  [[nodiscard]] static uint64_t NeededT0(const Entry& entry) {
    const JobState& job = *entry.job;
    return job.phase == Phase::kWaiting ? job.start_bytes
                                        : std::max(job.least_bytes, job.start_bytes);
  }
  // Returns the least bytes of T0 that a job needs while it runs, or will need if the plan starts
  // or resumes it.
  [[nodiscard]] static uint64_t LeastOf(const Entry& entry) {
    return entry.phase == entry.job->phase ? entry.job->least_bytes : NeededT0(entry);
  }

  // Returns what `entry` lacks to start or resume while `num_running` jobs need at least `least`
  // bytes of T0; nothing if it may run.
  [[nodiscard]] std::optional<Wait> WaitOf(const Entry& entry, uint64_t least,
                                           size_t num_running) const {
    const MachineState& machine = state_.machine;
    const JobState& job = *entry.job;
    if (num_running >= machine.most_running) return Wait{job.id, WaitCause::kRunning};
    if (!HasSession(entry)) {
      uint64_t t1 = job.t1_bytes, t2 = job.t2_bytes;
      for (const Entry& other : entries_) {
        if (!HasSession(other)) continue;
        t1 += other.job->t1_bytes;
        t2 += other.job->t2_bytes;
      }
      if (t1 > machine.t1_bytes) return Wait{job.id, WaitCause::kT1, t1 - machine.t1_bytes};
      if (t2 > machine.t2_bytes) return Wait{job.id, WaitCause::kT2, t2 - machine.t2_bytes};
    }
    const uint64_t lacking = Less(least + NeededT0(entry), machine.t0_bytes);
    // A request may always start if no other one runs.
    if (num_running == 0 || lacking == 0) return std::nullopt;
    return Wait{job.id, WaitCause::kT0, lacking};
  }

  [[nodiscard]] bool MayRun(const Entry& entry, uint64_t least, size_t num_running) const {
    return !WaitOf(entry, least, num_running).has_value();
  }

  // Returns the priority of a request after aging by its waiting time.
  [[nodiscard]] int AgedPriority(const JobState& job) const {
    const double aged = job.priority - std::floor(job.waited / kAgeSeconds);
    return static_cast<int>(std::max<double>(aged, lowest_priority_));
  }

  // Parks running jobs with a higher priority number than `entry` (less urgent ones) until there is
  // room for it. If that is not enough, parks none and returns false.
  bool ParkFor(const Entry& entry) {
    uint64_t least = LeastOfRunning();
    size_t num_running = NumRunning();
    std::vector<Entry*> victims;
    for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
      if (MayRun(entry, least, num_running)) break;
      if (it->job->priority <= entry.job->priority) break;
      if (!Runs(*it) || !it->job->can_park || it->job->num_parks >= kManyParks) continue;
      // A job that has aged to the priority of `entry`, or that this plan starts, is not parked for
      // it: they would preempt each other in turns.
      if (AgedPriority(*it->job) <= AgedPriority(*entry.job) || it->phase != it->job->phase)
        continue;
      least -= LeastOf(*it);
      --num_running;
      victims.push_back(&*it);
    }
    if (victims.empty() || !MayRun(entry, least, num_running)) return false;
    for (Entry* victim : victims) {
      plan_.parks.push_back(victim->job->id);
      victim->phase = Phase::kParked;
    }
    return true;
  }

  // Returns whether `a` should start or resume before `b`.
  [[nodiscard]] bool IsBefore(const Entry& a, const Entry& b) const {
    const auto rank = [&](const Entry& entry) {
      const JobState& job = *entry.job;
      return std::tuple(AgedPriority(job), !HasSession(entry), served_.at(job.owner), job.arrival,
                        job.id);
    };
    return rank(a) < rank(b);
  }

  // Returns the next job to start or resume, in order, that this plan has not parked; null: none.
  [[nodiscard]] Entry* NextToAdmit() {
    Entry* next = nullptr;
    for (Entry& entry : entries_) {
      if (Runs(entry) || IsHeld(*entry.job)) continue;
      if (std::ranges::find(plan_.parks, entry.job->id) != plan_.parks.end()) continue;
      if (next == nullptr || IsBefore(entry, *next)) next = &entry;
    }
    return next;
  }

  void Admit() {
    while (Entry* const entry = NextToAdmit()) {
      if (!MayRun(*entry, LeastOfRunning(), NumRunning()) && !ParkFor(*entry)) break;
      const JobState& job = *entry->job;
      if (HasSession(*entry)) {
        plan_.resumes.push_back(job.id);
        entry->phase = job.was_reading ? Phase::kReading : Phase::kDecoding;
      } else {
        plan_.starts.push_back(job.id);
        entry->phase = Phase::kReading;
      }
      // Charges the owner for the predicted work now, so that jobs started by one plan alternate
      // between owners.
      const auto prompt = static_cast<double>(job.prompt_left);
      served_[job.owner] +=
          CostOf(prompt, 0) + CostOf(static_cast<double>(job.tokens_left), prompt);
    }
  }

  // Sets the share of all jobs to the largest one that fits into T0 together with the least parts.
  void SetShares() {
    if (state_.machine.t0_bytes == kNoCap) return;
    uint64_t least = 0, elastic = 0;
    for (const Entry& entry : entries_) {
      if (!Runs(entry)) continue;
      const JobState& job = *entry.job;
      least += LeastOf(entry);
      if (job.is_elastic) elastic += Less(job.held_bytes, job.least_bytes);
    }
    const uint64_t left = Less(state_.machine.t0_bytes, least);
    const double fair =
        left >= elastic
            ? 1
            : std::floor(static_cast<double>(left) / static_cast<double>(elastic) / kShareStep) *
                  kShareStep;
    for (Entry& entry : entries_) {
      const JobState& job = *entry.job;
      if (!Runs(entry) || !job.is_elastic || job.phase == Phase::kWaiting) continue;
      const double share = std::min(fair, job.most_share);
      const bool may_grow = share > entry.share && plan_.parks.empty() &&
                            !state_.machine.t0_refused && !state_.machine.start_refused;
      if (share < entry.share) {
        SetShrunkShare(job.id, share);
      } else if (may_grow && (share >= entry.share + kGrowth || fair >= 1)) {
        plan_.grown_shares.push_back({job.id, share});
      }
    }
  }

  void SetShrunkShare(JobId id, double share) {
    const auto planned = std::ranges::find(plan_.shares, id, &Plan::Share::id);
    if (planned == plan_.shares.end()) {
      plan_.shares.push_back({id, share});
    } else {
      planned->share = share;
    }
  }

  void Step() {
    // Restores the owners' sums of work, because the work that Admit() charged was only predicted.
    for (const Entry& entry : entries_) served_[entry.job->owner] = entry.job->served;
    const Entry* reader = nullptr;
    for (const Entry& entry : entries_) {
      if (entry.phase == Phase::kDecoding) plan_.decodes.push_back(entry.job->id);
      if (entry.phase != Phase::kReading) continue;
      if (reader == nullptr || IsBefore(entry, *reader)) reader = &entry;
    }
    if (reader != nullptr) plan_.reader = reader->job->id;
    if (plan_.HasStep()) plan_.wake_at = now_;
  }

  const State& state_;
  const double now_;
  std::vector<Entry> entries_;  // most urgent first, without the jobs that end
  std::map<OwnerId, double> served_;
  int lowest_priority_ = 0;  // the lowest (most urgent) number of all jobs
  Plan plan_;
};

}  // namespace

Plan Next(const State& state, double now) { return Planner(state, now).Make(); }

std::vector<Wait> FindWaits(const State& state, double now) {
  Planner planner(state, now);
  static_cast<void>(planner.Make());
  return planner.FindWaits();
}

bool EverFits(const JobState& job, const MachineState& machine) {
  return job.least_bytes <= machine.t0_bytes && job.start_bytes <= machine.t0_bytes &&
         job.t1_bytes <= machine.t1_bytes && job.t2_bytes <= machine.t2_bytes;
}

double PredictWait(const State& state) {
  double seconds = 0;
  size_t num_at_once = 0;
  bool somebody_waits = false;
  for (const JobState& job : state.jobs) {
    seconds += static_cast<double>(job.prompt_left) * state.machine.seconds_per_prompt_token +
               static_cast<double>(job.tokens_left) * state.machine.seconds_per_step;
    const bool runs = job.phase == Phase::kReading || job.phase == Phase::kDecoding;
    num_at_once += runs ? 1 : 0;
    somebody_waits = somebody_waits || !runs;
  }
  if (!somebody_waits && num_at_once < state.machine.most_running) return 0;
  return seconds / static_cast<double>(std::max<size_t>(num_at_once, 1));
}

}  // namespace ebb::server
