#include "src/server/work_lanes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ebb::server {

size_t WorkLanes::LaneOf(size_t bytes) {
  return std::ranges::lower_bound(kMostBytes, bytes) - kMostBytes.begin();
}

WorkLanes::WorkLanes(size_t most_waiting) : most_waiting_(most_waiting) {
  for (size_t i = 0; i < kNumLanes; ++i) {
    threads_[i] = std::thread([this, i] { Run(i); });
  }
}

WorkLanes::~WorkLanes() { Stop(); }

void WorkLanes::Add(Task task) {
  const size_t index = LaneOf(task.bytes);
  std::optional<Task> refused;
  Refusal why = Refusal::kFull;
  {
    const MutexLock lock(mutex_);
    Lane& lane = lanes_[index];
    if (stopping_) {
      refused = std::move(task);
      why = Refusal::kStopping;
    } else {
      auto client = std::ranges::find(lane.clients, task.client, &Client::name);
      if (client == lane.clients.end()) {
        client = lane.clients.insert(client, {.name = task.client, .tasks = {}});
      }
      client->tasks.push_back(std::move(task));
      if (++lane.num_waiting > most_waiting_) refused = TakeNewestOfLargest(&lane);
    }
  }
  wakes_[index].NotifyOne();
  if (refused.has_value()) refused->refuse(why);
}

WorkLanes::Task WorkLanes::TakeNext(Lane* lane) {
  Client client = std::move(lane->clients.front());
  lane->clients.pop_front();
  --lane->num_waiting;
  Task task = std::move(client.tasks.front());
  client.tasks.pop_front();
  if (!client.tasks.empty()) lane->clients.push_back(std::move(client));
  return task;
}

WorkLanes::Task WorkLanes::TakeNewestOfLargest(Lane* lane) {
  auto largest = lane->clients.begin();
  for (auto client = largest; client != lane->clients.end(); ++client) {
    // If several clients have the most tasks, chooses the last one, which would be served last.
    if (client->tasks.size() >= largest->tasks.size()) largest = client;
  }
  --lane->num_waiting;
  Task task = std::move(largest->tasks.back());
  largest->tasks.pop_back();
  if (largest->tasks.empty()) lane->clients.erase(largest);
  return task;
}

void WorkLanes::Run(size_t lane) {
  while (true) {
    std::optional<Task> task;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && lanes_[lane].num_waiting == 0) wakes_[lane].Wait(mutex_);
      if (stopping_) return;
      task = TakeNext(&lanes_[lane]);
    }
    task->run();
  }
}

void WorkLanes::Stop() {
  std::vector<Task> refused;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (Lane& lane : lanes_) {
      while (lane.num_waiting > 0) refused.push_back(TakeNext(&lane));
    }
  }
  for (CondVar& wake : wakes_) wake.NotifyOne();
  for (const Task& task : refused) task.refuse(Refusal::kStopping);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

size_t WorkLanes::num_waiting() const {
  const MutexLock lock(mutex_);
  size_t count = 0;
  for (const Lane& lane : lanes_) count += lane.num_waiting;
  return count;
}

}  // namespace ebb::server
