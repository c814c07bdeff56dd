// Checks the names of tenants and sessions, and what a stored session must agree with.
#ifndef EBB_STORE_NAMES_H_
#define EBB_STORE_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/store/chunks.h"
#include "src/store/session_store.h"

namespace ebb::store {

// CheckTenant() and CheckName() return InvalidArgument for a tenant of more than 64 bytes;
// CheckName() also for an invalid id.
[[nodiscard]] Status CheckTenant(std::string_view tenant);
[[nodiscard]] Status CheckName(const SessionName& name);

// Checks what the store returned for `name`. Errors: Corrupt (the manifest is another session's, or
// the record does not match its hash).
[[nodiscard]] Status CheckStored(const StoredSession& stored, const SessionName& name);

// Returns whether an error means that a session is damaged: the store answers, but the session
// cannot be read. Lists leave such a session out, and Delete() removes it.
[[nodiscard]] bool IsDamaged(const Status& status);

// Returns a name for a generation that is written under `lease`, different from the name of every
// other generation.
[[nodiscard]] std::string NewGeneration(const Lease& lease);
// Sets the members of a manifest that belong to the store, so that CheckStored() accepts it.
void CompleteManifest(const Lease& lease, std::string generation, Chunked chunked,
                      std::string_view record, Manifest* manifest);

[[nodiscard]] uint64_t RandomNumber();

}  // namespace ebb::store

#endif  // EBB_STORE_NAMES_H_
