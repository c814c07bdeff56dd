// SessionShelf keeps sessions between requests in memory, under numbers, and saves them to files
// and resumes them from files.
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
  // Takes the session of `work` from the shelf, resumes it from its file, or opens a new one; then
  // truncates it to where its turn begins. On failure a session on the shelf stays there; `trouble`
  // is set if the session itself is the cause. Errors: those of OpenSession(), ResumeSession(),
  // Session::SetT0Floor() and SetT0Share().
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(Engine* engine, const SessionOptions& options,
                                                      const SessionWork& work,
                                                      SessionTrouble* trouble);
  // Keeps `session` under `number`, which must be unused. Returns false and destroys the session if
  // it would hold memory that others need.
  [[nodiscard]] bool Keep(uint64_t number, const SessionOptions& options, const Engine& engine,
                          std::unique_ptr<Session> session);
  // Returns the session under `number`, null if there is none.
  [[nodiscard]] const Session* Find(uint64_t number) const;
  // Removes and destroys the session under `number`, if there is one.
  void Discard(uint64_t number) { kept_.erase(number); }

  // Saves `session` to a new file in the folder of `work`. Errors: those of SaveSession().
  [[nodiscard]] static Result<SavedSession> Save(Session* session, const SessionWork& work,
                                                 SessionRecord record);

 private:
  std::map<uint64_t, std::unique_ptr<Session>> kept_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_SHELF_H_
