// Threads for work on requests that may take long: parsing bodies, applying chat templates,
// tokenizing. There is a lane, with a thread of its own, for each class of sizes, so that a request
// waits for others of its size at most: a body of 8 MB takes seconds, one of 64 KiB milliseconds.
// Within a lane clients take turns, so that one with many requests does not keep others waiting.
//
// Thread safety: all members may be called from any thread.
#ifndef EBB_SERVER_WORK_LANES_H_
#define EBB_SERVER_WORK_LANES_H_

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "src/base/threads/mutex.h"

namespace ebb::server {

class WorkLanes {
 public:
  // The largest size of each lane but the last, in bytes of text.
  static constexpr std::array<size_t, 2> kMostBytes = {size_t{64} << 10, size_t{1} << 20};
  static constexpr size_t kNumLanes = kMostBytes.size() + 1;
  // By the size of the text that a task works on.
  [[nodiscard]] static size_t LaneOf(size_t bytes);

  enum class Refusal { kFull, kStopping };
  struct Task {
    std::string client;  // clients take turns
    size_t bytes = 0;    // of text to be worked on
    std::function<void()> run;
    // Called in place of `run`, on any thread, from within Add() or Stop() too.
    std::function<void(Refusal)> refuse;
  };

  // most_waiting: tasks of one lane that have not begun.
  explicit WorkLanes(size_t most_waiting);
  ~WorkLanes();
  WorkLanes(const WorkLanes&) = delete;
  WorkLanes& operator=(const WorkLanes&) = delete;

  // In a full lane the client with the most waiting tasks loses its newest one, which may be
  // `task`.
  void Add(Task task);
  // Refuses what has not begun and what comes later, and waits for what has begun. Not from a task.
  void Stop();
  // Tasks that have not begun.
  [[nodiscard]] size_t num_waiting() const;

 private:
  struct Client {
    std::string name;
    std::deque<Task> tasks;  // at least one
  };
  struct Lane {
    std::list<Client> clients;  // the front has the next turn
    size_t num_waiting = 0;
  };

  void Run(size_t lane);
  // REQUIRES: the lane has tasks.
  [[nodiscard]] static Task TakeNext(Lane* lane);
  [[nodiscard]] static Task TakeNewestOfLargest(Lane* lane);

  const size_t most_waiting_;
  mutable Mutex mutex_;
  bool stopping_ EBB_GUARDED_BY(mutex_) = false;
  std::array<Lane, kNumLanes> lanes_ EBB_GUARDED_BY(mutex_);
  std::array<CondVar, kNumLanes> wakes_;
  std::array<std::thread, kNumLanes> threads_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_WORK_LANES_H_
