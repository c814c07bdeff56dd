// A store in a folder, which may lie on a file system that several machines share.
//
//   FOLDER/t-TENANT/ID.lock      the lease: locked by flock(2) as long as it is held, and its epoch
//   FOLDER/t-TENANT/ID.manifest  the manifest in one line, then the record
//   FOLDER/t-TENANT/ID.GENERATION.data  the chunks
//
// The lock of a holder that dies goes with it, so that leases need not be renewed. On a shared file
// system that may take as long as it takes the server to miss the machine.
#ifndef EBB_STORE_FILE_STORE_H_
#define EBB_STORE_FILE_STORE_H_

#include <memory>
#include <string>

#include "src/store/session_store.h"

namespace ebb::store {

// Makes the folder where it is not there; its owner alone may read it then. Errors: Io, NotFound
// (the folder cannot be made or written).
[[nodiscard]] Result<std::unique_ptr<SessionStore>> CreateFileStore(const std::string& folder,
                                                                    const StoreLimits& limits);

}  // namespace ebb::store

#endif  // EBB_STORE_FILE_STORE_H_
