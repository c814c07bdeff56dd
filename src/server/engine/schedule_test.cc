// Checks the plan for given states, without engine and clock.
#include "src/server/engine/schedule.h"

#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

JobState Waiting(JobId id, uint64_t start = 2, uint64_t least = 3) {
  return {.id = id,
          .arrival = static_cast<double>(id),
          .start_bytes = start,
          .least_bytes = least,
          .is_elastic = true,
          .can_park = true};
}

JobState Decoding(JobId id, uint64_t least = 3, uint64_t held = 3) {
  JobState job = Waiting(id, least, least);
  job.phase = Phase::kDecoding;
  job.held_bytes = held;
  return job;
}

TEST(Schedule, NothingToDoIsIdleUntilSomethingComes) {
  const Plan plan = Next({}, 5);
  EXPECT_TRUE(plan.IsIdle());
  EXPECT_FALSE(plan.wake_at.has_value());
}

TEST(Schedule, WithoutACapAllBeginAndTheFirstIsRead) {
  const Plan plan = Next({.jobs = {Waiting(2), Waiting(1), Waiting(3)}}, 5);
  EXPECT_THAT(plan.starts, ElementsAre(1, 2, 3));
  EXPECT_EQ(plan.reader, 1u);
  EXPECT_THAT(plan.decodes, IsEmpty());
}

TEST(Schedule, APromptIsReadBesideThoseThatDecode) {
  JobState reading = Decoding(3);
  reading.phase = Phase::kReading;
  const Plan plan = Next({.jobs = {Decoding(1), reading, Decoding(2)}}, 5);
  EXPECT_THAT(plan.decodes, ElementsAre(1, 2));
  EXPECT_EQ(plan.reader, 3u);
}

TEST(Schedule, NoMoreRunAtOnceThanMay) {
  State state = {.jobs = {Decoding(1), Waiting(2), Waiting(3)}};
  state.machine.most_running = 2;
  EXPECT_THAT(Next(state, 5).starts, ElementsAre(2));
}

TEST(FindWaits, TheFirstInOrderWaitsForRoomAndTheOthersForIt) {
  JobState parked = Decoding(4, /*least=*/6);
  parked.phase = Phase::kParked;
  State state = {.jobs = {Decoding(1, 5, 5), Decoding(2, 4, 4), Waiting(3, 3), parked}};
  state.machine.t0_bytes = 10;
  // A parked request resumes before a new one starts.
  const Wait room = {.id = 4, .cause = WaitCause::kT0, .bytes = 5 + 4 + 6 - 10};
  const Wait turn = {.id = 3, .cause = WaitCause::kTurn, .behind = 4};
  EXPECT_THAT(FindWaits(state, 5), UnorderedElementsAre(room, turn));
  state.jobs.pop_back();
  const Wait start = {.id = 3, .cause = WaitCause::kT0, .bytes = 5 + 4 + 3 - 10};
  EXPECT_THAT(FindWaits(state, 5), ElementsAre(start));
  state.machine.t0_bytes = 12;
  EXPECT_THAT(FindWaits(state, 5), IsEmpty()) << "it starts";
}

TEST(FindWaits, OtherCausesAreNamed) {
  State state = {.jobs = {Decoding(1), Waiting(2)}};
  state.machine.most_running = 1;
  const Wait running = {.id = 2, .cause = WaitCause::kRunning};
  EXPECT_THAT(FindWaits(state, 5), ElementsAre(running));
  state.machine = {.t1_bytes = 8};
  state.jobs[0].t1_bytes = 6;
  state.jobs[1].t1_bytes = 5;
  const Wait t1 = {.id = 2, .cause = WaitCause::kT1, .bytes = 3};
  EXPECT_THAT(FindWaits(state, 5), ElementsAre(t1));
  state.machine = {.t2_bytes = 8};
  state.jobs[0].t2_bytes = 6;
  state.jobs[1].t2_bytes = 4;
  const Wait t2 = {.id = 2, .cause = WaitCause::kT2, .bytes = 2};
  EXPECT_THAT(FindWaits(state, 5), ElementsAre(t2));
  state.jobs[1].held_until = 7;
  const Wait held = {.id = 2, .cause = WaitCause::kStoredPrompt};
  EXPECT_THAT(FindWaits(state, 5), ElementsAre(held));
}

TEST(Schedule, ALowerPriorityNumberComesFirst) {
  State state = {.jobs = {Waiting(1), Waiting(2)}};
  state.jobs[1].priority = -1;
  state.machine.most_running = 1;
  EXPECT_THAT(Next(state, 5).starts, ElementsAre(2));
}

TEST(Schedule, WhoDoesNotFitKeepsThoseBehindFromOvertaking) {
  State state = {.jobs = {Decoding(1), Waiting(2, 8, 8), Waiting(3, 1, 1)}};
  state.machine.t0_bytes = 10;
  EXPECT_THAT(Next(state, 5).starts, IsEmpty());
}

TEST(Schedule, AloneARequestMayAlwaysTry) {
  State state = {.jobs = {Waiting(1, 20, 20)}};
  state.machine.t0_bytes = 10;
  EXPECT_THAT(Next(state, 5).starts, ElementsAre(1));
}

TEST(Schedule, AHeldJobLetsOthersPassAndBeginsOnceItsTimeHasCome) {
  State state = {.jobs = {Waiting(1), Waiting(2)}};
  state.machine.most_running = 1;
  state.jobs[0].held_until = 7;
  EXPECT_THAT(Next(state, 5).starts, ElementsAre(2));
  EXPECT_THAT(Next(state, 7).starts, ElementsAre(1));
  state.jobs.pop_back();
  const Plan plan = Next(state, 5);
  EXPECT_TRUE(plan.IsIdle());
  EXPECT_EQ(plan.wake_at, 7);
  // The lookup for which the job was held has ended.
  state.jobs[0].held_until.reset();
  EXPECT_THAT(Next(state, 5).starts, ElementsAre(1));
}

TEST(Schedule, CapsOfT1AndT2HoldBackToo) {
  for (uint64_t MachineState::*const cap : {&MachineState::t1_bytes, &MachineState::t2_bytes}) {
    State state = {.jobs = {Decoding(1), Waiting(2)}};
    for (JobState& job : state.jobs) job.t1_bytes = job.t2_bytes = 6;
    state.machine.*cap = 11;
    EXPECT_THAT(Next(state, 5).starts, IsEmpty());
    state.machine.*cap = 12;
    EXPECT_THAT(Next(state, 5).starts, ElementsAre(2));
  }
}

TEST(Schedule, WhoHasGoneEndsAndMakesRoomAtOnce) {
  State state = {.jobs = {Decoding(1, 10, 10), Waiting(2, 10, 10)}};
  state.machine.t0_bytes = 10;
  state.jobs[0].cancelled = true;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.ends, ElementsAre(Plan::End{1, EndReason::kCancelled}));
  EXPECT_THAT(plan.starts, ElementsAre(2));
}

TEST(Schedule, ADeadlineEndsARequestAndWakesForIt) {
  State state = {.jobs = {Waiting(1), Waiting(2)}};
  state.machine.most_running = 0;
  state.jobs[0].deadline = 5;
  state.jobs[1].deadline = 7;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.ends, ElementsAre(Plan::End{1, EndReason::kDeadline}));
  EXPECT_FALSE(plan.HasStep());
  EXPECT_EQ(plan.wake_at, 7);
}

TEST(Schedule, ElasticPartsShrinkAlikeBeforeAnybodyIsParked) {
  State state = {.jobs = {Decoding(1, 3, 11), Decoding(2, 3, 11)}};
  state.machine.t0_bytes = 14;  // least parts take 6, so 8 are left for 16 elastic
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, IsEmpty());
  EXPECT_THAT(plan.shares, ElementsAre(Plan::Share{1, 0.5}, Plan::Share{2, 0.5}));
  EXPECT_THAT(plan.decodes, ElementsAre(1, 2));
}

TEST(Schedule, SharesGrowInStridesWhenThereIsRoom) {
  State state = {.jobs = {Decoding(1, 3, 11), Decoding(2, 3, 11)}};
  for (JobState& job : state.jobs) job.share = 0.5;
  state.machine.t0_bytes = 16;  // 10 are left for 16 elastic: five eighths
  EXPECT_THAT(Next(state, 5).grown_shares, IsEmpty());
  state.machine.t0_bytes = 18;  // 12 are left for 16 elastic: three quarters
  EXPECT_THAT(Next(state, 5).grown_shares, ElementsAre(Plan::Share{1, 0.75}, Plan::Share{2, 0.75}));
  state.machine.t0_bytes = 100;
  EXPECT_THAT(Next(state, 5).grown_shares, ElementsAre(Plan::Share{1, 1}, Plan::Share{2, 1}));
  state.jobs[0].most_share = 0.5;
  EXPECT_THAT(Next(state, 5).grown_shares, ElementsAre(Plan::Share{2, 1}));
}

TEST(Schedule, TheYoungestIsParkedWhenTheLeastIsTooMuch) {
  State state = {.jobs = {Decoding(1, 6, 6), Decoding(2, 6, 6), Waiting(3, 1, 1)}};
  state.machine.t0_bytes = 10;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, ElementsAre(2));
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(plan.decodes, ElementsAre(1));
}

TEST(Schedule, WhoWasParkedOftenIsSparedWhereAnotherCanBeParked) {
  State state = {.jobs = {Decoding(1, 6, 6), Decoding(2, 6, 6), Decoding(3, 6, 6)}};
  state.machine.t0_bytes = 13;
  state.jobs[2].num_parks = 3;
  EXPECT_THAT(Next(state, 5).parks, ElementsAre(2));
  state.jobs[1].num_parks = 3;
  EXPECT_THAT(Next(state, 5).parks, ElementsAre(3));
}

TEST(Schedule, TheMostUrgentAndThoseWithoutT1AreNeverParked) {
  State state = {.jobs = {Decoding(1, 6, 6), Decoding(2, 6, 6)}};
  state.machine.t0_bytes = 10;
  state.jobs[1].can_park = false;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, IsEmpty());
  EXPECT_THAT(plan.decodes, ElementsAre(1, 2));
}

TEST(Schedule, AParkedRequestGoesOnBeforeYoungerOnesBegin) {
  State state = {.jobs = {Decoding(1, 4, 4), Decoding(2, 4, 4), Waiting(3, 1, 1)}};
  state.jobs[1].phase = Phase::kParked;
  state.machine.t0_bytes = 7;
  EXPECT_THAT(Next(state, 5).starts, IsEmpty());
  state.machine.t0_bytes = 8;
  Plan plan = Next(state, 5);
  EXPECT_THAT(plan.resumes, ElementsAre(2));
  EXPECT_THAT(plan.decodes, ElementsAre(1, 2));
  EXPECT_THAT(plan.starts, IsEmpty());
  state.jobs[1].was_reading = true;
  plan = Next(state, 5);
  EXPECT_THAT(plan.decodes, ElementsAre(1));
  EXPECT_EQ(plan.reader, 2u);
}

TEST(Schedule, AMoreUrgentRequestTakesTheRoomOfLessUrgentOnes) {
  State state = {.jobs = {Decoding(1, 5, 5), Decoding(2, 5, 5), Waiting(3, 5, 5)}};
  state.machine.t0_bytes = 10;
  EXPECT_THAT(Next(state, 5).parks, IsEmpty());
  state.jobs[2].priority = -1;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, ElementsAre(2));
  EXPECT_THAT(plan.starts, ElementsAre(3));
}

TEST(Schedule, NobodyIsParkedForARequestThatWouldNotFitAnyway) {
  State state = {.jobs = {Decoding(1, 5, 5), Decoding(2, 5, 5), Waiting(3, 9, 9)}};
  state.machine.t0_bytes = 10;
  state.jobs[1].priority = 1;
  const Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, IsEmpty());
  EXPECT_THAT(plan.starts, IsEmpty());
}

TEST(Schedule, ARefusedStepHalvesSharesThenParksThenEnds) {
  State state = {.jobs = {Decoding(1), Decoding(2)}};
  state.machine.t0_bytes = 100;
  state.machine.t0_refused = true;
  EXPECT_THAT(Next(state, 5).shares, ElementsAre(Plan::Share{1, 0.5}, Plan::Share{2, 0.5}));
  for (JobState& job : state.jobs) job.share = 0.125;
  EXPECT_THAT(Next(state, 5).shares, ElementsAre(Plan::Share{1, 0}, Plan::Share{2, 0}));
  for (JobState& job : state.jobs) job.share = 0;
  Plan plan = Next(state, 5);
  EXPECT_THAT(plan.parks, ElementsAre(2));
  EXPECT_THAT(plan.grown_shares, IsEmpty());
  state.jobs.pop_back();
  plan = Next(state, 5);
  EXPECT_THAT(plan.ends, ElementsAre(Plan::End{1, EndReason::kNoRoom}));
  EXPECT_FALSE(plan.HasStep());
}

TEST(Schedule, ARefusedStartShrinksOthersAndWaitsWhenTheyHaveNothingToGive) {
  State state = {.jobs = {Decoding(1), Waiting(2)}};
  state.machine.t0_bytes = 100;
  state.machine.start_refused = true;
  Plan plan = Next(state, 5);
  EXPECT_THAT(plan.shares, ElementsAre(Plan::Share{1, 0.5}));
  EXPECT_THAT(plan.starts, ElementsAre(2));
  state.jobs[0].share = 0;
  plan = Next(state, 5);
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(plan.grown_shares, IsEmpty());
  EXPECT_THAT(plan.decodes, ElementsAre(1));
}

TEST(Schedule, TheSameStateGivesTheSamePlan) {
  State state = {.jobs = {Decoding(2, 6, 9), Waiting(1), Decoding(3, 6, 9)}};
  state.machine.t0_bytes = 14;
  const Plan plan = Next(state, 5);
  std::ranges::reverse(state.jobs);
  EXPECT_EQ(Next(state, 5), plan);
}

TEST(Schedule, FitsByItselfOrNever) {
  MachineState machine;
  machine.t0_bytes = 10;
  machine.t1_bytes = 20;
  machine.t2_bytes = 5;
  JobState job = Waiting(1, 4, 10);
  EXPECT_TRUE(EverFits(job, machine));
  job.least_bytes = 11;
  EXPECT_FALSE(EverFits(job, machine));
  job = Waiting(1, 11, 3);
  EXPECT_FALSE(EverFits(job, machine));
  job = Waiting(1);
  job.t1_bytes = 21;
  EXPECT_FALSE(EverFits(job, machine));
  job = Waiting(1);
  job.t2_bytes = 6;
  EXPECT_FALSE(EverFits(job, machine));
}

TEST(Schedule, PredictsTheWaitFromTheWorkAhead) {
  State state;
  state.machine.seconds_per_prompt_token = 0.5;
  state.machine.seconds_per_step = 2;
  state.machine.most_running = 2;
  EXPECT_EQ(PredictWait(state), 0);
  state.jobs = {Decoding(1)};
  state.jobs[0].tokens_left = 10;
  EXPECT_EQ(PredictWait(state), 0);  // another request may start at once
  state.jobs.push_back(Decoding(2));
  state.jobs[1].tokens_left = 20;
  EXPECT_EQ(PredictWait(state), 30);  // 60 s of work, divided by two running jobs
  state.jobs.push_back(Waiting(3));
  state.jobs[2].prompt_left = 40;
  EXPECT_EQ(PredictWait(state), 40);
}

// Simulation carries plans out for requests of random sizes that grow as they are decoded.
class Simulation {
 public:
  Simulation(uint64_t seed, size_t num_jobs) : random_(seed) {
    state_.machine.t0_bytes = 40;
    state_.machine.most_running = 6;
    for (JobId id = 1; id <= num_jobs; ++id) {
      JobState job = Waiting(id, 1 + random_() % 10, 0);
      job.least_bytes = job.start_bytes + random_() % 20;
      job.priority = static_cast<int>(random_() % 3) - 1;
      job.owner = random_() % 3;
      floors_[id] = job.least_bytes;
      left_[id] = 5 + random_() % 60;
      prompts_[id] = 1 + random_() % 5;
      state_.jobs.push_back(job);
    }
  }

  // Runs until all requests have ended. Returns false if a request that may run does not take part
  // in a step, if the least parts exceed the cap, or if the most urgent running request is parked.
  bool Run() {
    for (int round = 0; round < 100'000 && !state_.jobs.empty(); ++round) {
      for (JobState& job : state_.jobs) {
        if (job.phase == Phase::kWaiting || job.phase == Phase::kParked) ++job.waited;
        if (job.phase == Phase::kWaiting) continue;
        job.least_bytes = job.num_parks > 0 ? floors_[job.id]
                                            : std::min(floors_[job.id],
                                                       std::max(job.start_bytes, job.held_bytes));
      }
      const Plan plan = Next(state_, round);
      EXPECT_TRUE(plan.ends.empty());
      EXPECT_FALSE(plan.IsIdle()) << "somebody waits though nobody runs";
      for (const JobId id : plan.parks) {
        Find(id)->was_reading = Find(id)->phase == Phase::kReading;
        Find(id)->phase = Phase::kParked;
        most_parks_ = std::max(most_parks_, ++Find(id)->num_parks);
      }
      for (const JobId id : plan.resumes) {
        Find(id)->phase = Find(id)->was_reading ? Phase::kReading : Phase::kDecoding;
      }
      for (const JobId id : plan.starts) {
        Find(id)->phase = Phase::kReading;
        Find(id)->least_bytes = Find(id)->start_bytes;
      }
      uint64_t least = 0;
      size_t running = 0;
      for (const JobState& job : state_.jobs) {
        const bool runs = job.phase == Phase::kReading || job.phase == Phase::kDecoding;
        if (runs) least += std::min(job.least_bytes, floors_[job.id]);
        running += runs ? 1 : 0;
      }
      EXPECT_TRUE(running <= 1 || least <= state_.machine.t0_bytes) << least;
      EXPECT_LE(running, state_.machine.most_running);
      if (plan.reader.has_value() && --prompts_[*plan.reader] == 0) {
        Find(*plan.reader)->phase = Phase::kDecoding;
      }
      for (const JobId id : plan.decodes) {
        ++Find(id)->held_bytes;
        if (--left_[id] == 0) std::erase_if(state_.jobs, [&](const auto& j) { return j.id == id; });
      }
      if (testing::Test::HasFailure()) return false;
    }
    return state_.jobs.empty();
  }
  [[nodiscard]] int most_parks() const { return most_parks_; }

 private:
  JobState* Find(JobId id) { return &*std::ranges::find(state_.jobs, id, &JobState::id); }

  std::mt19937_64 random_;
  State state_;
  std::map<JobId, uint64_t> floors_, left_, prompts_;
  int most_parks_ = 0;
};

TEST(Schedule, RandomTracesEndWithinTheCapAndWithFewParks) {
  int most_parks = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Simulation simulation(seed, 30);
    ASSERT_TRUE(simulation.Run()) << seed;
    most_parks = std::max(most_parks, simulation.most_parks());
  }
  EXPECT_GE(most_parks, 1) << "no trace came to it";
  EXPECT_LE(most_parks, 8);
}

}  // namespace
}  // namespace ebb::server
