// Downloads a GGUF file and resumes where an earlier attempt ended.
#ifndef EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_
#define EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

// FileDownload describes a file to fetch and the place where it goes.
struct FileDownload {
  std::string url;
  std::string token = {};                 // see HttpRequest
  std::vector<std::string> headers = {};  // see HttpRequest
  std::string path;                       // the file's place; its folder exists
  std::string sha256 = {};                // lower case; empty: unknown
  uint64_t bytes = 0;                     // 0: unknown
  // Returns the error to report for an unsuccessful answer. Null: the error names the HTTP status
  // alone.
  std::function<Status(const HttpAnswer&)> explain = {};
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};  // total 0: unknown
};

// Fetches the file into PATH.incomplete, which outlives the process, and renames it to PATH once
// its size and hash are right and it begins as a GGUF file does. If the hash is unknown, resumes an
// earlier download only if the server still has the entity tag (ETag) stored in
// PATH.incomplete.etag. Returns the SHA-256. REQUIRES: the caller holds a lock on the file. Errors:
// kIo, and the bytes are kept, as the message says; kCorrupt for a wrong hash, a wrong size or a
// file that is no GGUF file, and the bytes are removed; kCancelled.
[[nodiscard]] Result<std::string> DownloadFile(HttpClient* client, const FileDownload& download);

// Returns kIo unless the disk that holds the folder has `bytes` bytes free.
[[nodiscard]] Status CheckFreeSpace(const std::string& folder, uint64_t bytes);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_FILE_DOWNLOAD_H_
