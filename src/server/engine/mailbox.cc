#include "src/server/engine/mailbox.h"

#include <fmt/format.h>

namespace ebb::server {

Status Mailbox::Submit(std::vector<Job> jobs) {
  {
    const MutexLock lock(mutex_);
    if (is_stopped_) return Cancelled("the server is stopping");
    if (jobs.size() > most_waiting_) {
      return InvalidArgument(
          "n", fmt::format("expected at most {} answers to all prompts together, found {}",
                           most_waiting_, jobs.size()));
    }
    const size_t num_waiting = num_waiting_ + num_submitted_;
    if (num_waiting + jobs.size() > most_waiting_) {
      return QueueFull(fmt::format("the queue is full: {} requests are waiting", num_waiting));
    }
    num_submitted_ += jobs.size();
    for (Job& job : jobs) messages_.emplace_back(std::move(job));
  }
  wake_.NotifyOne();
  return OkStatus();
}

void Mailbox::Post(Message message) {
  {
    const MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
  }
  wake_.NotifyOne();
}

void Mailbox::Stop() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  wake_.NotifyOne();
}

Mailbox::Delivery Mailbox::Take(std::optional<std::chrono::steady_clock::time_point> until) {
  const MutexLock lock(mutex_);
  while (messages_.empty() && !is_stopped_) {
    if (!until.has_value()) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitUntil(mutex_, *until)) {
      break;
    }
  }
  num_waiting_ += std::exchange(num_submitted_, 0);
  return {.messages = std::exchange(messages_, {}), .is_stopped = is_stopped_};
}

void Mailbox::SetWaiting(size_t num_waiting) {
  const MutexLock lock(mutex_);
  num_waiting_ = num_waiting;
}

}  // namespace ebb::server
