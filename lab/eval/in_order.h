// InOrder passes on the results of parallel workers in order.
#ifndef EBB_LAB_EVAL_IN_ORDER_H_
#define EBB_LAB_EVAL_IN_ORDER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "ebb/status.h"
#include "src/base/threads/mutex.h"

namespace ebb {

// kMostAhead is the default of most_ahead in InOrder's constructor.
inline constexpr size_t kMostAhead = 64;

// InOrder passes results to a sink in the order of their units; they may arrive in any order.
template <typename T>
class InOrder {
 public:
  // Begins at unit `first`. `most_ahead` is how many units may run beyond the first unfinished one;
  // a small number limits the results that a killed process loses.
  InOrder(size_t first, size_t most_ahead, const std::function<Status(const T&)>& sink)
      : most_ahead_(most_ahead), next_(first), sink_(sink) {}

  // Returns whether a worker may begin this unit now.
  [[nodiscard]] bool IsTurn(size_t unit) {
    const MutexLock lock(mutex_);
    return unit < next_ + most_ahead_;
  }
  // Waits until a worker may begin this unit, or until Stop().
  void WaitForTurn(size_t unit) {
    const MutexLock lock(mutex_);
    while (!stopped_ && unit >= next_ + most_ahead_) turn_.Wait(mutex_);
  }

  void Put(size_t unit, T result) {
    const MutexLock lock(mutex_);
    waiting_.emplace(unit, std::move(result));
    while (!stopped_ && !waiting_.empty() && waiting_.begin()->first == next_) {
      const Status status = sink_(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      ++next_;
      if (!status.ok()) StopLocked(status);
    }
    turn_.NotifyAll();
  }

  void Stop(const Status& why) {
    const MutexLock lock(mutex_);
    StopLocked(why);
  }

  [[nodiscard]] bool stopped() {
    const MutexLock lock(mutex_);
    return stopped_;
  }
  [[nodiscard]] Status status() {
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  void StopLocked(const Status& why) EBB_REQUIRES(mutex_) {
    if (!stopped_) status_ = why;
    stopped_ = true;
    turn_.NotifyAll();
  }

  const size_t most_ahead_;
  Mutex mutex_;
  CondVar turn_;
  size_t next_ EBB_GUARDED_BY(mutex_);
  std::map<size_t, T> waiting_ EBB_GUARDED_BY(mutex_);  // finished units, by number
  bool stopped_ EBB_GUARDED_BY(mutex_) = false;
  Status status_ EBB_GUARDED_BY(mutex_);
  const std::function<Status(const T&)>& sink_;  // is called with mutex_ held
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_IN_ORDER_H_
