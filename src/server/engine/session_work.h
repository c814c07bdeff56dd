// SessionWork describes the part of a job that concerns a stored session; SessionEnd and
// SavedSession are the engine's reports of it.
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
  // Says where the session's rows are: with the driver under this number, else in `file`, else
  // nowhere yet.
  std::optional<uint64_t> resting = {};
  std::string file = {};
  // Holds the owner, tag and number of tokens that the file must have (SessionRecord::file_tag,
  // num_tokens); another file is refused as corrupt.
  std::string tenant = {};
  std::string file_tag = {};
  int64_t file_tokens = 0;
  std::optional<Position> roll_back = {};  // first truncate the session to this position
  size_t num_kept = 0;                     // tokens of the session after that
  SessionRecord record = {};               // with the turn that this job answers
  std::shared_ptr<const ChatPrompt> prompt = {};
  uint64_t call_seed = 0;    // CallIdSeed() of the messages
  std::string folder = {};   // for the files that the session is saved to
  int checkpoint_every = 0;  // tokens between checkpoints of an answer; 0: saved at the end only
};

// SavedSession names a session file that the driver wrote. The receiver removes the file.
struct SavedSession {
  std::string file;
  SessionRecord record;
};

// SessionTrouble says why a session cannot continue.
enum class SessionTrouble {
  kNone,
  kMismatch,   // made with another model or other options
  kCorrupt,    // the stored data is damaged
  kConflict,   // its policy evicted rows that an edited turn needs
  kLeaseLost,  // another server holds the session's lease
};

// SessionEnd says how the session of a job was left when the job ended.
struct SessionEnd {
  std::string id = {};
  bool is_saved = false;   // the store has it with this turn
  std::string error = {};  // why it is not saved
  int64_t num_tokens = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_WORK_H_
