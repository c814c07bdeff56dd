#include "ebb/lab/eval_task.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/tasks/task_formats.h"
#include "lab/tasks/task_record.h"

namespace ebb {
namespace {

constexpr std::array<std::string_view, kNumTaskFormats> kFormatNames = {
    "gsm8k", "math", "math_level_5", "aime", "arc", "gpqa"};

// Removes the first line of the text and returns it.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

}  // namespace

std::string_view TaskFormatName(TaskFormat format) {
  return kFormatNames[static_cast<size_t>(format)];
}

AnswerKind AnswerKindOf(TaskFormat format) {
  switch (format) {
    case TaskFormat::kMath:
    case TaskFormat::kMathLevel5:
      return AnswerKind::kMath;
    case TaskFormat::kArc:
    case TaskFormat::kGpqa:
      return AnswerKind::kOption;
    case TaskFormat::kGsm8k:
    case TaskFormat::kAime:
      break;
  }
  return AnswerKind::kNumber;
}

Result<TaskFormat> FindTaskFormat(std::string_view name) {
  for (size_t i = 0; i < kFormatNames.size(); ++i) {
    if (kFormatNames[i] == name) return static_cast<TaskFormat>(i);
  }
  return InvalidArgument(fmt::format("there is no task format \"{}\"; there are {}", name,
                                     fmt::join(kFormatNames, ", ")));
}

uint64_t Fingerprint(std::span<const EvalProblem> problems) {
  uint64_t hash = 0;
  const auto add = [&](std::string_view text) {
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
  };
  for (const EvalProblem& problem : problems) {
    add(problem.id);
    add(problem.question);
    add(problem.reference);
    for (const std::string& option : problem.options) add(option);
  }
  return hash;
}

std::string EvalProblem::Text() const {
  std::string text = question;
  for (size_t i = 0; i < options.size(); ++i) {
    text += fmt::format("{}\n{}) {}", i == 0 ? "\n" : "", static_cast<char>('A' + i), options[i]);
  }
  return text;
}

Result<EvalTaskSource> ParseEvalTaskSource(std::string_view text) {
  EvalTaskSource source = {.path = std::string(text)};
  const size_t colon = text.rfind(':');
  // A colon in a folder's name or before an extension belongs to the path, not to a format.
  const bool names_format = colon != std::string_view::npos &&
                            text.substr(colon).find_first_of("/.") == std::string_view::npos;
  if (names_format) {
    EBB_ASSIGN_OR_RETURN(source.format, FindTaskFormat(text.substr(colon + 1)));
    source.path = text.substr(0, colon);
  }
  if (source.path.empty()) return InvalidArgument("expected FILE.jsonl[:FORMAT], found no file");
  return source;
}

Result<EvalTask> ParseEvalTask(std::string_view content, const EvalTaskSource& source) {
  constexpr std::string_view kByteOrderMark = "\uFEFF";
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  std::optional<TaskFormat> format = source.format;
  EvalTask task;
  std::unordered_set<std::string> ids;
  int64_t records = 0;
  for (int64_t number = 1; !content.empty(); ++number) {
    const std::string_view line = TakeLine(&content);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ++records;
    EBB_ASSIGN_OR_RETURN(const TaskRecord record,
                         TaskRecord::Parse(line, fmt::format("{}, line {}", source.path, number)));
    if (!format) {
      EBB_ASSIGN_OR_RETURN(format, RecogniseFormat(record));
    }
    // Adds a multiple of Weyl's constant, so that the seeds of lines differ.
    const uint64_t shuffle =
        source.shuffle_seed + static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u;
    EBB_ASSIGN_OR_RETURN(std::optional<EvalProblem> problem, ReadProblem(record, *format, shuffle));
    if (!problem) continue;
    if (problem->id.empty()) problem->id = fmt::format("line-{}", number);
    while (!ids.insert(problem->id).second) problem->id += fmt::format("#line-{}", number);
    task.problems.push_back(*std::move(problem));
  }
  if (records == 0)
    return InvalidArgument(fmt::format("{}: expected problems, found none", source.path));
  if (task.problems.empty()) {
    return InvalidArgument(
        fmt::format("{}: none of the {} problems is of level 5", source.path, records));
  }
  task.format = *format;
  return task;
}

Result<EvalTask> ReadEvalTask(const EvalTaskSource& source) {
  std::error_code error;
  if (!std::filesystem::exists(source.path, error)) {
    return NotFound(fmt::format("there is no file {}", source.path));
  }
  // Refuses other kinds of files: opening a named pipe would wait for its other end.
  if (!std::filesystem::is_regular_file(source.path, error)) {
    return InvalidArgument(fmt::format("cannot read {}: it is not a regular file", source.path));
  }
  std::ifstream file(source.path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    return InvalidArgument(fmt::format("cannot read {}", source.path));
  }
  return ParseEvalTask(content.view(), source);
}

}  // namespace ebb
