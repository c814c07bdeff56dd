// Results of workers that run beside each other, handed on one after another.
#ifndef EBB_LAB_EVAL_IN_ORDER_H_
#define EBB_LAB_EVAL_IN_ORDER_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "ebb/status.h"

namespace ebb {

// Units that may be under way beyond the first that is not over, where nothing asks for more.
inline constexpr size_t kMostAhead = 64;

// Hands results on in the order of their units, whatever order they come in.
template <typename T>
class InOrder {
 public:
  // most_ahead: units that may be under way beyond the first that is not over, so that little is
  // lost by a kill.
  InOrder(size_t first, size_t most_ahead, const std::function<Status(const T&)>& sink)
      : most_ahead_(most_ahead), next_(first), sink_(sink) {}

  // Whether a unit may begin.
  [[nodiscard]] bool IsTurn(size_t unit) {
    const std::lock_guard lock(mutex_);
    return unit < next_ + most_ahead_;
  }
  // Until it is.
  void WaitForTurn(size_t unit) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return stopped_ || unit < next_ + most_ahead_; });
  }

  void Put(size_t unit, T result) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(unit, std::move(result));
    while (!stopped_ && !waiting_.empty() && waiting_.begin()->first == next_) {
      const Status status = sink_(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      ++next_;
      if (!status.ok()) StopLocked(status);
    }
    turn_.notify_all();
  }

  void Stop(const Status& why) {
    const std::lock_guard lock(mutex_);
    StopLocked(why);
  }

  [[nodiscard]] bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }
  [[nodiscard]] Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  void StopLocked(const Status& why) {
    if (!stopped_) status_ = why;
    stopped_ = true;
    turn_.notify_all();
  }

  const size_t most_ahead_;
  std::mutex mutex_;
  std::condition_variable turn_;
  size_t next_;                  // guarded by mutex_, as all below
  std::map<size_t, T> waiting_;  // by unit
  bool stopped_ = false;
  Status status_;
  const std::function<Status(const T&)>& sink_;
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_IN_ORDER_H_
