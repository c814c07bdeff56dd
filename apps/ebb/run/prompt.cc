#include "apps/ebb/run/prompt.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/ebb/exit_code.h"
#include "apps/ebb/terminal/line_end.h"
#include "apps/ebb/terminal/say.h"

namespace ebb::cli {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Result<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  errno = 0;
  // Not until fread() gives nothing: after the end it would ask a terminal again.
  while (std::feof(file) == 0 && std::ferror(file) == 0) {
    text.append(buffer, std::fread(buffer, 1, sizeof(buffer), file));
  }
  if (std::ferror(file) != 0) {
    if (errno == EINTR) return Cancelled("interrupted");
    return IoError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  }
  return WithoutLineEnd(std::move(text));
}

Result<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return InvalidArgument(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  auto text = ReadAll(file.get(), path);
  if (!text.ok()) return AsUsage(text.status());
  return text;
}

bool ResumesSession(const CliOptions& options) {
  std::error_code error;
  return !options.session_file.empty() && std::filesystem::exists(options.session_file, error);
}

Result<std::string> ReadSource(const CliOptions& options) {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file.empty()) return ReadFile(options.prompt_file);
  if (isatty(STDIN_FILENO) != 0) {
    if (ResumesSession(options)) return std::string();
    Say("reading the prompt from the terminal; Ctrl-D ends it\n");
  }
  return ReadAll(stdin, "stdin");
}

}  // namespace

Result<std::string> ReadPromptText(const CliOptions& options) {
  EBB_ASSIGN_OR_RETURN(std::string text, ReadSource(options));
  if (text.empty() && !ResumesSession(options))
    return InvalidArgument("expected a prompt, found an empty one");
  return text;
}

}  // namespace ebb::cli
