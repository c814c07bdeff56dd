// The standard library's mutex and condition variable, annotated for clang's thread safety
// analysis. `scripts/check_threads` (a part of `make lint`) fails for a member that is accessed
// without the mutex that guards it. Other compilers ignore the annotations.
//
//   Mutex mutex_;
//   std::vector<int> queue_ EBB_GUARDED_BY(mutex_);
//   int TakeNext() EBB_REQUIRES(mutex_);
//
// The analysis looks into each function alone, lambdas included: a condition is a loop around
// CondVar::Wait() rather than a predicate.
#ifndef EBB_BASE_THREADS_MUTEX_H_
#define EBB_BASE_THREADS_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define EBB_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define EBB_THREAD_ANNOTATION(attribute)
#endif

// The member may be accessed only while `mutex` is held.
#define EBB_GUARDED_BY(mutex) EBB_THREAD_ANNOTATION(guarded_by(mutex))
// The function may be called only while `mutex` is held.
#define EBB_REQUIRES(mutex) EBB_THREAD_ANNOTATION(requires_capability(mutex))
// The function takes `mutex`, and may be called only while it is not held.
#define EBB_EXCLUDES(mutex) EBB_THREAD_ANNOTATION(locks_excluded(mutex))

namespace ebb {

class EBB_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() EBB_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() EBB_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  // Tells the analysis that the caller's caller holds it, for a lambda that is called at once.
  void AssertHeld() const EBB_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex as long as it lives, except between Unlock() and Lock().
class EBB_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) EBB_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() EBB_THREAD_ANNOTATION(release_capability()) {
    if (is_held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() EBB_THREAD_ANNOTATION(release_capability()) {
    is_held_ = false;
    mutex_.Unlock();
  }
  void Lock() EBB_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.Lock();
    is_held_ = true;
  }

 private:
  Mutex& mutex_;
  bool is_held_ = true;
};

class CondVar {
 public:
  // Releases `mutex` while it waits. May return without a notification.
  void Wait(Mutex& mutex) EBB_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    wake_.wait(lock);
    lock.release();
  }
  // Returns false if `deadline` has passed.
  [[nodiscard]] bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      EBB_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = wake_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { wake_.notify_one(); }
  void NotifyAll() { wake_.notify_all(); }

 private:
  std::condition_variable wake_;
};

}  // namespace ebb

#endif  // EBB_BASE_THREADS_MUTEX_H_
