// Sessions at rest: a session with everything that its future depends on (tokens, logits, rows in
// their tiers, scores), in one file, and back. A session that was resumed goes on bit for bit as
// the one that was saved would have, on the same machine.
//
// docs/dev/formats.md describes the file. It is versioned, each of its parts and pages has a
// checksum, and nothing in it is believed: whatever it holds, reading it ends with a session or
// with an error.
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

// The version of the file format. ResumeSession() refuses files of other versions.
inline constexpr uint32_t kSessionFileVersion = 14;

// Whether a file outlives a power cut once SaveSession() has returned. kUnsynced is faster, for
// files that are of no use once the process has ended.
enum class Durability { kSynced, kUnsynced };

// Writes the session to a file beside `path` (PATH.part), which then takes the place of `path`:
// whenever the process ends, and whatever fails, there is the old file or the new one. `extra` is
// the caller's own, such as the conversation, and comes back as it is.
// Errors: Unsupported (a scorer, placement or selector that cannot be saved); StorageFull (no
// space); IoError; that of a session that lost rows.
[[nodiscard]] Status SaveSession(Session& session, const std::string& path,
                                 std::string_view extra = {},
                                 Durability durability = Durability::kSynced);

// Whether a save to `path` could begin, for before there is anything to lose: PATH.part is made and
// goes again. Errors: those of a file, as of SaveSession().
[[nodiscard]] Status CheckSessionPlace(const std::string& path);

// Keeps others that ask for it, in this process or another one, from the session's file for as long
// as the result lives: two that resume one file and save it lose each other's turns. A save, which
// replaces the file, does not end it. PATH.lock exists next to the file meanwhile.
// Errors: IoError (another one has it, or the folder cannot be written), NotFound.
[[nodiscard]] Result<std::shared_ptr<const void>> LockSessionFile(const std::string& path);

struct ResumedSession {
  std::unique_ptr<Session> session;
  std::string extra;
};
// Opens a session of these options and fills it with the one in the file. Rows come straight to the
// tier in which they were, so the cache may be larger than T0.
// Errors, which name the file: NotFound; Unsupported (no session, or one of another version);
// InvalidArgument (of another model, number format, policy, scorer, placement, granularity or T1,
// each with what was expected and found; longer than the context); Corrupt (the damaged part, and
// where); T0Full, T1Full or OutOfMemory (a tier has no room for its rows); those of
// Engine::OpenSession().
[[nodiscard]] Result<ResumedSession> ResumeSession(Engine& engine, const std::string& path,
                                                   const SessionOptions& options);

// Describes all that the bits of an engine's rows depend on besides the tokens and the options of a
// session: the model and how its weights and its RoPE are used, the rows' number format, the chunks
// of prompts, the device, the kernels and the processor's instructions, the version of ebb and of
// the file. Two engines of equal text compute equal rows.
[[nodiscard]] std::string DescribeRows(const Engine& engine);

// Facts of a file that need no engine: the tiers that it was saved with.
struct SessionFileInfo {
  std::optional<TierSpec> tiers;
};
// Errors: as ResumeSession(), as far as it reads.
[[nodiscard]] Result<SessionFileInfo> ReadSessionInfo(const std::string& path);

}  // namespace ebb

#endif  // EBB_SESSION_FILE_H_
