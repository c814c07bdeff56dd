// A store in Redis or Valkey, one server and no cluster. Keys of a session begin with
// "ebb:{TENANT/ID}:", and TENANT is written with %XX for what is no letter or digit.
//
//   lease     the holder's epoch; it goes by itself after StoreLimits::lease
//   last      the epoch of the last holder, by which writers that lost their lease are found out
//   session   a hash: manifest, record, generation, count (of chunks)
//   GENERATION:N  chunk N; until it is committed it goes by itself after StoreLimits::orphan
//
// Besides: "ebb:epoch", which counts leases, and "ebb:{TENANT}:ids", a sorted set.
//
// A lease that ended while the store could not be reached is taken again where nobody else has had
// it since.
#ifndef EBB_STORE_REDIS_STORE_H_
#define EBB_STORE_REDIS_STORE_H_

#include <memory>

#include "src/store/session_store.h"
#include "src/store/store_url.h"

namespace ebb::store {

// REQUIRES: the process ignores SIGPIPE, which a server that goes away would raise.
// Errors: Io (it cannot be reached, or refuses the login); InvalidArgument (it would let sessions
// go when its memory is full: maxmemory-policy is not noeviction).
[[nodiscard]] Result<std::unique_ptr<SessionStore>> CreateRedisStore(const StoreUrl& url,
                                                                     const StoreLimits& limits);

}  // namespace ebb::store

#endif  // EBB_STORE_REDIS_STORE_H_
