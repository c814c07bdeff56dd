// The jobs that are there, the sessions of those that run or are parked, and the sessions that
// outlive their jobs: prompts that others may share (PrefixCache), and sessions that rest between
// requests (SessionShelf). The pool knows how much of T0 each has, and decides nothing: the
// schedule does.
//
// T0 counts as full only when no kept prompt is left that could be evicted.
//
// Thread safety: belongs to the engine's thread.
#ifndef EBB_SERVER_ENGINE_SESSION_POOL_H_
#define EBB_SERVER_ENGINE_SESSION_POOL_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "src/server/engine/job_run.h"
#include "src/server/engine/prefix_cache.h"
#include "src/server/engine/prefix_store.h"
#include "src/server/engine/schedule.h"
#include "src/server/engine/session_shelf.h"

namespace ebb::server {

struct SessionPoolOptions {
  size_t most_running = 32;
  uint64_t prefix_cache_bytes = 0;
  PrefixStore* prefix_store = nullptr;  // is notified of the prompts that are used; null: not there
  bool keeps_fates = false;
};

class SessionPool {
 public:
  // `clock` and `figures` outlive it.
  SessionPool(std::unique_ptr<Engine> engine, const SessionPoolOptions& options,
              const EngineClock* clock, Figures* figures);

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] PrefixCache& prefixes() { return prefixes_; }
  [[nodiscard]] const std::vector<std::unique_ptr<JobRun>>& jobs() const { return jobs_; }
  [[nodiscard]] JobRun* Find(JobId id) const;  // null: it is over

  JobRun* Add(Job job);
  // Counts the bytes that the job needs of each tier. Errors: T0Full (the tiers can never hold it);
  // those of Engine::CountNeeds().
  [[nodiscard]] Status Admit(JobRun* run) const;
  // Keeps the session of a job that is over where it can be kept, and destroys the job.
  void Remove(JobRun* run, JobEnd* end);
  void Discard(uint64_t resting) { shelf_.Discard(resting); }
  // From now on prompts are neither kept nor shared.
  void DropPrefixes() { prefixes_ = PrefixCache(0); }

  // The machine, and the jobs in order of arrival, with what they hold.
  [[nodiscard]] State Look() const;
  // Adds the rows and bytes of all sessions and kept prompts to the figures.
  void CountRows();

  // Carry out a plan. Each returns a failure that ends the job. A job that found no room keeps its
  // phase, and the machine's state says so.
  using Failure = std::optional<JobFailure>;
  [[nodiscard]] Failure Start(JobRun* run);
  [[nodiscard]] Failure Park(JobRun* run);
  [[nodiscard]] Failure Resume(JobRun* run);
  [[nodiscard]] Failure SetShare(JobRun* run, double share);
  // Before the first step that reads: takes the rows of a prompt that begins alike.
  [[nodiscard]] Failure BeginPrompt(JobRun* run);

  // The session that has the longest beginning of the job's prompt.
  [[nodiscard]] PrefixSource FindPrefix(const JobRun& run, std::span<const Token> prompt);
  // Forks a session whose prompt was just read to queued jobs with the same prompt, if its policy
  // leaves no prefix. Returns the jobs that have a fork now.
  [[nodiscard]] std::vector<JobRun*> ForkToIdenticalPrompts(const JobRun& run);
  // Evicts or demotes one kept prompt. Returns false if there is none.
  bool EvictPrefix();
  // A step found no room in T0. Evicts a kept prompt if there is one; else T0 counts as no larger
  // than it is now until a job ends.
  void NoteRefusal();
  void ForgetRefusal() { machine_.t0_refused = false; }

 private:
  [[nodiscard]] Result<JobState> CountNeeds(const Job& job) const;
  // Evicts kept prompts until they and the needs of all jobs with sessions, and of this one, are
  // within the cap of T0 and T2.
  void MakeRoomForNeeds(const JobRun& run);
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(JobRun* run);
  [[nodiscard]] Failure NotBegun(JobRun* run, const Status& status);
  // Returns false if the job's session is good only for being destroyed.
  [[nodiscard]] bool TakePrefix(JobRun* run, const PrefixSource& source,
                                const std::vector<Token>& prompt);
  [[nodiscard]] Failure BringToT0(JobRun* run);
  [[nodiscard]] bool IsCapped() const { return t0_cap_ != kNoCap; }

  const std::unique_ptr<Engine> engine_;
  const SessionPoolOptions options_;
  const EngineClock* const clock_;
  Figures* const figures_;
  std::vector<std::unique_ptr<JobRun>> jobs_;  // in order of arrival
  PrefixCache prefixes_;
  SessionShelf shelf_;
  MachineState machine_;
  uint64_t t0_cap_ = kNoCap;  // of T2 as well if caps_t2_too_
  bool caps_t2_too_ = false;
  uint64_t page_bytes_ = 0;  // of a page of each stream
  double rows_counted_ = 0;  // when
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_POOL_H_
