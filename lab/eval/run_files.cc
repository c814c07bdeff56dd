#include "ebb/lab/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

Status Failed(std::string_view what, const std::string& path) {
  return IoError(fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

// Reads a regular file. Errors: NotFound.
Result<std::string> ReadText(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path, error)) {
    return NotFound(fmt::format("cannot read {}", path));
  }
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

struct ParsedLines {
  std::vector<Json> lines;
  std::vector<int64_t> ends;
};

Result<ParsedLines> Parse(const std::string& text, const std::string& path) {
  ParsedLines parsed;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    Json line = Json::parse(text.begin() + static_cast<int64_t>(begin),
                            text.begin() + static_cast<int64_t>(end), nullptr, false);
    if (!line.is_object()) {
      return Corrupt(fmt::format("{}, line {}: not a JSON object", path, parsed.lines.size() + 1));
    }
    parsed.lines.push_back(std::move(line));
    begin = end + 1;
    parsed.ends.push_back(static_cast<int64_t>(begin));
  }
  return parsed;
}

// Writes all bytes. Returns false, with errno set, if that fails.
bool WriteAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  std::unique_ptr<LineFile> opened(new LineFile);
  opened->path_ = path;
  opened->file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (opened->file_ < 0) return Failed("open", path);
  if (!std::filesystem::is_regular_file(path)) {
    return InvalidArgument(fmt::format("{} is no regular file", path));
  }
  if (flock(opened->file_, LOCK_EX | LOCK_NB) != 0) {
    return InvalidArgument(fmt::format("another process writes {}", path));
  }
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  EBB_ASSIGN_OR_RETURN(ParsedLines parsed, Parse(text, path));
  opened->lines_ = std::move(parsed.lines);
  opened->ends_ = std::move(parsed.ends);
  EBB_RETURN_IF_ERROR(opened->Truncate(opened->lines_.size()));
  return opened;
}

LineFile::~LineFile() {
  if (file_ >= 0) close(file_);
}

Status LineFile::Truncate(size_t count) {
  if (count < lines_.size()) {
    lines_.resize(count);
    ends_.resize(count);
  }
  const int64_t end = ends_.empty() ? 0 : ends_.back();
  if (ftruncate(file_, end) != 0 || lseek(file_, end, SEEK_SET) < 0) return Failed("cut", path_);
  return OkStatus();
}

Status LineFile::Append(const Json& line) {
  const std::string text = LineText(line) + "\n";
  if (!WriteAll(file_, text)) {
    const Status status = Failed("write", path_);
    EBB_RETURN_IF_ERROR(Truncate(lines_.size()));
    return status;
  }
  lines_.push_back(line);
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + static_cast<int64_t>(text.size()));
  return OkStatus();
}

std::string LineText(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status WriteFile(const std::string& path, std::string_view content) {
  const std::string beside = path + ".new";
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return Failed("open", beside);
  Status status;
  if (!WriteAll(file, content) || fsync(file) != 0) status = Failed("write", beside);
  if (close(file) != 0 && status.ok()) status = Failed("write", beside);
  if (status.ok() && rename(beside.c_str(), path.c_str()) != 0) status = Failed("replace", path);
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

Result<Json> ReadJson(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Corrupt(fmt::format("{} is no JSON", path));
  return json;
}

}  // namespace ebb
