// SessionWork describes a job's work on a stored session. SessionEnd and SavedSession are the
// engine's reports about it.
#ifndef EBB_SERVER_ENGINE_SESSION_WORK_H_
#define EBB_SERVER_ENGINE_SESSION_WORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ebb/chat.h"
#include "ebb/types.h"
#include "src/server/engine/session_record.h"

namespace ebb::server {

struct SessionWork {
  // Locates the session's rows: in the driver's memory under the number `resting`, else in `file`,
  // else nowhere, for a new session.
  std::optional<uint64_t> resting = {};
  std::string file = {};
  // Are the owner, tag and number of tokens that the file must have (SessionRecord::file_tag,
  // num_tokens); a file with others is refused as corrupt.
  std::string tenant = {};
  std::string file_tag = {};
  int64_t file_tokens = 0;
  std::optional<Position> roll_back = {};  // position to which the session is truncated first
  size_t num_kept = 0;                     // tokens of the session after `roll_back`
  SessionRecord record = {};               // includes the turn that this job answers
  std::shared_ptr<const ChatPrompt> prompt = {};
  uint64_t call_seed = 0;    // CallIdSeed() of the messages
  std::string folder = {};   // folder of session files
  int checkpoint_every = 0;  // answer tokens between saves; 0: save only at the end
};

// SavedSession is a session file that the driver wrote, with its record. The receiver must remove
// the file.
struct SavedSession {
  std::string file;
  SessionRecord record;
};

// SessionTrouble is the reason why a stored session cannot continue.
enum class SessionTrouble {
  kNone,
  kMismatch,   // made with another model or other options
  kCorrupt,    // the stored data is damaged
  kConflict,   // the policy has evicted rows that an edited turn needs
  kLeaseLost,  // another server holds the session's lease
};

// SessionEnd describes the state in which a job left its session.
struct SessionEnd {
  std::string id = {};
  bool is_saved = false;   // the store has the session with this turn
  std::string error = {};  // why is_saved is false
  int64_t num_tokens = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_WORK_H_
