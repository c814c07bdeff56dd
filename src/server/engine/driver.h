// Driver runs the engine's thread. Other threads' calls become messages in its Mailbox, which its
// StepLoop reads. The driver sends each job's updates and never waits for the receiver.
//
// Memory: the caps of the engine's tiers hold for all jobs together. A session is opened without
// caps of its own, so its request alone determines which rows leave T0 for T2 and T3. The schedule
// determines how much of T0 a session has, by Session::SetT0Share(), SetT0Floor() and Park(), none
// of which changes a bit of the answer.
//
// Prefix caching: when a job begins to read its prompt, it shares the rows of the longest prefix
// that another session has: one that runs, or one whose job has ended (PrefixCache). Idle cached
// prefixes are evicted before any request is parked.
//
// Thread safety: all members but the constructor and the destructor may be called from any thread.
// `tell` is called on the engine's thread.
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
  size_t most_waiting = 64;         // limit of jobs in the queue
  size_t most_running = 32;         // limit of jobs in prefill or decode
  uint64_t prefix_cache_bytes = 0;  // memory limit of cached prompts; 0: no prefix caching
  // Stores prompts beyond the life of the process; null: prompts are not stored. The driver calls
  // PrefixStore::Stop() when it stops.
  std::shared_ptr<PrefixStore> prefix_store = {};
  bool keeps_fates = false;  // sessions keep a ledger, which Trace() needs
};

class Driver {
 public:
  using Tell = std::function<void(std::vector<JobUpdate>)>;
  Driver(std::unique_ptr<Engine> engine, const DriverOptions& options, Tell tell);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Queues all jobs or none. The job's updates are then sent to `tell`; the last one has
  // JobUpdate::end. Errors: QueueFull (too many jobs are waiting); Cancelled (after Stop()).
  [[nodiscard]] Status Submit(std::vector<Job> jobs);
  // Cancels a job: it ends with kCancelled and frees its memory after at most one step or one chunk
  // of a prompt. Ignores a job that has ended.
  void Cancel(JobId id);
  // Ends the job's thought with the next token, or as soon as the thought begins. Ignores a job
  // that has ended or has no thoughts.
  void EndThought(JobId id);
  // Destroys the session that a job left in memory under the number JobEnd::resting.
  void Discard(uint64_t resting);
  [[nodiscard]] Figures figures() const;
  // Calls `tell` with a snapshot between two steps, on the engine's thread; never after Stop().
  void Look(std::function<void(Snapshot)> tell);
  // Calls `tell` with the tiers of a job's tokens, on the engine's thread; with nullopt if the job
  // has no session yet or has ended.
  void Trace(JobId id, std::function<void(std::optional<TokenFates>)> tell);
  // Calls `tell` with the places of a token of the job's session, or of the session that the job
  // left (JobEnd::resting), on the engine's thread; with nullopt if no such session is in memory.
  void Explain(JobId id, Position position, std::function<void(std::optional<TokenReasons>)> tell);
  // Ends all jobs with kCancelled, and returns when all updates have been sent. REQUIRES: not
  // called from `tell`.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Lets all sessions of the engine share the caps of its tiers. Errors: InvalidArgument (options of
// `session` with which results would depend on other requests: "--evict caps", and selective
// reading under a cap on T0).
[[nodiscard]] Status ShareTiers(const SessionOptions& session, EngineOptions* engine);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_DRIVER_H_
