// The engine's thread, and how other threads reach it: their calls become messages in its Mailbox,
// which its StepLoop reads. It sends each job's updates, and never waits for the receiver.
//
// Memory: the caps of the engine's tiers are of all jobs together. A session is opened without caps
// of its own, so that what leaves T0 for T2 and T3 follows its request alone. How much of T0 it has
// follows the schedule, by Session::SetT0Share(), SetT0Floor() and Park(), none of which changes a
// bit.
//
// Prefix caching: the first step of a job that reads takes the rows of the longest prefix of its
// prompt that another session has, one that runs or one whose job is over (PrefixCache). Idle
// cached prefixes are evicted before any request is parked.
//
// Thread safety: all members but the constructor's and the destructor's may be called from any
// thread. `tell` is called on the engine's thread.
#ifndef EBB_SERVER_ENGINE_DRIVER_H_
#define EBB_SERVER_ENGINE_DRIVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "src/server/engine/figures.h"
#include "src/server/engine/job.h"
#include "src/server/engine/job_view.h"
#include "src/server/engine/prefix_store.h"

namespace ebb::server {

struct DriverOptions {
  size_t most_waiting = 64;         // jobs that wait for their turn
  size_t most_running = 32;         // jobs that are read or decoded at once
  uint64_t prefix_cache_bytes = 0;  // of prompts that are kept; 0: none is, nor are rows shared
  // Stores prompts beyond the life of the process; null: prompts are not stored. The driver stops
  // it.
  std::shared_ptr<PrefixStore> prefix_store = {};
  bool keeps_fates = false;  // sessions keep a ledger, so that Trace() tells of tokens' tiers
};

class Driver {
 public:
  using Tell = std::function<void(std::vector<JobUpdate>)>;
  Driver(std::unique_ptr<Engine> engine, const DriverOptions& options, Tell tell);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // All of them or none. Updates of a job come until one has an end. Errors: QueueFull (too
  // many are waiting); Cancelled (after Stop()).
  [[nodiscard]] Status Submit(std::vector<Job> jobs);
  // It ends with kCancelled, and gives its memory back, after at most one step or one piece of a
  // prompt. One that is over is not missed.
  void Cancel(JobId id);
  // Its thought ends with the next token, or as soon as it begins. One that is over or has no
  // thoughts is not changed.
  void EndThought(JobId id);
  // Discards a session that JobEnd::resting named.
  void Discard(uint64_t resting);
  [[nodiscard]] Figures figures() const;
  // Calls `tell` with a snapshot between two steps, on the engine's thread; after Stop() never.
  void Look(std::function<void(Snapshot)> tell);
  // Nothing: the job has no session yet, or is over.
  void Trace(JobId id, std::function<void(std::optional<TokenFates>)> tell);
  // Ends all jobs with kCancelled. All updates have been sent when it returns. Not from `tell`.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// `session` for a server whose engine has `tiers`: without caps of its own; where T0 has a cap, as
// much of T0 as there is. Errors: InvalidArgument ("--evict caps": evictions would depend on other
// requests).
[[nodiscard]] Status ShareTiers(SessionOptions* session);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_DRIVER_H_
