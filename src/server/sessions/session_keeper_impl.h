// SessionKeeper::Impl has the state of a SessionKeeper. `held` has the sessions whose leases this
// server has. A session leaves `held` when no request uses it and all its changes are in the store,
// or when its lease is lost. One write of a session runs at a time; the newest state waits in
// `next` or `unsaved`.
//
// Thread safety: members guarded by `mutex` are shared with the clock's thread and
// WaitUntilSaved(). `store`, `hooks` and `scratch` are also used on threads of the store. All other
// members are used only on the thread of connections.
#ifndef EBB_SERVER_SESSIONS_SESSION_KEEPER_IMPL_H_
#define EBB_SERVER_SESSIONS_SESSION_KEEPER_IMPL_H_

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "src/base/threads/mutex.h"
#include "src/server/engine/scratch_folder.h"
#include "src/server/sessions/session_keeper.h"

namespace ebb::server {

using Clock = std::chrono::steady_clock;

// HeldSession is a session whose lease this server has.
struct HeldSession {
  std::shared_ptr<SessionUse> use;
  bool is_used = true;  // false: no request uses it; a failed save is retried
  JobId job = 0;
  bool is_lost = false;
  bool is_writing = false;
  bool is_renewing = false;
  std::optional<SavedSession> next;     // state to write when the current write ends
  std::optional<JobUpdate> end;         // update to deliver once `next` is written
  std::optional<SavedSession> unsaved;  // newest state, if the store failed to save it
  std::string error;                    // why saving `unsaved` failed
  Clock::time_point renewed = Clock::now();
  Clock::time_point retry_at = {};
  double back_off = 1;  // seconds until the next try to save
};
using Holding = std::shared_ptr<HeldSession>;

// RestingCopy describes the copy of a saved session in the driver's memory.
struct RestingCopy {
  uint64_t number = 0;
  std::string generation;
  Clock::time_point used;
};

struct WaitingEntry {
  store::SessionName name;
  SessionTraits traits;
  SessionKeeper::Entered then;
  Clock::time_point deadline;  // in the past: the request does not wait
};
using Waiting = std::shared_ptr<WaitingEntry>;

[[nodiscard]] ApiError StoreError(const Status& status);
[[nodiscard]] ApiError BusyError(const store::SessionName& name);
[[nodiscard]] Json SessionJson(const store::Manifest& manifest);

struct SessionKeeper::Impl {
  Impl(std::unique_ptr<store::SessionStore> store_in, const SessionKeeperOptions& options_in,
       Hooks hooks_in, ScratchFolder scratch_in);

  void Enter(const Waiting& entry);
  void Wait(const Waiting& entry);
  void Acquired(const Waiting& entry, const Result<std::optional<store::Lease>>& lease);
  // Returns `begun` completed with the session's record, generation and file from the store. Runs
  // on a thread of the store.
  [[nodiscard]] ApiResult<std::shared_ptr<SessionUse>> Fetch(const SessionUse& begun,
                                                             const std::string& resting_generation);
  void Entered(const Waiting& entry, const Holding& held,
               ApiResult<std::shared_ptr<SessionUse>> result);
  void Adopt(const Waiting& entry, const Holding& held);
  void Advance(const Holding& held);
  void Write(const Holding& held, SavedSession saved);
  void Written(const Holding& held, SavedSession saved, const Result<store::Held>& outcome,
               const store::Manifest& manifest);
  void Conclude(const Holding& held);
  // Ends a request's use of a session: keeps the session in memory under the number `resting`, and
  // releases the lease unless changes are unsaved.
  void Rest(const Holding& held, std::optional<uint64_t> resting);
  void Lose(const Holding& held);
  void Drop(const Holding& held);
  // Removes `holding` from `held`, unless the session's name has another holding there.
  void Forget(const Holding& holding);
  void KeepCopy(const store::SessionName& name, uint64_t number, const std::string& generation);
  void DropCopy(const store::SessionName& name);
  void RemoveFile(const std::string& file);
  void Tick();
  void Renew(const Holding& held);
  void UpdateClock();
  void RunClock();
  void Release(const store::Lease& lease);
  [[nodiscard]] Holding Find(const store::SessionName& name) const {
    const auto found = held.find(name);
    return found == held.end() ? nullptr : found->second;
  }
  // Runs `work` on a thread of the store, and `then` with its result on the thread of connections.
  template <typename Work, typename Then>
  void Ask(boost::asio::thread_pool* threads, Work work, Then then) {
    boost::asio::post(*threads, [this, work = std::move(work), then = std::move(then)]() mutable {
      auto result = std::make_shared<decltype(work())>(work());
      hooks.post([then = std::move(then), result]() mutable { then(std::move(*result)); });
    });
  }

  // Does the same as Ask(), but after queued releases of leases, because a client that has its
  // answer must find the session free.
  template <typename Work, typename Then>
  void AskBehindReleases(Work work, Then then) {
    boost::asio::post(renewing, [this, work = std::move(work), then = std::move(then)]() mutable {
      Ask(&working, std::move(work), std::move(then));
    });
  }

  const std::unique_ptr<store::SessionStore> store;
  const SessionKeeperOptions options;
  const Hooks hooks;
  const ScratchFolder scratch;
  std::map<store::SessionName, Holding> held;
  std::map<JobId, Holding> jobs;
  std::map<store::SessionName, RestingCopy> copies;
  std::list<Waiting> waiting;
  Clock::time_point swept = {};
  // Counts totals since the server began.
  struct {
    uint64_t saved = 0;
    uint64_t not_saved = 0;
    uint64_t fetched = 0;
    uint64_t lost = 0;  // leases lost
  } counted;

  Mutex mutex;
  CondVar changed;
  size_t num_used EBB_GUARDED_BY(mutex) = 0;  // how many sessions in `held` are used
  // Holds the seconds between ticks of the clock; nullopt: the clock does not run.
  std::optional<double> period EBB_GUARDED_BY(mutex);
  bool is_stopped EBB_GUARDED_BY(mutex) = false;

  // Run the operations of the store. Renewals of leases have their own thread, so that a long write
  // cannot delay them until a lease expires.
  boost::asio::thread_pool working{2};
  boost::asio::thread_pool renewing{1};
  std::thread clock;  // last member: the thread uses all others
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_KEEPER_IMPL_H_
