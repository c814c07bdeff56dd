// SessionPool owns all jobs that have not ended, the sessions of running and parked jobs, and
// sessions that outlive their jobs: cached prompts (PrefixCache) and sessions between requests
// (SessionShelf). It counts the T0 bytes of each, and carries out the plans that the schedule
// makes.
//
// T0 counts as full only when no cached prompt is left to evict.
//
// Thread safety: used only on the engine's thread.
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
  PrefixStore* prefix_store = nullptr;  // notified of each use of a prompt; null: no store
  bool keeps_fates = false;
};

class SessionPool {
 public:
  // Makes a pool for the sessions of `engine`. REQUIRES: clock and figures outlive the pool.
  SessionPool(std::unique_ptr<Engine> engine, const SessionPoolOptions& options,
              const EngineClock* clock, Figures* figures);

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] PrefixCache& prefixes() { return prefixes_; }
  [[nodiscard]] const std::vector<std::unique_ptr<JobRun>>& jobs() const { return jobs_; }
  [[nodiscard]] JobRun* Find(JobId id) const;  // returns null if the job has ended

  // Returns the session of a job, or the one that the job left on the shelf; null: there is none.
  [[nodiscard]] const Session* FindSession(JobId id) const;

  JobRun* Add(Job job);
  // Computes how many bytes of each tier the job needs, and passes them to JobRun::SetNeeds().
  // Errors: T0Full (the tiers can never hold the job); those of Engine::CountNeeds().
  [[nodiscard]] Status Admit(JobRun* run) const;
  // Removes a job that has ended. The prefix cache or the shelf may keep its session;
  // `end->resting` is then the session's number on the shelf.
  void Remove(JobRun* run, JobEnd* end);
  void Discard(uint64_t resting) { shelf_.Discard(resting); }
  // Drops all cached prompts and turns prefix caching off.
  void DropPrefixes() { prefixes_ = PrefixCache(0); }

  // Returns the input of the schedule: the state of the machine, and the jobs in order of arrival
  // with the memory that they hold.
  [[nodiscard]] State Look() const;
  // Updates the figures' counts of rows and bytes, of all sessions and cached prompts, if the last
  // counts are old enough.
  void CountRows();

  // Carries out an action of a plan. This function and the four below return a failure that must
  // end the job. If memory is full, the job keeps its phase, and the machine's state records the
  // refusal.
  using Failure = std::optional<JobFailure>;
  [[nodiscard]] Failure Start(JobRun* run);
  [[nodiscard]] Failure Park(JobRun* run);
  [[nodiscard]] Failure Resume(JobRun* run);
  [[nodiscard]] Failure SetShare(JobRun* run, double share);
  // Begins to read the job's prompt, before its first step: finds the session or cached prompt with
  // the longest common prefix, shares its rows, and leaves the rest to read.
  [[nodiscard]] Failure BeginPrompt(JobRun* run);

  // Returns the session, running or cached, with the longest prefix of the job's prompt.
  [[nodiscard]] PrefixSource FindPrefix(const JobRun& run, std::span<const Token> prompt);
  // Gives a fork of the session of `run`, which has just read its prompt, to every job that still
  // has to read the same prompt. Does so only if the policy leaves no prefix that they could share.
  // Returns the jobs that got a fork.
  [[nodiscard]] std::vector<JobRun*> ForkToIdenticalPrompts(const JobRun& run);
  // Demotes or evicts one cached prompt. Returns false if there is none.
  bool EvictPrefix();
  // Handles a step that was refused because T0 was full: evicts a cached prompt; without one, takes
  // the T0 in use now as the size of T0 until a job ends.
  void NoteRefusal();
  void ForgetRefusal() { machine_.t0_refused = false; }

 private:
  [[nodiscard]] Result<JobState> CountNeeds(const Job& job) const;
  // Evicts cached prompts until they and the needs of `run` and of all jobs with sessions fit into
  // the joint cap of T0 and T2.
  void MakeRoomForNeeds(const JobRun& run);
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(JobRun* run);
  [[nodiscard]] Failure NotBegun(JobRun* run, const Status& status);
  // Shares the rows of `source` with the job's session. Returns false on failure; the session is
  // then unusable.
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
  uint64_t t0_cap_ = kNoCap;  // cap of T0, or of T0 and T2 together (caps_t2_too_)
  bool caps_t2_too_ = false;
  uint64_t page_bytes_ = 0;  // bytes of one page of every stream
  double rows_counted_ = 0;  // time of CountRows()'s last count
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_POOL_H_
