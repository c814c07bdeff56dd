#include "src/base/threads/mutex.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ebb {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int count EBB_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, LocksExcludeEachOther) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int k = 0; k < 1000; ++k) {
        MutexLock lock(counter.mutex);
        const int before = counter.count;
        lock.Unlock();
        std::this_thread::yield();
        lock.Lock();
        EXPECT_GE(counter.count, before);
        ++counter.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.count, 4000);
}

TEST(CondVarTest, WaitReleasesTheMutexUntilANotification) {
  Counter counter;
  std::thread setter([&counter] {
    {
      const MutexLock lock(counter.mutex);
      counter.count = 7;
    }
    counter.changed.NotifyOne();
  });
  {
    const MutexLock lock(counter.mutex);
    while (counter.count == 0) counter.changed.Wait(counter.mutex);
    EXPECT_EQ(counter.count, 7);
  }
  setter.join();
}

TEST(CondVarTest, WaitUntilReturnsAtTheDeadlineWithTheMutexHeld) {
  Counter counter;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  {
    const MutexLock lock(counter.mutex);
    while (counter.changed.WaitUntil(counter.mutex, deadline)) {
    }
    counter.count = 1;
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  const MutexLock lock(counter.mutex);  // the mutex was released
  EXPECT_EQ(counter.count, 1);
}

}  // namespace
}  // namespace ebb
