// SessionShelf keeps sessions in memory between requests, each under a number, and saves sessions
// to files and loads them from files.
//
// Thread safety: used only on the engine's thread.
#ifndef EBB_SERVER_ENGINE_SESSION_SHELF_H_
#define EBB_SERVER_ENGINE_SESSION_SHELF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "src/server/engine/session_work.h"

namespace ebb::server {

// Returns whether a cap in ArenaAccounting limits anything: 0, or more than any memory, stands for
// no cap.
[[nodiscard]] bool IsCap(size_t cap_bytes);
// Returns whether a session can move all of its rows to T1. `tiers`: TiersOf() the session.
[[nodiscard]] bool HasT1(const std::optional<TierSetting>& tiers, const SessionOptions& options);

class SessionShelf {
 public:
  // Takes the session that `work` names from memory, loads it from its file, or opens a new one;
  // then truncates it to the beginning of the turn. On failure a session in memory stays there, and
  // `trouble` is set if the session itself is the cause. Errors: those of OpenSession(),
  // ResumeSession(), Session::SetT0Floor() and SetT0Share().
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(Engine* engine, const SessionOptions& options,
                                                      const SessionWork& work,
                                                      SessionTrouble* trouble);
  // Keeps `session` in memory under `number`, which must be unused. Returns false and destroys the
  // session if it would occupy memory that running requests need.
  [[nodiscard]] bool Keep(uint64_t number, const SessionOptions& options, const Engine& engine,
                          std::unique_ptr<Session> session);
  // Returns the session under `number`, null if there is none.
  [[nodiscard]] const Session* Find(uint64_t number) const;
  // Destroys the session kept under `number`, if there is one.
  void Discard(uint64_t number) { kept_.erase(number); }

  // Saves `session` to a new file in the folder of `work`. Errors: those of SaveSession().
  [[nodiscard]] static Result<SavedSession> Save(Session* session, const SessionWork& work,
                                                 SessionRecord record);

 private:
  std::map<uint64_t, std::unique_ptr<Session>> kept_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_SHELF_H_
