// Manifest describes a stored session: its model and options, its times, and its chunks.
#ifndef EBB_STORE_MANIFEST_H_
#define EBB_STORE_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::store {

// Manifest describes a stored session. Times are in milliseconds since the Unix epoch.
struct Manifest {
  std::string tenant = {};
  std::string id = {};
  std::string model = {};   // fingerprint of the model
  std::string policy = {};  // the policy as the request named it
  std::string tiers = {};   // the tiers as the request named them
  uint64_t tokens = 0;
  int64_t created_ms = 0;
  int64_t used_ms = 0;
  int64_t expires_ms = 0;
  // Is true if the last answer was cut off or is still being generated; `answer_tokens` tokens of
  // it are stored.
  bool in_progress = false;
  uint64_t answer_tokens = 0;

  // SessionStore::Put() sets this member and those below.
  std::string epoch = {};       // epoch of the lease under which the session was written
  std::string generation = {};  // unique among the session's generations
  uint64_t bytes = 0;           // bytes of all chunks
  std::vector<uint64_t> chunk_hashes = {};
  uint64_t record_hash = 0;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// Decodes a manifest. Errors: Corrupt (not what EncodeManifest() writes); Unsupported (another
// version).
[[nodiscard]] Result<Manifest> DecodeManifest(std::string_view text);

[[nodiscard]] int64_t NowMs();  // the current time, as Manifest has it

}  // namespace ebb::store

#endif  // EBB_STORE_MANIFEST_H_
