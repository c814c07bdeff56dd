// Implements SessionStore in a folder, which may lie on a file system that several machines share.
//
//   FOLDER/t-TENANT/ID.lock      the lease: locked by flock(2) while it is held; contains its epoch
//   FOLDER/t-TENANT/ID.manifest  the manifest in one line, then the record
//   FOLDER/t-TENANT/ID.GENERATION.data  the chunks
//
// The system releases the lock of a process that dies, so that leases need not be renewed. On a
// shared file system this happens only when the file server notices that the machine is
// unreachable.
#ifndef EBB_STORE_FILE_STORE_H_
#define EBB_STORE_FILE_STORE_H_

#include <memory>
#include <string>

#include "src/store/session_store.h"

namespace ebb::store {

// Opens the store in `folder`. Creates the folder if it does not exist, readable by its owner
// alone. Errors: Io, NotFound (the folder cannot be created or written).
[[nodiscard]] Result<std::unique_ptr<SessionStore>> CreateFileStore(const std::string& folder,
                                                                    const StoreLimits& limits);

}  // namespace ebb::store

#endif  // EBB_STORE_FILE_STORE_H_
