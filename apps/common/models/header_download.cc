#include "apps/common/models/header_download.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/models/gguf_header.h"

namespace ebb::cli {
namespace {

// kFirstBytes holds the metadata of most models: 6 MB with a vocabulary of 151,936 tokens and its
// merges. kMostBytes is what one answer may have (kMostBody).
constexpr uint64_t kFirstBytes = uint64_t{8} << 20;
constexpr uint64_t kMostBytes = kMostBody;

Status NoGguf(const FileDownload& download) {
  return Corrupt(fmt::format("{} is no GGUF file", download.url));
}

// Beginning holds the first bytes of a file on a server.
struct Beginning {
  std::string bytes;
  uint64_t total = 0;  // of the whole file; 0: unknown so far
};

// Appends the bytes of an answer and checks the length of the whole file.
Status Take(const FileDownload& download, HttpAnswer answer, Beginning* beginning) {
  constexpr long kPartial = 206;
  std::optional<uint64_t> total;
  if (answer.status == kPartial) {
    const std::string header = answer.Header("content-range");
    const auto range = ParseContentRange(header);
    if (!range || range->first != beginning->bytes.size()) {
      return IoError(fmt::format("{}: expected the bytes from {} on, found {}", HostOf(answer.url),
                                 beginning->bytes.size(), header));
    }
    total = range->total;
    beginning->bytes += answer.body;
  } else {  // the server ignored the range and sent the file from its beginning
    total = ParseDigits(answer.Header("content-length"));
    beginning->bytes = std::move(answer.body);
  }
  const uint64_t expected = beginning->total;
  if (total && expected > 0 && *total != expected) {
    return Corrupt(fmt::format("{}: expected {} bytes, found {}", download.url, expected, *total));
  }
  if (total) beginning->total = *total;
  if (beginning->total > 0) return OkStatus();
  return Unsupported(fmt::format("{} does not say how long the file is, which decides what fits",
                                 HostOf(answer.url)));
}

Result<Beginning> Fetch(HttpClient* client, const FileDownload& download) {
  Beginning beginning = {.total = download.bytes};
  for (uint64_t wanted = kFirstBytes;; wanted *= 2) {
    const uint64_t last_size = beginning.bytes.size();
    const uint64_t until = beginning.total > 0 ? std::min(wanted, beginning.total) : wanted;
    auto answer = client->Get({.url = download.url,
                               .headers = download.headers,
                               .token = download.token,
                               .from = last_size,
                               .until = until});
    if (!answer.ok()) return answer.error().status;
    if (!answer->ok()) {
      if (download.explain) EBB_RETURN_IF_ERROR(download.explain(*answer));
      return IoError(fmt::format("{} answered {}", download.url, answer->status));
    }
    EBB_RETURN_IF_ERROR(Take(download, *std::move(answer), &beginning));
    if (!beginning.bytes.starts_with("GGUF")) return NoGguf(download);
    if (const auto length = MetadataLength(beginning.bytes); length.has_value()) {
      beginning.bytes.resize(*length);
      return beginning;
    }
    if (beginning.bytes.size() >= beginning.total) return NoGguf(download);
    if (beginning.bytes.size() < until) {
      return IoError(fmt::format("{} sent {} of {} bytes", HostOf(download.url),
                                 beginning.bytes.size(), until));
    }
    if (wanted >= kMostBytes) {
      return Unsupported(
          fmt::format("{}: the metadata has more than {} MiB", download.url, kMostBytes >> 20));
    }
  }
}

Status WriteSparse(const std::string& path, const Beginning& beginning) {
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::ofstream file(draft, std::ios::binary);
  file << beginning.bytes;
  file.close();
  std::error_code error;
  Status status;
  if (!file || truncate(draft.c_str(), static_cast<off_t>(beginning.total)) != 0) {
    status = IoError(fmt::format("cannot write {}: {}", draft, std::strerror(errno)));
  } else {
    std::filesystem::rename(draft, path, error);
    if (error) status = IoError(fmt::format("cannot write {}: {}", path, error.message()));
  }
  if (!status.ok()) std::filesystem::remove(draft, error);
  return status;
}

}  // namespace

Result<uint64_t> DownloadHeader(HttpClient* client, const FileDownload& download) {
  EBB_ASSIGN_OR_RETURN(const Beginning beginning, Fetch(client, download));
  EBB_RETURN_IF_ERROR(WriteSparse(download.path, beginning));
  return uint64_t{beginning.bytes.size()};
}

}  // namespace ebb::cli
