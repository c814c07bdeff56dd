// Mutex and CondVar wrap the standard library's mutex and condition variable with annotations for
// clang's thread safety analysis. `scripts/check_threads` (a part of `make lint`) fails for a
// member that is accessed without the mutex that guards it. Other compilers ignore the annotations.
//
//   Mutex mutex_;
//   std::vector<int> queue_ EBB_GUARDED_BY(mutex_);
//   int TakeNext() EBB_REQUIRES(mutex_);
//
// The analysis examines each function alone, lambdas included. Therefore write a condition as a
// loop around CondVar::Wait(), not as a predicate.
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

// EBB_GUARDED_BY declares that a member may be accessed only while `mutex` is held.
#define EBB_GUARDED_BY(mutex) EBB_THREAD_ANNOTATION(guarded_by(mutex))
// EBB_REQUIRES declares that a function may be called only while `mutex` is held.
#define EBB_REQUIRES(mutex) EBB_THREAD_ANNOTATION(requires_capability(mutex))
// EBB_EXCLUDES declares that a function locks `mutex`, and may be called only while it is not held.
#define EBB_EXCLUDES(mutex) EBB_THREAD_ANNOTATION(locks_excluded(mutex))

namespace ebb {

class EBB_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() EBB_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() EBB_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  // Declares to the analysis that the mutex is held, for a lambda that a function calls while it
  // holds the mutex.
  void AssertHeld() const EBB_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// MutexLock holds a mutex as long as it exists, except between Unlock() and Lock().
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
  // Releases `mutex` while it waits, and holds it again on return. May return without a
  // notification.
  void Wait(Mutex& mutex) EBB_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    wake_.wait(lock);
    lock.release();
  }
  // Waits as Wait() does. Returns false if `deadline` has passed.
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
