#include "src/server/work_lanes.h"

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/threads/mutex.h"

namespace ebb::server {
namespace {

using testing::ElementsAre;

constexpr size_t kSmall = 100, kLarge = size_t{7} << 20;

// WorkLanesTest records the names of tasks in the order in which they run.
class WorkLanesTest : public testing::Test {
 protected:
  WorkLanes::Task Named(const std::string& client, const std::string& name, size_t bytes) {
    return {.client = client,
            .bytes = bytes,
            .run = [this, name] { Note(&ran_, name); },
            .refuse =
                [this, name](WorkLanes::Refusal why) {
                  Note(why == WorkLanes::Refusal::kFull ? &full_ : &stopped_, name);
                }};
  }
  // Keeps a lane busy until Release().
  void Block(WorkLanes* lanes, size_t bytes) {
    std::promise<void> begun;
    lanes->Add({.client = "blocks",
                .bytes = bytes,
                .run =
                    [&, released = release_.get_future().share()] {
                      begun.set_value();
                      released.wait();
                    },
                .refuse = [](WorkLanes::Refusal) { FAIL(); }});
    begun.get_future().wait();
  }
  void Release() { release_.set_value(); }
  // Waits until all tasks that the client has added have run.
  static void WaitBehind(WorkLanes* lanes, const std::string& client, size_t bytes) {
    std::promise<void> done;
    lanes->Add({.client = client,
                .bytes = bytes,
                .run = [&] { done.set_value(); },
                .refuse = [](WorkLanes::Refusal) { FAIL(); }});
    done.get_future().wait();
  }
  void Note(std::vector<std::string>* list, const std::string& name) {
    const MutexLock lock(mutex_);
    list->push_back(name);
  }

  Mutex mutex_;
  std::vector<std::string> ran_, full_, stopped_;
  std::promise<void> release_;
};

TEST_F(WorkLanesTest, SizesHaveLanes) {
  EXPECT_EQ(WorkLanes::LaneOf(0), 0u);
  EXPECT_EQ(WorkLanes::LaneOf(64 << 10), 0u);
  EXPECT_EQ(WorkLanes::LaneOf((64 << 10) + 1), 1u);
  EXPECT_EQ(WorkLanes::LaneOf(1 << 20), 1u);
  EXPECT_EQ(WorkLanes::LaneOf((1 << 20) + 1), 2u);
  EXPECT_EQ(WorkLanes::LaneOf(size_t{1} << 40), 2u);
}

TEST_F(WorkLanesTest, SmallTasksDoNotWaitForLargeOnes) {
  WorkLanes lanes(64);
  Block(&lanes, kLarge);
  lanes.Add(Named("a", "large", kLarge));
  WaitBehind(&lanes, "a", kSmall);
  WaitBehind(&lanes, "a", size_t{1} << 20);
  EXPECT_THAT(ran_, ElementsAre());
  EXPECT_EQ(lanes.num_waiting(), 1u);
  Release();
  WaitBehind(&lanes, "a", kLarge);
  EXPECT_THAT(ran_, ElementsAre("large"));
}

TEST_F(WorkLanesTest, ClientsTakeTurnsWithinALane) {
  WorkLanes lanes(64);
  Block(&lanes, kLarge);
  for (const char* name : {"a1", "a2", "a3", "a4"}) lanes.Add(Named("a", name, kLarge));
  for (const char* name : {"b1", "b2"}) lanes.Add(Named("b", name, kLarge));
  Release();
  WaitBehind(&lanes, "a", kLarge);
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "a2", "b2", "a3", "a4"));
}

TEST_F(WorkLanesTest, AFullLaneRefusesTheNewestTaskOfTheClientThatHasMost) {
  WorkLanes lanes(3);
  Block(&lanes, kSmall);
  for (const char* name : {"a1", "a2", "a3"}) lanes.Add(Named("a", name, kSmall));
  EXPECT_THAT(full_, ElementsAre());
  lanes.Add(Named("a", "a4", kSmall));
  EXPECT_THAT(full_, ElementsAre("a4"));
  lanes.Add(Named("b", "b1", kSmall));
  EXPECT_THAT(full_, ElementsAre("a4", "a3"));
  // With this task `b` would have as many as `a`, so the task itself is refused.
  lanes.Add(Named("b", "b2", kSmall));
  EXPECT_THAT(full_, ElementsAre("a4", "a3", "b2"));
  // Other lanes are not full.
  WaitBehind(&lanes, "a", kLarge);
  Release();
  // Waits until the lane is empty: a task added to the full lane would have another one refused.
  while (lanes.num_waiting() > 0) std::this_thread::yield();
  WaitBehind(&lanes, "c", kSmall);
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "a2"));
}

TEST_F(WorkLanesTest, StoppingRefusesWhatHasNotBegunAndWaitsForWhatHas) {
  WorkLanes lanes(64);
  Block(&lanes, kSmall);
  lanes.Add(Named("a", "a1", kSmall));
  lanes.Add(Named("b", "b1", kSmall));
  std::future<void> stopped = std::async(std::launch::async, [&] { lanes.Stop(); });
  while (lanes.num_waiting() > 0) std::this_thread::yield();
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  Release();
  stopped.wait();
  EXPECT_THAT(stopped_, ElementsAre("a1", "b1"));
  lanes.Add(Named("a", "late", kSmall));
  EXPECT_THAT(stopped_, ElementsAre("a1", "b1", "late"));
  EXPECT_THAT(ran_, ElementsAre());
}

}  // namespace
}  // namespace ebb::server
