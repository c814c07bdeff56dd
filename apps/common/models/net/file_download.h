// Fetches a GGUF file into its place, going on where an earlier try ended.
#ifndef EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_
#define EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

struct FileDownload {
  std::string url;
  std::string token = {};                 // see HttpRequest
  std::vector<std::string> headers = {};  // see HttpRequest
  std::string path;                       // the file's place; its folder exists
  std::string sha256 = {};                // lower case; empty: unknown
  uint64_t bytes = 0;                     // 0: unknown
  // Explains an answer that is no file, by its status. Null: its status alone.
  std::function<Status(const HttpAnswer&)> explain = {};
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // total 0: unknown
};

// Collects the bytes in PATH.incomplete, which outlives the process, and renames it once its size
// and hash are right and it is a GGUF file. Without a hash an earlier try's bytes are taken only
// with the entity tag that they came with (PATH.incomplete.etag). Returns the SHA-256. REQUIRES:
// the caller holds a lock on the file. Errors: kIo, and the bytes are kept, as the message says;
// kCorrupt for another hash, another size, or a file that is no GGUF file: nothing is kept;
// kCancelled.
[[nodiscard]] Result<std::string> DownloadFile(HttpClient* client, const FileDownload& download);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_
