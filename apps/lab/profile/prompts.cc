#include "apps/lab/profile/prompts.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/common/prompt.h"
#include "apps/lab/lab_options.h"

namespace ebb::cli {
namespace {

Result<std::string> PromptOf(std::string_view line, int number) {
  if (!line.starts_with('{')) return std::string(line);
  const auto record = nlohmann::json::parse(line, nullptr, false);
  if (record.is_object()) {
    for (const char* name : {"prompt", "question"}) {
      const auto found = record.find(name);
      if (found != record.end() && found->is_string()) return found->get<std::string>();
    }
  }
  return InvalidArgument(fmt::format(
      "line {}: expected a JSON object with a text \"prompt\" or \"question\"", number));
}

}  // namespace

Result<std::vector<std::string>> ParsePrompts(std::string_view text) {
  std::vector<std::string> prompts;
  constexpr std::string_view kByteOrderMark = "\uFEFF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    EBB_ASSIGN_OR_RETURN(std::string prompt, PromptOf(line, number));
    if (prompt.empty()) return InvalidArgument(fmt::format("line {}: an empty prompt", number));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return InvalidArgument("expected prompts, found none");
  return prompts;
}

Result<std::vector<std::string>> ReadProfilePrompts(const CliOptions& options) {
  const std::string& path = options.Of<ProfileInput>().prompts_file;
  if (path.empty()) {
    EBB_ASSIGN_OR_RETURN(std::string text, ReadPromptText(options));
    return std::vector<std::string>{std::move(text)};
  }
  if (options.prompt || !options.prompt_file.empty()) {
    return InvalidArgument("expected --prompts, or one prompt with -p or -f; found both");
  }
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file.is_open() || file.bad() || std::filesystem::is_directory(path, error)) {
    return InvalidArgument(fmt::format("cannot read {}", path));
  }
  auto prompts = ParsePrompts(content.view());
  if (prompts.ok()) return prompts;
  return prompts.status().WithPrefix(path);
}

}  // namespace ebb::cli
