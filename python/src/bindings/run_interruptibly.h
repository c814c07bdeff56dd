// Runs long work of the laboratory so that Ctrl-C ends it.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_PYTHON_RUN_INTERRUPTIBLY_H_
#define EBB_PYTHON_RUN_INTERRUPTIBLY_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "bindings.h"

namespace ebb::python {

// Runs `work` on a thread of its own and without the GIL, while this one runs signals' handlers.
// An exception that a handler raises sets *cancel, and is raised again when `work` has ended.
// REQUIRES: the GIL.
inline void RunInterruptibly(const std::function<void()>& work, std::atomic<bool>* cancel) {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::thread thread([&] {
    work();
    const std::lock_guard lock(mutex);
    is_over = true;
    ended.notify_one();
  });
  std::optional<nb::python_error> raised;
  while (true) {
    bool over = false;
    {
      nb::gil_scoped_release release;
      std::unique_lock lock(mutex);
      over = ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return is_over; });
    }
    if (over) break;
    if (!raised.has_value() && PyErr_CheckSignals() != 0) {
      raised.emplace();
      *cancel = true;
    }
  }
  {
    nb::gil_scoped_release release;
    thread.join();
  }
  if (raised.has_value()) throw std::move(*raised);
}

}  // namespace ebb::python

#endif  // EBB_PYTHON_RUN_INTERRUPTIBLY_H_
