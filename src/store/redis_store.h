// Implements SessionStore in Redis or Valkey, on one server without a cluster. The keys of a
// session begin with "ebb:{TENANT/ID}:"; TENANT has %XX for every byte that is no letter or digit.
//
//   lease     the holder's epoch; expires after StoreLimits::lease
//   last      the epoch of the last holder, by which a writer learns that it has lost its lease
//   session   a hash: manifest, record, generation, count (of chunks)
//   GENERATION:N  chunk N; expires after StoreLimits::orphan unless it is committed
//
// Two more kinds of keys: "ebb:epoch", which counts leases, and "ebb:{TENANT}:ids", a sorted set.
//
// A lease that expired while the store could not be reached is renewed if no other client has
// acquired it since.
#ifndef EBB_STORE_REDIS_STORE_H_
#define EBB_STORE_REDIS_STORE_H_

#include <memory>

#include "src/store/session_store.h"
#include "src/store/store_url.h"

namespace ebb::store {

// Connects to the store at `url`. REQUIRES: the process ignores SIGPIPE, which a server that
// disappears would raise. Errors: Io (the server cannot be reached, or refuses the login);
// InvalidArgument (the server would evict sessions when its memory is full: maxmemory-policy is not
// noeviction).
[[nodiscard]] Result<std::unique_ptr<SessionStore>> CreateRedisStore(const StoreUrl& url,
                                                                     const StoreLimits& limits);

}  // namespace ebb::store

#endif  // EBB_STORE_REDIS_STORE_H_
