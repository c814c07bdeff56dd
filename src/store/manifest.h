// Manifest describes a stored session, without its bytes.
#ifndef EBB_STORE_MANIFEST_H_
#define EBB_STORE_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::store {

// Manifest has times in milliseconds since the Unix epoch.
struct Manifest {
  std::string tenant = {};
  std::string id = {};
  std::string model = {};   // its fingerprint
  std::string policy = {};  // as it was asked for
  std::string tiers = {};   // as they were asked for
  uint64_t tokens = 0;
  int64_t created_ms = 0;
  int64_t used_ms = 0;
  int64_t expires_ms = 0;
  // Says that the last answer was cut off or is still being generated; answer_tokens of its tokens
  // are stored.
  bool in_progress = false;
  uint64_t answer_tokens = 0;

  // epoch and the members below are set by SessionStore::Put().
  std::string epoch = {};       // the epoch of the lease under which it was written
  std::string generation = {};  // differs from that of every other generation of the session
  uint64_t bytes = 0;           // bytes of all chunks
  std::vector<uint64_t> chunk_hashes = {};
  uint64_t record_hash = 0;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// Decodes a manifest. Errors: Corrupt (not what EncodeManifest() writes); Unsupported (another
// version).
[[nodiscard]] Result<Manifest> DecodeManifest(std::string_view text);

[[nodiscard]] int64_t NowMs();  // milliseconds since the Unix epoch

}  // namespace ebb::store

#endif  // EBB_STORE_MANIFEST_H_
