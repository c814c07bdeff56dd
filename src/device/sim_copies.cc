// Invariant: copies of a direction end in order of their numbers.
#include "src/device/sim_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace ebb {
namespace {

constexpr int kMaxDelayMicroseconds = 300;

}  // namespace

SimCopies::SimCopies(SimMemory* memory, CopyArrival arrival) : memory_(memory), arrival_(arrival) {
  if (arrival != CopyArrival::kThread) return;
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i] = std::thread([this, i] { RunThread(i, static_cast<uint32_t>(i + 1)); });
  }
}

SimCopies::~SimCopies() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void SimCopies::CopyBytes(const Pending& copy) {
  if (copy.outcome == Outcome::kFails) return;
  const int before = memory_->Open();
  for (const CopyPart& part : copy.parts) std::memcpy(part.to, part.from, part.num_bytes);
  memory_->Close(before);
}

void SimCopies::End(size_t direction, const Pending& copy) {
  if (copy.outcome == Outcome::kArrives) return;
  size_t num_bytes = 0;
  for (const CopyPart& part : copy.parts) num_bytes += part.num_bytes;
  failed_[direction][copy.number] = num_bytes;
}

void SimCopies::Add(DeviceQueue queue, uint64_t number, std::span<const CopyPart> parts,
                    Outcome outcome) {
  const size_t direction = Index(queue);
  {
    const std::lock_guard lock(mutex_);
    pending_[direction].push_back({.number = number,
                                   .parts = {parts.begin(), parts.end()},
                                   .outcome = outcome,
                                   .after = std::exchange(after_[direction], 0)});
    if (arrival_ == CopyArrival::kAtOnce) ArriveNow(direction, number);
  }
  changed_.notify_all();
}

void SimCopies::AddWait(DeviceQueue queue, const DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  uint64_t& after = after_[Index(queue)];
  after = std::max(after, event.number);
}

// The waiting thread carries the bytes itself: one more busy thread would make the threads that
// spin for one another collapse.
void SimCopies::ArriveNow(size_t direction, uint64_t number) {
  std::deque<Pending>& queue = pending_[direction];
  while (!IsOver(direction, number)) {
    const Pending copy = std::move(queue.front());
    queue.pop_front();
    ArriveNow(1 - direction, copy.after);
    CopyBytes(copy);
    End(direction, copy);
  }
}

Status SimCopies::Arrive(DeviceQueue queue, uint64_t number) {
  const size_t direction = Index(queue);
  std::unique_lock lock(mutex_);
  if (arrival_ == CopyArrival::kThread) {
    changed_.wait(lock, [&] { return IsOver(direction, number); });
  } else {
    ArriveNow(direction, number);
  }
  const auto failed = failed_[direction].find(number);
  if (failed == failed_[direction].end()) return OkStatus();
  return IoError(fmt::format("the device failed to copy {} bytes {}", failed->second,
                             queue == DeviceQueue::kToDevice ? "to its memory" : "to the host"));
}

// A copy stays at the front while it is under way, so that Arrive() waits for it.
void SimCopies::RunThread(size_t direction, uint32_t seed) {
  std::mt19937 random(seed);
  std::unique_lock lock(mutex_);
  while (true) {
    std::deque<Pending>& queue = pending_[direction];
    const auto may_begin = [&] {
      return !queue.empty() && IsOver(1 - direction, queue.front().after);
    };
    changed_.wait(lock, [&] { return ends_ || may_begin(); });
    if (!may_begin()) return;
    const Pending copy = queue.front();
    const auto delay = std::chrono::microseconds(random() % kMaxDelayMicroseconds);
    lock.unlock();
    std::this_thread::sleep_for(delay);
    CopyBytes(copy);
    lock.lock();
    End(direction, copy);
    queue.pop_front();
    changed_.notify_all();
  }
}

}  // namespace ebb
