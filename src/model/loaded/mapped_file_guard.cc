#include "src/model/loaded/mapped_file_guard.h"

#include <sys/mman.h>

#include <cerrno>
#include <csignal>

#include "src/base/threads/mutex.h"

namespace ebb {
namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free);  // a signal handler reads them
static_assert(std::atomic<GuardedRange*>::is_always_lock_free);

// guarded_ranges is a list that only grows: ranges are reused but never freed, because the handler
// may read them at any time.
std::atomic<GuardedRange*> guarded_ranges{nullptr};
struct sigaction handler_before = {};

// Replaces the mapping at `address` by zeros. Calls only functions that a signal handler may call;
// mmap() is a bare system call.
bool ReplaceByZeros(uintptr_t address) {
  for (GuardedRange* range = guarded_ranges.load(); range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin.load();
    const size_t num_bytes = range->num_bytes.load();
    if (begin == 0 || address < begin || address - begin >= num_bytes) continue;
    range->is_lost.store(true);
    constexpr int kFlags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    return mmap(reinterpret_cast<void*>(begin), num_bytes, PROT_READ, kFlags, -1, 0) != MAP_FAILED;
  }
  return false;
}

extern "C" void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool replaced = ReplaceByZeros(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = error;
  if (replaced) return;
  if ((handler_before.sa_flags & SA_SIGINFO) != 0)
    return handler_before.sa_sigaction(signal, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    return handler_before.sa_handler(signal);
  }
  // Restores the default action, so that the instruction runs again and ends the process, as it
  // would without this handler.
  std::signal(signal, SIG_DFL);
}

void InstallBusErrorHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &action, &handler_before);
}

}  // namespace

GuardedRange* Guard(std::span<const std::byte> mapping) {
  static Mutex mutex;  // one range is added at a time; the handler reads them without it
  const MutexLock lock(mutex);
  static const bool installed = (InstallBusErrorHandler(), true);
  (void)installed;
  GuardedRange* range = guarded_ranges.load();
  while (range != nullptr && range->begin.load() != 0) range = range->next;
  const bool is_new = range == nullptr;
  if (is_new) range = new GuardedRange;
  range->is_lost.store(false);
  range->num_bytes.store(mapping.size());
  range->begin.store(reinterpret_cast<uintptr_t>(mapping.data()));
  if (is_new) {
    range->next = guarded_ranges.load();
    guarded_ranges.store(range);
  }
  return range;
}

void EndGuard(GuardedRange* range) { range->begin.store(0); }

}  // namespace ebb
