// Downloads the metadata of a GGUF file without its weights.
#ifndef EBB_APPS_PULL_HEADER_DOWNLOAD_H_
#define EBB_APPS_PULL_HEADER_DOWNLOAD_H_

#include <cstdint>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/net/http_client.h"
#include "ebb/status.h"

namespace ebb::cli {

// Fetches the metadata and the table of tensors by requests for ranges, and writes them to the
// beginning of download.path, a sparse file of the length of the whole file: its weights are zeros
// that take no disk space. If the server ignores ranges, the transfer ends after the bytes that are
// needed. Returns the number of bytes written. Errors: kIo; kCorrupt if the server's file is no
// GGUF file or has another length than download.bytes; kUnsupported if the server does not say how
// long the file is; kCancelled; those of download.explain. After an error there is no file.
[[nodiscard]] Result<uint64_t> DownloadHeader(HttpClient* client, const FileDownload& download);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_HEADER_DOWNLOAD_H_
