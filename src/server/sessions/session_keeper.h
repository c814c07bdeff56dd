// SessionKeeper manages sessions that outlive their requests: it decides which request may use one,
// knows where its rows are, saves it to the store and fetches it from there. It holds a session's
// lease while a request uses the session, and while changes by a request are not saved.
//
// Between requests a session may also stay in the driver's memory. Such a copy is valid only while
// the store still has the same generation of the session, because another server may have continued
// it.
//
// Thread safety: all members except WaitUntilSaved() and Stop() must be called on the thread of
// connections, on which callbacks run too. The keeper calls the store on threads of its own.
#ifndef EBB_SERVER_SESSIONS_SESSION_KEEPER_H_
#define EBB_SERVER_SESSIONS_SESSION_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/base/api_error.h"
#include "src/server/api/token_reasons.h"
#include "src/server/engine/job.h"
#include "src/server/engine/session_record.h"
#include "src/server/engine/session_work.h"
#include "src/store/session_store.h"

namespace ebb::server {

// Configures a SessionKeeper. Times are in seconds.
struct SessionKeeperOptions {
  store::StoreLimits limits;
  double idle = 300;            // seconds an unused session stays in memory
  double lifetime = 7 * 86400;  // seconds an unused session stays in the store
  int checkpoint_every = 256;   // answer tokens between saves; 0: none
  size_t most_resting = 32;     // limit of unused sessions in memory
};

// SessionTraits describes, as text, the model and options that a request must share with its
// session.
struct SessionTraits {
  std::string model;
  std::string policy;
  std::string tiers;
};

// SessionUse is one request's use of a session. It lasts from Enter() until the keeper has handled
// the end of its job, or until Leave().
struct SessionUse {
  store::SessionName name;
  SessionTraits traits;
  store::Lease lease;
  int64_t created_ms = 0;
  std::string generation;  // the store's generation; empty: not stored yet
  SessionRecord record;
  // Locates the rows: in the driver's memory under the number `resting`, or in `file`; neither for
  // a new session.
  std::optional<uint64_t> resting;
  std::string file;
};

class SessionKeeper {
 public:
  struct Hooks {
    // Runs work on the thread of connections.
    std::function<void(std::function<void()>)> post;
    std::function<void(uint64_t resting)> discard;  // calls Driver::Discard()
    std::function<void(JobId)> cancel;              // calls Driver::Cancel()
    AskReasons explain;                             // calls Driver::Explain()
    // Receives the last update of a job, after its session was saved or saving has failed.
    std::function<void(JobUpdate)> deliver;
  };
  // Creates a keeper on `store`. Errors: Io (no folder for files can be made).
  static Result<std::unique_ptr<SessionKeeper>> Create(std::unique_ptr<store::SessionStore> store,
                                                       const SessionKeeperOptions& options,
                                                       Hooks hooks);
  ~SessionKeeper();
  SessionKeeper(const SessionKeeper&) = delete;
  SessionKeeper& operator=(const SessionKeeper&) = delete;

  // Acquires the lease of a session, fetches the session, and calls `then` with its use. While
  // another request or server has the lease, waits for about as long as a lease lasts; fails at
  // once if `waits` is false. Errors: 409 session_busy; 409 session_mismatch, session_corrupt; 503
  // session_store_unavailable, session_store_full.
  using Entered = std::function<void(ApiResult<std::shared_ptr<SessionUse>>)>;
  void Enter(const store::SessionName& name, const SessionTraits& traits, Entered then,
             bool waits = true);
  // Ends a use for which no job was begun.
  void Leave(const std::shared_ptr<SessionUse>& use);
  // Begins the use's job: fills in `work` for the driver. All updates of the job must then be
  // passed to Take(). Returns false if the lease was lost since then; the caller must then cancel
  // the job as soon as the driver has it.
  [[nodiscard]] bool Begin(const std::shared_ptr<SessionUse>& use, JobId job, SessionWork* work);
  // Handles the saved session and the end of the job, and removes them from `update`;
  // Hooks::deliver delivers the end later. Returns false if the job has no session of this keeper.
  bool Take(JobUpdate* update);

  // Answers GET /v1/sessions: lists the tenant's sessions. This function and those below serve
  // requests about sessions; requests within a session use Enter().
  using Answered = std::function<void(HttpAnswer)>;
  void List(const std::string& tenant, Answered then);
  void Describe(const store::SessionName& name, Answered then);
  // Answers with the stored messages of both sides, with the thoughts in answers.
  void Messages(const store::SessionName& name, Answered then);
  void Delete(const store::SessionName& name, Answered then);
  void Fork(const store::SessionName& from, const std::string& to, Answered then);
  void Park(const store::SessionName& name, Answered then);
  // Answers why the token that `path` names is in its tier (AnswerReasons()), while a request
  // uses the session or the session rests in memory.
  void Explain(const store::SessionName& name, std::string_view path, Answered then);

  // Returns the figures for /metrics.
  [[nodiscard]] std::string MetricsText() const;

  // Waits until the session of every ended job is saved or saving has failed, for at most
  // `seconds`. REQUIRES: called from another thread than that of connections.
  void WaitUntilSaved(double seconds);
  // Waits for operations under way; afterwards no callback is posted. REQUIRES: called from another
  // thread than that of connections, which still runs.
  void Stop();

 private:
  SessionKeeper();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_KEEPER_H_
