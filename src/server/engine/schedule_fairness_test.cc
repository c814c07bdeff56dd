// Tests fairness between owners on a simulated machine that carries plans out: who starts, whose
// prompt is read, and how long requests wait.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/server/engine/schedule.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;

struct Arrival {
  double at = 0;  // round in which it arrives
  OwnerId owner = 0;
  size_t prompt = 1;
  size_t tokens = 1;
  int priority = 0;
};

// Machine simulates a server without memory limits. In each round it reads a chunk of a prompt and
// decodes a token of each running request.
class Machine {
 public:
  static constexpr size_t kPiece = 4;  // prompt tokens read in a round

  Machine(size_t most_running, std::vector<Arrival> arrivals) : arrivals_(std::move(arrivals)) {
    state_.machine.most_running = most_running;
    std::ranges::stable_sort(arrivals_, {}, &Arrival::at);
  }

  // Runs one round. `check` is called with the plan and the state for which it was made.
  template <typename Check>
  void Round(Check check) {
    for (; next_ < arrivals_.size() && arrivals_[next_].at <= now_; ++next_) Take(arrivals_[next_]);
    std::set<OwnerId> waiting;
    for (const JobState& job : state_.jobs) {
      if (job.phase != Phase::kDecoding) waiting.insert(job.owner);
    }
    shares_.SetWaiting(waiting);
    for (JobState& job : state_.jobs) {
      job.served = shares_.served(job.owner);
      if (job.phase == Phase::kWaiting) job.waited = now_ - job.arrival;
    }
    const Plan plan = Next(state_, now_);
    check(state_, plan);
    for (const JobId id : plan.starts) {
      Find(id)->phase = Phase::kReading;
      waited_[id] = now_ - Find(id)->arrival;
    }
    for (const JobId id : plan.decodes) Decode(id);
    if (plan.reader.has_value()) Read(*plan.reader);
    ++now_;
  }
  void Round() {
    Round([](const State&, const Plan&) {});
  }
  void RunToTheEnd() {
    while (!state_.jobs.empty() || next_ < arrivals_.size()) Round();
  }

  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] bool is_over() const { return state_.jobs.empty() && next_ == arrivals_.size(); }
  [[nodiscard]] double work(OwnerId owner) const {
    const auto found = work_.find(owner);
    return found == work_.end() ? 0 : found->second;
  }
  // Returns how many rounds each started request waited, by id; ids count from 1 in order of
  // arrival.
  [[nodiscard]] const std::map<JobId, double>& waited() const { return waited_; }
  [[nodiscard]] const std::map<JobId, double>& ended() const { return ended_; }
  [[nodiscard]] bool Waits(OwnerId owner) const {
    return std::ranges::any_of(state_.jobs, [&](const JobState& job) {
      return job.owner == owner && job.phase == Phase::kWaiting;
    });
  }

 private:
  JobState* Find(JobId id) { return &*std::ranges::find(state_.jobs, id, &JobState::id); }
  void Take(const Arrival& arrival) {
    state_.jobs.push_back({.id = ++last_id_,
                           .owner = arrival.owner,
                           .priority = arrival.priority,
                           .arrival = arrival.at,
                           .prompt_left = arrival.prompt,
                           .tokens_left = arrival.tokens});
  }
  void Charge(const JobState& job, double cost) {
    shares_.Charge(job.owner, cost);
    work_[job.owner] += cost;
  }
  void Read(JobId id) {
    JobState& job = *Find(id);
    const size_t size = std::min(job.prompt_left, kPiece);
    Charge(job, static_cast<double>(size));
    job.prompt_left -= size;
    if (job.prompt_left == 0) job.phase = Phase::kDecoding;
  }
  void Decode(JobId id) {
    JobState& job = *Find(id);
    Charge(job, 1);
    if (--job.tokens_left > 0) return;
    ended_[id] = now_;
    std::erase_if(state_.jobs, [&](const JobState& other) { return other.id == id; });
  }

  State state_;
  FairShares shares_;
  std::vector<Arrival> arrivals_;
  size_t next_ = 0;
  JobId last_id_ = 0;
  double now_ = 0;
  std::map<OwnerId, double> work_;
  std::map<JobId, double> waited_, ended_;
};

std::vector<Arrival> Many(size_t count, const Arrival& one) { return {count, one}; }

TEST(ScheduleFairness, OwnersTakeTurnsWithinAPlan) {
  State state;
  state.machine.most_running = 4;
  for (JobId id = 1; id <= 8; ++id) {
    state.jobs.push_back({.id = id,
                          .owner = id <= 6 ? 1u : 2u,
                          .arrival = static_cast<double>(id),
                          .prompt_left = 1,
                          .tokens_left = 10});
  }
  EXPECT_THAT(Next(state, 9).starts, ElementsAre(1, 7, 2, 8));
  // More work was done for the first owner, so the other one goes first.
  for (JobState& job : state.jobs) job.served = job.owner == 1 ? 25 : 0;
  EXPECT_THAT(Next(state, 9).starts, ElementsAre(7, 8, 1, 2));
}

TEST(ScheduleFairness, AParkedRequestGoesOnBeforeAnotherOwnersBegins) {
  State state;
  state.machine.most_running = 1;
  state.jobs = {{.id = 1, .owner = 1, .served = 99, .arrival = 1, .phase = Phase::kParked},
                {.id = 2, .owner = 2, .arrival = 2}};
  EXPECT_THAT(Next(state, 3).resumes, ElementsAre(1));
  EXPECT_TRUE(Next(state, 3).starts.empty());
}

TEST(ScheduleFairness, WhoHasWaitedLongIsNotParkedForWhoHasNot) {
  State state;
  state.machine.most_running = 1;
  state.jobs = {{.id = 1, .priority = 1, .arrival = 1, .phase = Phase::kDecoding, .can_park = true},
                {.id = 2, .priority = -1, .arrival = 2, .can_park = true}};
  EXPECT_THAT(Next(state, 3).parks, ElementsAre(1));
  EXPECT_THAT(Next(state, 3).starts, ElementsAre(2));
  state.jobs[0].waited = 2 * kAgeSeconds;
  EXPECT_TRUE(Next(state, 3).parks.empty());
  EXPECT_TRUE(Next(state, 3).starts.empty());
  // A request that this plan starts is not parked either.
  state.machine.most_running = 2;
  state.machine.t0_bytes = 10;
  state.jobs[0].phase = Phase::kWaiting;
  for (JobState& job : state.jobs) job.start_bytes = job.least_bytes = 6;
  const Plan plan = Next(state, 3);
  EXPECT_EQ(plan.starts.size(), 1u);
  EXPECT_TRUE(plan.parks.empty());
}

TEST(ScheduleFairness, OwnersWhoBothWaitGetEqualWork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Arrival> arrivals;
    constexpr double kMostCost = 16 + 40;
    // The first owner sends five times as many requests, and longer ones.
    for (int i = 0; i < 200; ++i) {
      arrivals.push_back({.owner = 1, .prompt = 1 + random() % 16, .tokens = 1 + random() % 40});
    }
    for (int i = 0; i < 80; ++i) {
      arrivals.push_back({.owner = 2, .prompt = 1 + random() % 8, .tokens = 1 + random() % 20});
    }
    constexpr size_t kRunning = 4;
    Machine machine(kRunning, arrivals);
    double most_apart = 0;
    while (!machine.is_over()) {
      machine.Round();
      if (!machine.Waits(1) || !machine.Waits(2)) continue;
      most_apart = std::max(most_apart, std::abs(machine.work(1) - machine.work(2)));
    }
    EXPECT_GT(machine.work(2), 80);
    EXPECT_LE(most_apart, (kRunning + 1) * kMostCost) << seed;
  }
}

TEST(ScheduleFairness, OneRequestPassesAnothersQueue) {
  for (const OwnerId owner : {1, 2}) {
    std::vector<Arrival> arrivals = Many(100, {.owner = 1, .tokens = 20});
    arrivals.push_back({.at = 50, .owner = owner, .tokens = 20});
    Machine machine(2, arrivals);
    machine.RunToTheEnd();
    const double waited = machine.waited().at(101);
    if (owner == 1) {
      EXPECT_GT(waited, 800);  // waits in its own owner's queue
    } else {
      EXPECT_LE(waited, 22);
    }
  }
}

TEST(ScheduleFairness, APromptIsReadBesideThoseOfAnotherOwner) {
  constexpr size_t kLength = 400;
  std::vector<Arrival> arrivals = Many(10, {.owner = 1, .prompt = kLength});
  arrivals.push_back({.at = 7, .owner = 2, .prompt = kLength});
  Machine machine(20, arrivals);
  machine.RunToTheEnd();
  constexpr double kAlone = kLength / Machine::kPiece;
  EXPECT_LE(machine.ended().at(11), 7 + 2 * kAlone + 3);
  // The prompts of one owner are read one after the other.
  EXPECT_LE(machine.ended().at(1), 2 * kAlone + 3);
  EXPECT_GE(machine.ended().at(2), 2 * kAlone);
}

TEST(ScheduleFairness, NobodyStarvesBehindMoreUrgentOnes) {
  for (const OwnerId owner : {1, 2}) {
    std::vector<Arrival> arrivals;
    // Urgent requests arrive for a long time faster than the machine can serve them.
    for (int i = 0; i < 400; ++i) {
      arrivals.push_back({.at = i * 4.0, .owner = 1, .tokens = 10, .priority = -2});
    }
    arrivals.push_back({.at = 20, .owner = owner, .tokens = 10, .priority = 2});
    std::ranges::stable_sort(arrivals, {}, &Arrival::at);
    const auto late = std::ranges::find(arrivals, 2, &Arrival::priority) - arrivals.begin() + 1;
    Machine machine(2, arrivals);
    machine.RunToTheEnd();
    const double waited = machine.waited().at(static_cast<JobId>(late));
    EXPECT_GT(waited, kAgeSeconds);
    // Waiting is bounded by four agings, the requests that arrived before, and one that runs.
    EXPECT_LE(waited, 4 * kAgeSeconds + 8 * 12) << owner;
  }
}

TEST(ScheduleFairness, HowLongAnybodyWaitsFollowsFromTheirOwnRequests) {
  constexpr size_t kOwners = 5;
  constexpr double kRounds = 12;  // rounds that one request takes
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Arrival> arrivals;
    for (int i = 0; i < 300; ++i) {
      // Some owners send far more requests than others.
      const OwnerId owner = 1 + std::min(random() % kOwners, random() % kOwners);
      arrivals.push_back({.at = static_cast<double>(random() % 500), .owner = owner, .tokens = 10});
    }
    std::ranges::stable_sort(arrivals, {}, &Arrival::at);
    Machine machine(3, arrivals);
    machine.RunToTheEnd();
    ASSERT_EQ(machine.ended().size(), arrivals.size());
    for (size_t i = 0; i < arrivals.size(); ++i) {
      size_t ahead = 0;  // earlier requests of the same owner
      for (size_t other = 0; other < i; ++other) {
        const bool is_there = machine.ended().at(other + 1) >= arrivals[i].at;
        ahead += is_there && arrivals[other].owner == arrivals[i].owner ? 1 : 0;
      }
      const double turns = static_cast<double>(kOwners * (ahead + 2)) / 3 + 1;
      EXPECT_LE(machine.waited().at(i + 1), turns * kRounds) << "seed " << seed << ", job " << i;
    }
  }
}

int Aged(const JobState& job, int lowest) {
  return std::max(lowest, job.priority - static_cast<int>(job.waited / kAgeSeconds));
}

// Checks for random arrivals that no place stays empty while a request waits, that none starts
// before one with a lower priority number, and that the order of requests in the state does not
// matter.
TEST(ScheduleFairness, RandomTracesKeepTheInvariants) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Arrival> arrivals;
    for (int i = 0; i < 120; ++i) {
      arrivals.push_back({.at = static_cast<double>(random() % 300),
                          .owner = random() % 4,
                          .prompt = 1 + random() % 30,
                          .tokens = 1 + random() % 30,
                          .priority = static_cast<int>(random() % 5) - 2});
    }
    constexpr size_t kRunning = 3;
    Machine machine(kRunning, arrivals);
    size_t num_begun = 0;
    while (!machine.is_over()) {
      machine.Round([&](State state, const Plan& plan) {
        size_t running = plan.starts.size(), waiting = 0, reading = 0;
        int lowest = std::numeric_limits<int>::max();
        for (const JobState& job : state.jobs) {
          running += job.phase == Phase::kWaiting ? 0 : 1;
          waiting += job.phase == Phase::kWaiting ? 1 : 0;
          reading += job.phase == Phase::kReading ? 1 : 0;
          lowest = std::min(lowest, job.priority);
        }
        EXPECT_LE(running, kRunning);
        EXPECT_TRUE(running == kRunning || waiting == plan.starts.size());
        EXPECT_EQ(plan.reader.has_value(), reading + plan.starts.size() > 0);
        for (const JobState& left : state.jobs) {
          const bool begins = std::ranges::count(plan.starts, left.id) > 0;
          if (left.phase != Phase::kWaiting || begins) continue;
          for (const JobId id : plan.starts) {
            const JobState& begun = *std::ranges::find(state.jobs, id, &JobState::id);
            EXPECT_LE(Aged(begun, lowest), Aged(left, lowest));
          }
        }
        num_begun += plan.starts.size();
        std::ranges::shuffle(state.jobs, random);
        EXPECT_EQ(Next(state, machine.now()), plan);
      });
      if (HasFailure()) FAIL() << "seed " << seed;
    }
    EXPECT_EQ(num_begun, arrivals.size());
  }
}

}  // namespace
}  // namespace ebb::server
