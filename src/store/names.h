// Checks the names of tenants and sessions, and whether a stored session is the one that was asked
// for.
#ifndef EBB_STORE_NAMES_H_
#define EBB_STORE_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/store/chunks.h"
#include "src/store/session_store.h"

namespace ebb::store {

// Check the length of a tenant's name and, in CheckName(), also the session's id. Errors:
// InvalidArgument (a tenant of more than 64 bytes; an invalid id).
[[nodiscard]] Status CheckTenant(std::string_view tenant);
[[nodiscard]] Status CheckName(const SessionName& name);

// Checks the data that the store returned for session `name`. Errors: Corrupt (the manifest is
// another session's, or the record does not match its hash).
[[nodiscard]] Status CheckStored(const StoredSession& stored, const SessionName& name);

// Returns whether an error means that a session is damaged: the store answers, but the session
// cannot be read. List() omits such a session, and Delete() removes it.
[[nodiscard]] bool IsDamaged(const Status& status);

// Returns a new, unique name for a generation that is written under `lease`.
[[nodiscard]] std::string NewGeneration(const Lease& lease);
// Fills in the members of a manifest that the store sets, so that CheckStored() accepts it.
void CompleteManifest(const Lease& lease, std::string generation, Chunked chunked,
                      std::string_view record, Manifest* manifest);

[[nodiscard]] uint64_t RandomNumber();

}  // namespace ebb::store

#endif  // EBB_STORE_NAMES_H_
