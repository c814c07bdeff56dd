// Sessions that outlive their requests: who may use one, where its rows are, and how they get into
// the store and back. It holds the lease of a session as long as a request uses it, or as long as
// what a request changed could not be saved.
//
// A session rests in memory too, for a request that comes soon; such a copy counts only while the
// store still holds the generation that it belongs to, since another server may have gone on.
//
// Thread safety: all members belong to the thread of connections, on which callbacks come too, but
// for WaitUntilSaved() and Stop(). The store is used on threads of the keeper's own.
#ifndef EBB_SERVER_SESSIONS_SESSION_KEEPER_H_
#define EBB_SERVER_SESSIONS_SESSION_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/server/api/api_error.h"
#include "src/server/engine/job.h"
#include "src/server/engine/session_record.h"
#include "src/server/engine/session_work.h"
#include "src/store/session_store.h"

namespace ebb::server {

// Times in seconds.
struct SessionKeeperOptions {
  store::StoreLimits limits;
  double idle = 300;            // that a session rests in memory
  double lifetime = 7 * 86400;  // that it rests in the store without being used
  int checkpoint_every = 256;   // tokens of an answer; 0: never
  size_t most_resting = 32;     // in memory
};

// The properties that a session must have in common with a request, as text.
struct SessionTraits {
  std::string model;
  std::string policy;
  std::string tiers;
};

// A request's use of a session, from Enter() until its job's end was taken, or Leave().
struct SessionUse {
  store::SessionName name;
  SessionTraits traits;
  store::Lease lease;
  int64_t created_ms = 0;
  std::string generation;  // in the store; empty: none
  SessionRecord record;
  // One of both, or neither for a new session.
  std::optional<uint64_t> resting;
  std::string file;
};

class SessionKeeper {
 public:
  struct Hooks {
    // Runs work on the thread of connections.
    std::function<void(std::function<void()>)> post;
    std::function<void(uint64_t resting)> discard;  // Driver::Discard()
    std::function<void(JobId)> cancel;              // Driver::Cancel()
    // The end of a job, once its session is saved or could not be.
    std::function<void(JobUpdate)> deliver;
  };
  // Errors: Io (no folder for files).
  static Result<std::unique_ptr<SessionKeeper>> Create(std::unique_ptr<store::SessionStore> store,
                                                       const SessionKeeperOptions& options,
                                                       Hooks hooks);
  ~SessionKeeper();
  SessionKeeper(const SessionKeeper&) = delete;
  SessionKeeper& operator=(const SessionKeeper&) = delete;

  // Waits for the lease as long as one lasts, or not at all. Errors: 409 session_busy; 409
  // session_mismatch, session_corrupt; 503 session_store_unavailable, session_store_full.
  using Entered = std::function<void(ApiResult<std::shared_ptr<SessionUse>>)>;
  void Enter(const store::SessionName& name, const SessionTraits& traits, Entered then,
             bool waits = true);
  // No job came of it.
  void Leave(const std::shared_ptr<SessionUse>& use);
  // Fills in `work` for the driver; updates of the job must be given to Take(). False: the lease
  // has been lost meanwhile, so the job is to be cancelled as soon as the driver has it.
  [[nodiscard]] bool Begin(const std::shared_ptr<SessionUse>& use, JobId job, SessionWork* work);
  // Takes the session's part out of an update, and its end, which is delivered later. False: it is
  // of no job that was begun here.
  bool Take(JobUpdate* update);

  // Requests about sessions rather than to them.
  using Answered = std::function<void(HttpAnswer)>;
  void List(const std::string& tenant, Answered then);
  void Describe(const store::SessionName& name, Answered then);
  // The messages of both sides, thoughts of answers among them, as far as the store has them.
  void Messages(const store::SessionName& name, Answered then);
  void Delete(const store::SessionName& name, Answered then);
  void Fork(const store::SessionName& from, const std::string& to, Answered then);
  void Park(const store::SessionName& name, Answered then);

  // For /metrics.
  [[nodiscard]] std::string MetricsText() const;

  // From another thread: until all that has ended is saved or could not be, at most `seconds`.
  void WaitUntilSaved(double seconds);
  // Called from another thread: waits for operations under way; nothing is posted after it. The
  // thread of connections must still run.
  void Stop();

 private:
  SessionKeeper();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_KEEPER_H_
