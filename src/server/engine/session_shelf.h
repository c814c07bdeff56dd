// Sessions between requests, on the engine's thread: kept in memory under a number, saved to files
// and resumed from them.
//
// Thread safety: belongs to the engine's thread.
#ifndef EBB_SERVER_ENGINE_SESSION_SHELF_H_
#define EBB_SERVER_ENGINE_SESSION_SHELF_H_

#include <cstdint>
#include <map>
#include <memory>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "src/server/engine/session_work.h"

namespace ebb::server {

class SessionShelf {
 public:
  // The session of `work`, rolled back to where its turn begins; on failure a kept session stays on
  // the shelf. `trouble` is set where the session itself is to blame. Errors: those of
  // OpenSession(), ResumeSession(), Session::SetT0Floor() and SetT0Share().
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(Engine* engine, const SessionOptions& options,
                                                      const SessionWork& work,
                                                      SessionTrouble* trouble);
  // Keeps a session under a number, which is new. False: it holds memory that others need, and is
  // gone.
  [[nodiscard]] bool Keep(uint64_t number, const SessionOptions& options, const Engine& engine,
                          std::unique_ptr<Session> session);
  // One that is not there is not missed.
  void Discard(uint64_t number) { kept_.erase(number); }

  // To a new file of the work's folder. Errors: those of SaveSession().
  [[nodiscard]] static Result<SavedSession> Save(Session* session, const SessionWork& work,
                                                 SessionRecord record);

 private:
  std::map<uint64_t, std::unique_ptr<Session>> kept_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_SHELF_H_
