// SessionStore keeps saved sessions in a place that several servers share. A session belongs to a
// tenant and has an id. It is stored as a generation: a manifest, a record (the caller's own bytes)
// and the chunks of a session file. A generation replaces the one before as a whole or not at all:
// the chunks are written first and the manifest last, so that a writer that dies in between leaves
// the old generation valid. Sweep() later removes the chunks of such a writer.
//
// A session has one writer: a client must hold the session's lease to change it. Each lease of a
// session has its own epoch. The store refuses a commit if another client has acquired the lease
// since.
//
// Errors, besides those named below: Io (the store does not answer, or the system refuses);
// StorageFull; Corrupt (the stored session is damaged); InvalidArgument (an invalid tenant or id).
// After an error either the old or the new generation is stored.
//
// Thread safety: all members may be called from any thread. They block at most as long as
// StoreLimits allow for each exchange with the store.
#ifndef EBB_STORE_SESSION_STORE_H_
#define EBB_STORE_SESSION_STORE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "src/store/manifest.h"

namespace ebb::store {

struct SessionName {
  std::string tenant;  // empty: no tenant
  std::string id;

  friend auto operator<=>(const SessionName&, const SessionName&) = default;
};

// Returns whether `id` has 1 to 64 letters, digits, '-', '_' and ':'.
[[nodiscard]] bool IsSessionId(std::string_view id);

// Lease is the exclusive right to change a session, until it is released or expires.
struct Lease {
  SessionName name;
  std::string epoch;  // different from every other lease's
};

// StoreLimits holds time limits in seconds.
struct StoreLimits {
  double lease = 10;     // until an unrenewed lease ends, unless the holder is seen to die
  double connect = 1;    // to connect to the store
  double operation = 5;  // for one exchange with the store
  double orphan = 3600;  // age at which files of a killed writer are removed
};

enum class Held {
  kYes,
  kNo,  // another client has the lease; nothing was changed
};

struct StoredSession {
  Manifest manifest;
  std::string record;
};

// SessionPage holds manifests in the order of ids, and where the next page begins.
struct SessionPage {
  std::vector<Manifest> sessions;
  std::string next;  // `after` for the next page; empty: this is the last one
};

class SessionStore {
 public:
  virtual ~SessionStore() = default;
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;

  // Acquires the lease of a session. Returns nullopt if a process holds it already, even if it is
  // this one.
  [[nodiscard]] virtual Result<std::optional<Lease>> Acquire(const SessionName& name) = 0;
  // Renews the lease, so that no other client can acquire it. Must be called before
  // StoreLimits::lease is over.
  [[nodiscard]] virtual Result<Held> Renew(const Lease& lease) = 0;
  // Releases the lease; does nothing if it was lost.
  [[nodiscard]] virtual Status Release(const Lease& lease) = 0;

  // Returns the manifest and the record, without chunks; nullopt: the session does not exist or has
  // expired.
  [[nodiscard]] virtual Result<std::optional<StoredSession>> Describe(const SessionName& name) = 0;
  // Writes the chunks to a file. Errors: Corrupt (a chunk is missing or differs from the manifest;
  // the file is then incomplete). REQUIRES: the session's lease is held, so that no writer removes
  // the chunks.
  [[nodiscard]] virtual Status Get(const Manifest& manifest, const std::string& path) = 0;
  // Stores the bytes of the file at `path` and the record as the session's next generation. Sets
  // the manifest's members tenant, id, bytes, epoch, generation and hashes.
  [[nodiscard]] virtual Result<Held> Put(const Lease& lease, const std::string& path,
                                         std::string_view record, Manifest* manifest) = 0;
  // Sets Manifest::used_ms and expires_ms of the stored generation. Errors: NotFound if there is
  // none.
  [[nodiscard]] virtual Result<Held> Touch(const Lease& lease, int64_t used_ms,
                                           int64_t expires_ms) = 0;
  // Deletes the session. Returns kNo, and deletes nothing, if the lease was lost.
  [[nodiscard]] virtual Result<Held> Delete(const Lease& lease) = 0;
  // Returns at most `most` of a tenant's sessions whose ids follow `after`; omits damaged ones.
  [[nodiscard]] virtual Result<SessionPage> List(const std::string& tenant,
                                                 const std::string& after, size_t most) = 0;
  // Returns the ids of all sessions of a tenant in order, damaged and expired ones included, in one
  // exchange with the store.
  [[nodiscard]] virtual Result<std::vector<std::string>> ListIds(const std::string& tenant) = 0;
  // Removes expired sessions, and the files of killed writers.
  [[nodiscard]] virtual Status Sweep() = 0;

 protected:
  SessionStore() = default;
};

}  // namespace ebb::store

#endif  // EBB_STORE_SESSION_STORE_H_
