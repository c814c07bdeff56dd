// Sessions at rest in a place that several servers share. A session belongs to a tenant and has an
// id; it is stored as a generation: a manifest, a record (the caller's own bytes) and the chunks of
// a session file. A generation takes the place of the one before as a whole or not at all: chunks
// come first, the manifest last, and a writer that ends in between leaves the old generation.
// Leftovers of such a writer are removed once they are old enough.
//
// One writer: a client that changes a session holds its lease. Each lease has an epoch that no
// other lease of the session has, and a commit whose lease another client has taken since is
// refused.
//
// Errors, besides those named below: Io (the store does not answer, or the system refuses);
// StorageFull (it is full); Corrupt (the stored session is damaged); InvalidArgument (a
// tenant or an id that is none). After an error the old generation is there, or the new one.
//
// Thread safety: all members may be called from any thread, and block for at most the time that
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
  std::string tenant;  // "": no tenant
  std::string id;

  friend auto operator<=>(const SessionName&, const SessionName&) = default;
};

// 1 to 64 letters, digits, '-', '_' and ':'.
[[nodiscard]] bool IsSessionId(std::string_view id);

// The right to change a session.
struct Lease {
  SessionName name;
  std::string epoch;  // of this lease alone
};

// Times in seconds.
struct StoreLimits {
  double lease = 10;     // until a lease that is not renewed ends, where its holder cannot be seen
  double connect = 1;    // to reach the store
  double operation = 5;  // for one exchange with it
  double orphan = 3600;  // age at which what a killed writer left is removed
};

enum class Held {
  kYes,
  kNo,  // another client has taken the lease; nothing was changed
};

struct StoredSession {
  Manifest manifest;
  std::string record;
};

// Manifests in the order of ids, and where to go on.
struct SessionPage {
  std::vector<Manifest> sessions;
  std::string next;  // empty: that was all
};

class SessionStore {
 public:
  virtual ~SessionStore() = default;
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;

  // Returns nothing if the lease is held, perhaps by this process.
  [[nodiscard]] virtual Result<std::optional<Lease>> Acquire(const SessionName& name) = 0;
  // Renews the lease, before StoreLimits::lease is over, so that no other client gets it.
  [[nodiscard]] virtual Result<Held> Renew(const Lease& lease) = 0;
  // A lease that was lost is not missed.
  [[nodiscard]] virtual Status Release(const Lease& lease) = 0;

  // Without chunks. Nothing: there is no such session, or its time is over.
  [[nodiscard]] virtual Result<std::optional<StoredSession>> Describe(const SessionName& name) = 0;
  // Writes the chunks to a file. Corrupt: a chunk is missing or differs from the manifest, and the
  // file is incomplete. REQUIRES: the lease of the session is held, so that they stay.
  [[nodiscard]] virtual Status Get(const Manifest& manifest, const std::string& path) = 0;
  // The file's bytes and the record become the session's next generation. Fills in the store's
  // fields of the manifest: tenant, id, bytes, epoch, generation and hashes.
  [[nodiscard]] virtual Result<Held> Put(const Lease& lease, const std::string& path,
                                         std::string_view record, Manifest* manifest) = 0;
  // Sets Manifest::used_ms and expires_ms of the generation that is stored. NotFound: there is
  // none.
  [[nodiscard]] virtual Result<Held> Touch(const Lease& lease, int64_t used_ms,
                                           int64_t expires_ms) = 0;
  // The session is gone when it returns kYes.
  [[nodiscard]] virtual Result<Held> Delete(const Lease& lease) = 0;
  // At most `most` of a tenant's sessions whose ids come behind `after`, without damaged ones.
  [[nodiscard]] virtual Result<SessionPage> List(const std::string& tenant,
                                                 const std::string& after, size_t most) = 0;
  // Returns the ids of all sessions of a tenant in order, damaged and expired ones included, in one
  // exchange with the store.
  [[nodiscard]] virtual Result<std::vector<std::string>> ListIds(const std::string& tenant) = 0;
  // Removes sessions whose time is over, and what killed writers left.
  [[nodiscard]] virtual Status Sweep() = 0;

 protected:
  SessionStore() = default;
};

}  // namespace ebb::store

#endif  // EBB_STORE_SESSION_STORE_H_
