// Names of tenants and sessions, and what a stored session must agree with.
#ifndef EBB_STORE_NAMES_H_
#define EBB_STORE_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/store/chunks.h"
#include "src/store/session_store.h"

namespace ebb::store {

// InvalidArgument: a tenant of more than 64 bytes, an id that is none.
[[nodiscard]] Status CheckTenant(std::string_view tenant);
[[nodiscard]] Status CheckName(const SessionName& name);

// Corrupt: another session's manifest, or a record that it does not tell of.
[[nodiscard]] Status CheckStored(const StoredSession& stored, const SessionName& name);

// Whether a session cannot be read, though the store answers: lists leave it out, and Delete()
// removes it.
[[nodiscard]] bool IsDamaged(const Status& status);

// A name for a generation that is written under `lease`: differs from every other one's.
[[nodiscard]] std::string NewGeneration(const Lease& lease);
// Sets what of a manifest is the store's, so that CheckStored() takes it.
void CompleteManifest(const Lease& lease, std::string generation, Chunked chunked,
                      std::string_view record, Manifest* manifest);

[[nodiscard]] uint64_t RandomNumber();

}  // namespace ebb::store

#endif  // EBB_STORE_NAMES_H_
