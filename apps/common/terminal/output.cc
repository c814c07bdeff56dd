#include "apps/common/terminal/output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "apps/common/terminal/screen.h"
#include "apps/common/terminal/tier_style.h"

namespace ebb::cli {
namespace {

Status WriteTo(int file, std::string_view name, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready = {.fd = file, .events = POLLOUT, .revents = 0};
      poll(&ready, 1, -1);
    } else if (errno == EPIPE) {
      return IoError(fmt::format("{} was closed; stopped", name));
    } else if (errno != EINTR) {
      return IoError(fmt::format("cannot write to {}: {}", name, std::strerror(errno)));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckWritable(const std::string& path) {
  if (path.empty()) return OkStatus();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  const bool is_new = !std::filesystem::exists(status);
  if (!is_new && !std::filesystem::is_regular_file(status)) {
    if (!std::filesystem::is_directory(status) && access(path.c_str(), W_OK) == 0)
      return OkStatus();
    return IoError(fmt::format("cannot write {}", path));
  }
  const bool writable = std::ofstream(path, std::ios::app).good();
  if (writable && is_new) std::filesystem::remove(path, error);
  return writable ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

TextOutput::TextOutput(Thoughts thoughts, LineEnd line_end)
    : thoughts_(thoughts),
      line_end_(line_end),
      terminal_(isatty(STDOUT_FILENO) != 0),
      dims_(thoughts == Thoughts::kDim && TakesEscapes(STDOUT_FILENO) && !NoColor()) {}

bool TextOutput::Write(std::string_view text, TextPart part) {
  if (part == TextPart::kThought && thoughts_ == Thoughts::kHide) {
    trim_ = true;
    return status_.ok();
  }
  if (trim_) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (text.empty()) return status_.ok();
    trim_ = false;
  }
  SetDim(part);
  if (!text.empty()) at_line_start_ = text.back() == '\n';
  return WriteText(text);
}

void TextOutput::Finish() {
  if (terminal_) WriteAll(shown_.End());
  SetDim(TextPart::kAnswer);
  const bool end_line = terminal_ || line_end_ == LineEnd::kAlways;
  if (end_line && !at_line_start_) WriteAll("\n");
  at_line_start_ = true;
  trim_ = false;
}

void TextOutput::SetDim(TextPart part) {
  const bool dim = dims_ && part == TextPart::kThought;
  if (dim == dimmed_) return;
  dimmed_ = dim;
  WriteAll(dim ? "\033[2m" : "\033[0m");
}

bool TextOutput::WriteText(std::string_view text) {
  return terminal_ ? WriteAll(shown_.Show(text)) : WriteAll(text);
}

bool TextOutput::WriteAll(std::string_view bytes) {
  if (status_.ok()) status_ = WriteToStdout(bytes);
  return status_.ok();
}

Status WriteToStdout(std::string_view bytes) { return WriteTo(STDOUT_FILENO, "stdout", bytes); }

Status WriteToStderr(std::string_view bytes) { return WriteTo(STDERR_FILENO, "stderr", bytes); }

Status WriteTextToStdout(std::string_view text) {
  if (isatty(STDOUT_FILENO) == 0) return WriteToStdout(text);
  return WriteToStdout(ShownOnTerminal(text));
}

}  // namespace ebb::cli
