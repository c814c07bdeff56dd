#include <fmt/format.h>
#include <signal.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/threads/mutex.h"
#include "src/io/io_queue.h"

namespace ebb {
namespace {

// SignalsBlocked blocks all signals in threads that start while it exists, so that the program's
// other threads handle them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class ThreadQueue final : public IoQueue {
 public:
  // Starts the threads. May throw std::system_error or std::bad_alloc.
  ThreadQueue(int fd, int depth, int num_threads) : fd_(fd) {
    to_do_.reserve(depth);
    ended_.reserve(depth);
    threads_.reserve(num_threads);
    const SignalsBlocked blocked;
    try {
      for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();
      throw;
    }
  }
  ~ThreadQueue() override { Stop(); }

  void Start(std::span<const IoRequest> requests) override {
    {
      const MutexLock lock(mutex_);
      to_do_.insert(to_do_.end(), requests.begin(), requests.end());
    }
    if (requests.size() == 1) {
      work_or_stop_.NotifyOne();
    } else {
      work_or_stop_.NotifyAll();
    }
  }

  size_t Take(Until until, std::span<IoCompletion> ended) override {
    const MutexLock lock(mutex_);
    while (until == Until::kOne && ended_.empty()) one_ended_.Wait(mutex_);
    const size_t num = std::min(ended.size(), ended_.size());
    std::copy_n(ended_.begin(), num, ended.begin());
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<ptrdiff_t>(num));
    return num;
  }

 private:
  void Work() {
    MutexLock lock(mutex_);
    for (;;) {
      while (!stopped_ && to_do_.empty()) work_or_stop_.Wait(mutex_);
      if (stopped_) return;
      const IoRequest request = to_do_.front();
      to_do_.erase(to_do_.begin());
      lock.Unlock();
      const IoCompletion completion = {.tag = request.tag, .result = Transfer(request)};
      lock.Lock();
      ended_.push_back(completion);
      one_ended_.NotifyOne();
    }
  }

  [[nodiscard]] int64_t Transfer(const IoRequest& request) const {
    const auto num_parts = static_cast<int>(request.parts.size());
    const auto offset = static_cast<off_t>(request.offset);
    const ssize_t num_bytes = request.call == DiskCall::kRead
                                  ? preadv(fd_, request.parts.data(), num_parts, offset)
                                  : pwritev(fd_, request.parts.data(), num_parts, offset);
    return num_bytes < 0 ? -errno : num_bytes;
  }

  void Stop() {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    work_or_stop_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  const int fd_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar work_or_stop_;
  CondVar one_ended_;
  // Holds requests in order; never grows past its capacity, the queue's depth.
  std::vector<IoRequest> to_do_ EBB_GUARDED_BY(mutex_);
  std::vector<IoCompletion> ended_ EBB_GUARDED_BY(mutex_);
  bool stopped_ EBB_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<IoQueue>> MakeThreadQueue(int fd, int depth, int num_threads) {
  try {
    return std::unique_ptr<IoQueue>(std::make_unique<ThreadQueue>(fd, depth, num_threads));
  } catch (const std::system_error& error) {
    return OutOfMemory(fmt::format("cannot start {} threads that wait for the disk: {}",
                                   num_threads, error.code().message()));
  }
}

}  // namespace ebb
