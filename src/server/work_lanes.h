// WorkLanes runs work on requests that may take long: parsing bodies, applying chat templates,
// tokenizing. Each lane has a thread and handles one class of sizes, so that a request waits only
// for others of its size: a body of 8 MB takes seconds, one of 64 KiB milliseconds. Within a lane,
// tasks are chosen round robin over clients, so that one with many requests does not delay others.
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
  // kMostBytes holds the largest size of each lane but the last, in bytes of text.
  static constexpr std::array<size_t, 2> kMostBytes = {size_t{64} << 10, size_t{1} << 20};
  static constexpr size_t kNumLanes = kMostBytes.size() + 1;
  // Returns the lane for a task that works on `bytes` of text.
  [[nodiscard]] static size_t LaneOf(size_t bytes);

  enum class Refusal { kFull, kStopping };
  struct Task {
    std::string client;  // the lane serves clients round robin
    size_t bytes = 0;    // size of the text to process
    std::function<void()> run;
    // Called instead of `run`, on any thread, also from within Add() or Stop().
    std::function<void(Refusal)> refuse;
  };

  // `most_waiting` limits the tasks of one lane that have not started.
  explicit WorkLanes(size_t most_waiting);
  ~WorkLanes();
  WorkLanes(const WorkLanes&) = delete;
  WorkLanes& operator=(const WorkLanes&) = delete;

  // Queues a task. If its lane is full, refuses the newest task of the client with the most waiting
  // tasks, which may be `task`.
  void Add(Task task);
  // Refuses waiting tasks and later ones, and waits for those that have started. REQUIRES: not
  // called from a task.
  void Stop();
  // Counts the tasks that have not started.
  [[nodiscard]] size_t num_waiting() const;

 private:
  struct Client {
    std::string name;
    std::deque<Task> tasks;  // at least one
  };
  struct Lane {
    std::list<Client> clients;  // the front is served next
    size_t num_waiting = 0;
  };

  void Run(size_t lane);
  // Removes and returns the next task of the lane. REQUIRES: the lane has tasks.
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
