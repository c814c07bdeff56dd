// The part of a job that concerns its session, and the engine's reports of it.
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
  // The place of its rows: with the driver, under this number; else in this file; else nowhere yet.
  std::optional<uint64_t> resting = {};
  std::string file = {};
  // The owner, tag and length that the file must have (SessionRecord::file_tag, num_tokens).
  std::string tenant = {};
  std::string file_tag = {};
  int64_t file_tokens = 0;
  std::optional<Position> roll_back = {};  // to so many tokens, first of all
  size_t num_kept = 0;                     // tokens that it has then
  SessionRecord record = {};               // with the turn that the job answers
  std::shared_ptr<const ChatPrompt> prompt = {};
  uint64_t call_seed = 0;    // CallIdSeed() of the messages
  std::string folder = {};   // for files that it is saved to
  int checkpoint_every = 0;  // tokens of an answer; 0: it is saved at its end alone
};

// A file that the driver wrote. The component that takes it removes it.
struct SavedSession {
  std::string file;
  SessionRecord record;
};

// Why a session cannot be gone on with.
enum class SessionTrouble {
  kNone,
  kMismatch,   // it was made with another model or other options
  kCorrupt,    // what was stored is damaged
  kConflict,   // its policy let rows go that an edited turn needs
  kLeaseLost,  // another server has taken it over
};

// How a job's session ended.
struct SessionEnd {
  std::string id = {};
  bool is_saved = false;   // in the store, with this turn
  std::string error = {};  // why it is not
  int64_t num_tokens = 0;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_WORK_H_
