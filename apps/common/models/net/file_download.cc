// Invariants on the disk:
// 1. PATH is complete or does not exist.
// 2. PATH.incomplete holds the first bytes of the file that the URL names. If the server's file has
//    changed, or the process was killed while it wrote, the bytes fail the check of the hash.
#include "apps/common/models/net/file_download.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/models/net/sha256.h"
#include "apps/common/terminal/interrupt.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "GGUF";

// IncompleteFile is the open file PATH.incomplete; it hashes the bytes as they are read or
// appended.
class IncompleteFile {
 public:
  explicit IncompleteFile(std::string path) : path_(std::move(path)) {}
  ~IncompleteFile() {
    if (file_ >= 0) close(file_);
  }
  IncompleteFile(const IncompleteFile&) = delete;
  IncompleteFile& operator=(const IncompleteFile&) = delete;

  // Opens the file, or creates it, and hashes the bytes that an earlier download left.
  Status Open() {
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return Error();
    std::string buffer(size_t{1} << 20, '\0');
    while (true) {
      if (Interrupted()) return Cancelled("interrupted");
      const ssize_t count = read(file_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Error();
      if (count == 0) return OkStatus();
      Count({buffer.data(), static_cast<size_t>(count)});
    }
  }
  Status Clear() {
    if (ftruncate(file_, 0) != 0 || lseek(file_, 0, SEEK_SET) < 0) return Error();
    size_ = 0;
    magic_.clear();
    sha256_.Reset();
    return OkStatus();
  }
  Status Append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = write(file_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Error();
      Count(bytes.substr(0, static_cast<size_t>(count)));
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return OkStatus();
  }
  // Waits until the bytes are on the disk (fsync).
  Status Sync() { return fsync(file_) == 0 ? OkStatus() : Error(); }

  [[nodiscard]] uint64_t size() const { return size_; }
  // Returns whether the bytes so far may be the beginning of a GGUF file.
  [[nodiscard]] bool MayBeGguf() const { return kMagic.starts_with(magic_); }
  [[nodiscard]] std::string Hash() { return sha256_.Finish(); }

 private:
  [[nodiscard]] Status Error() const {
    return IoError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  void Count(std::string_view bytes) {
    size_ += bytes.size();
    sha256_.Update(bytes);
    if (magic_.size() < kMagic.size()) {
      magic_ += bytes.substr(0, kMagic.size() - magic_.size());
    }
  }

  std::string path_;
  int file_ = -1;
  uint64_t size_ = 0;
  std::string magic_;
  Sha256 sha256_;
};

class Downloader {
 public:
  Downloader(HttpClient* client, const FileDownload& download)
      : client_(*client),
        download_(download),
        path_(download.path + ".incomplete"),
        tag_path_(path_ + ".etag"),
        file_(path_),
        total_(download.bytes) {}

  Result<std::string> Run() {
    EBB_RETURN_IF_ERROR(file_.Open());
    EBB_RETURN_IF_ERROR(DropWhatCannotBeContinued());
    Status status = IsWhole() ? OkStatus() : Fetch();
    if (status.ok()) status = file_.Sync();
    std::string hash = status.ok() ? file_.Hash() : "";
    if (status.ok()) status = Check(hash);
    if (status.ok()) status = Publish();
    if (status.ok()) return hash;
    if (status.code() == StatusCode::kCorrupt || file_.size() == 0) {
      Remove();
      return status;
    }
    return Status(status.code(), fmt::format("{}; {} are kept, and the next try goes on from there",
                                             status.message(), SizeText(file_.size())));
  }

 private:
  static std::string SizeText(uint64_t bytes) {
    constexpr uint64_t kMegabyte = 1000000;
    return bytes < kMegabyte ? fmt::format("{} bytes", bytes)
                             : fmt::format("{} MB", bytes / kMegabyte);
  }

  [[nodiscard]] bool IsWhole() const { return total_ > 0 && file_.size() == total_; }

  Status DropWhatCannotBeContinued() {
    std::ifstream tag_file(tag_path_);
    std::getline(tag_file, entity_tag_);
    // A weak entity tag does not guarantee equal bytes, so it cannot resume a download.
    if (entity_tag_.starts_with("W/")) entity_tag_.clear();
    const bool is_identified = !download_.sha256.empty() || !entity_tag_.empty();
    const bool is_too_long = total_ > 0 && file_.size() > total_;
    if (file_.size() == 0 || (is_identified && !is_too_long)) return OkStatus();
    return StartOver();
  }

  Status StartOver() {
    entity_tag_.clear();
    std::error_code ignored;
    fs::remove(tag_path_, ignored);
    return file_.Clear();
  }

  // Requests the missing bytes until they are all there; waits between attempts and gives up after
  // settings().attempts of them without a mebibyte of progress.
  Status Fetch() {
    constexpr uint64_t kProgress = uint64_t{1} << 20;
    uint64_t last_size = file_.size();
    for (int attempt = 1;; ++attempt) {
      const Result<HttpAnswer, HttpFailure> answer = Ask();
      std::string reason;
      int64_t retry_after = 0;
      Status last;
      if (!answer.ok() && starts_over_) {
        last = answer.error().status;
      } else if (!answer.ok()) {
        const HttpFailure& failure = answer.error();
        const bool was_reached = file_.size() > 0 && attempt > 1;
        const bool is_final = failure.kind == HttpFailure::Kind::kFinal ||
                              (failure.kind == HttpFailure::Kind::kUnreachable && !was_reached);
        if (is_final) return failure.status;
        reason = failure.status.message();
        last = failure.status;
      } else if (answer->ok()) {
        if (!starts_over_ && (total_ == 0 || file_.size() >= total_)) return OkStatus();
        reason = fmt::format("{} sent {} of {} bytes", HostOf(answer->url), file_.size(), total_);
        last = IoError(reason);
      } else {
        last = Explain(*answer);
        constexpr long kRangeNotSatisfiable = 416;
        starts_over_ = answer->status == kRangeNotSatisfiable && file_.size() > 0;
        if (!HttpClient::IsTransient(answer->status) && !starts_over_) return last;
        reason = fmt::format("{} answered {}", HostOf(answer->url), answer->status);
        retry_after = answer->retry_after;
      }
      if (starts_over_) {
        if (has_started_over_) return last;
        has_started_over_ = true;
        starts_over_ = false;
        EBB_RETURN_IF_ERROR(StartOver());
        continue;
      }
      if (file_.size() >= last_size + kProgress) attempt = 1;
      last_size = file_.size();
      if (attempt >= client_.settings().attempts) return last;
      EBB_RETURN_IF_ERROR(client_.Wait(attempt + 1, retry_after, reason));
    }
  }

  Result<HttpAnswer, HttpFailure> Ask() {
    HttpRequest request = {.url = download_.url,
                           .headers = download_.headers,
                           .token = download_.token,
                           .from = file_.size()};
    if (!entity_tag_.starts_with("W/")) request.if_range = entity_tag_;
    bool is_first = true;
    const auto take = [&](const HttpAnswer& head, std::string_view bytes) {
      if (is_first) {
        is_first = false;
        EBB_RETURN_IF_ERROR(TakeHead(head));
      }
      if (starts_over_) return OkStatus();
      if (total_ > 0 && bytes.size() > total_ - file_.size()) {
        return Corrupt(fmt::format("{}: expected {} bytes, found more", download_.url, total_));
      }
      EBB_RETURN_IF_ERROR(file_.Append(bytes));
      if (!file_.MayBeGguf()) return NoGguf();
      if (download_.on_progress) download_.on_progress(file_.size(), total_);
      return OkStatus();
    };
    return client_.Stream(request, take);
  }

  // Checks the head of an answer before its first byte is appended: the range, the size and the
  // entity tag. Clears the file if the server sends it from its beginning.
  Status TakeHead(const HttpAnswer& head) {
    constexpr long kPartial = 206;
    const std::string tag = head.Header("etag");
    uint64_t begin = 0;
    std::optional<uint64_t> total;
    if (head.status == kPartial) {
      const auto range = ParseContentRange(head.Header("content-range"));
      if (!range || range->first != file_.size()) {
        starts_over_ = true;
        return IoError(fmt::format("{}: expected the bytes from {} on, found {}", HostOf(head.url),
                                   file_.size(), head.Header("content-range")));
      }
      if (download_.sha256.empty() && tag != entity_tag_) {
        starts_over_ = true;
        return IoError(fmt::format("{}: the file has changed", HostOf(head.url)));
      }
      begin = range->first;
      total = range->total;
    } else {
      // The server ignored the range and sends the file from its beginning.
      EBB_RETURN_IF_ERROR(file_.Clear());
      total = ParseDigits(head.Header("content-length"));
    }
    if (total && total_ > 0 && *total != total_) {
      return Corrupt(fmt::format("{}: expected {} bytes, found {}", download_.url, total_, *total));
    }
    if (total) total_ = *total;
    if (total_ == 0 && download_.sha256.empty()) {
      return Unsupported(
          fmt::format("{} does not say how long the file is: give its hash, "
                      "URL#sha256=HEX",
                      HostOf(head.url)));
    }
    if (total_ > begin) {
      EBB_RETURN_IF_ERROR(CheckFreeSpace(fs::path(path_).parent_path(), total_ - begin));
    }
    if (tag != entity_tag_) {
      entity_tag_ = tag;
      std::ofstream(tag_path_) << tag;
    }
    return OkStatus();
  }

  [[nodiscard]] Status Explain(const HttpAnswer& answer) const {
    if (download_.explain) {
      Status status = download_.explain(answer);
      if (!status.ok()) return status;
    }
    return IoError(fmt::format("{} answered {}", download_.url, answer.status));
  }

  [[nodiscard]] Status NoGguf() const {
    return Corrupt(fmt::format("{} is no GGUF file", download_.url));
  }

  Status Check(const std::string& hash) {
    if (total_ > 0 && file_.size() != total_) {
      return Corrupt(
          fmt::format("{}: expected {} bytes, found {}", download_.url, total_, file_.size()));
    }
    if (!download_.sha256.empty() && hash != download_.sha256) {
      return Corrupt(fmt::format("{}: expected SHA-256 {}, found {}; what was fetched is removed",
                                 download_.url, download_.sha256, hash));
    }
    return file_.size() >= kMagic.size() && file_.MayBeGguf() ? OkStatus() : NoGguf();
  }

  Status Publish() {
    std::error_code error;
    fs::rename(path_, download_.path, error);
    if (error) return IoError(fmt::format("cannot write {}: {}", download_.path, error.message()));
    fs::remove(tag_path_, error);
    return OkStatus();
  }

  void Remove() {
    std::error_code ignored;
    fs::remove(path_, ignored);
    fs::remove(tag_path_, ignored);
  }

  HttpClient& client_;
  const FileDownload& download_;
  std::string path_;
  std::string tag_path_;
  IncompleteFile file_;
  uint64_t total_;          // of the file; 0: unknown
  std::string entity_tag_;  // of the bytes that are there
  bool starts_over_ = false;
  bool has_started_over_ = false;
};

}  // namespace

Result<std::string> DownloadFile(HttpClient* client, const FileDownload& download) {
  return Downloader(client, download).Run();
}

Status CheckFreeSpace(const std::string& folder, uint64_t bytes) {
  constexpr uint64_t kMegabyte = 1'000'000;
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return OkStatus();
  return IoError(fmt::format("{}: expected {} MB of free disk space, found {} MB", folder,
                             bytes / kMegabyte, space.available / kMegabyte));
}

}  // namespace ebb::cli
