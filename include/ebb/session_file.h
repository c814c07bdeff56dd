// Saves a session with everything that its future depends on (tokens, logits, rows in their tiers,
// scores) in one file, and resumes it. On the same machine a resumed session continues bit for bit
// as the saved one would have.
//
// docs/dev/formats.md describes the file. The file has a version, and each of its parts and pages
// has a checksum. Reading trusts nothing in the file: any contents lead to a session or to an
// error.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SESSION_FILE_H_
#define EBB_SESSION_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ebb/engine.h"
#include "ebb/status.h"
#include "ebb/tiers.h"

namespace [[gnu::visibility("default")]] ebb {

// kSessionFileVersion is the version of the file format. ResumeSession() refuses files of other
// versions.
inline constexpr uint32_t kSessionFileVersion = 16;

// Durability selects whether a file survives a power cut once SaveSession() has returned. kUnsynced
// is faster, for files that are of no use once the process has ended.
enum class Durability { kSynced, kUnsynced };

// Saves the session to `path`. SaveSession() writes PATH.part and then renames it to `path`, so
// that after a crash or an error `path` is the complete old file or the complete new one. `extra`
// holds bytes of the caller, such as the conversation; ResumeSession() returns them unchanged.
// Errors: Unsupported (a scorer, placement or selector that cannot be saved); StorageFull (no
// space); IoError; the session's own error if it has lost rows.
[[nodiscard]] Status SaveSession(Session& session, const std::string& path,
                                 std::string_view extra = {},
                                 Durability durability = Durability::kSynced);

// Checks that SaveSession() could create a file at `path`, so that a caller learns of it before
// there is anything to lose: creates PATH.part and removes it. Errors: as SaveSession() has for
// files.
[[nodiscard]] Status CheckSessionPlace(const std::string& path);

// Locks the session's file until the result is destroyed: another LockSessionFile(), in this
// process or another one, fails meanwhile. Without the lock, two programs that resume one file and
// save it overwrite each other's turns. A save, which replaces the file, keeps the lock. PATH.lock
// exists next to the file while the lock is held. Errors: IoError (the file is locked already, or
// the folder cannot be written), NotFound.
[[nodiscard]] Result<std::shared_ptr<const void>> LockSessionFile(const std::string& path);

// ResumedSession is a session from a file, with the caller's bytes.
struct ResumedSession {
  std::unique_ptr<Session> session;
  std::string extra;
};
// Opens a session with these options and fills it from the file. Each row is read straight into the
// tier that it was saved from, so the cache may be larger than T0. Errors, which name the file:
// NotFound; Unsupported (the file is no session, or of another version); InvalidArgument (the
// session has another model, number format, policy, scorer, placement, granularity or T1, with what
// was expected and found; or is longer than the context); Corrupt (which part is damaged, and
// where); T0Full, T1Full or OutOfMemory (a tier has no room for its rows); errors of
// Engine::OpenSession().
[[nodiscard]] Result<ResumedSession> ResumeSession(Engine& engine, const std::string& path,
                                                   const SessionOptions& options);

// Describes everything that the bits of an engine's rows depend on besides the tokens and the
// session's options: the model and how its weights and its RoPE are used, the rows' number format,
// the chunk size of prompts, the device, the kernels and the processor's instructions, the versions
// of ebb and of the file. Two engines with equal texts compute equal rows.
[[nodiscard]] std::string DescribeRows(const Engine& engine);

// SessionFileInfo holds facts of a file that can be read without an engine: the tiers that it was
// saved with.
struct SessionFileInfo {
  std::optional<TierSetting> tiers;
};
// Reads the facts of the file at `path`. Errors: as ResumeSession() has for the parts that are
// read.
[[nodiscard]] Result<SessionFileInfo> ReadSessionInfo(const std::string& path);

}  // namespace ebb

#endif  // EBB_SESSION_FILE_H_
