#include "apps/common/docs/docs.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/common/options/option_errors.h"
#include "apps/common/options/option_values.h"

namespace ebb::cli {
namespace {

bool IsWord(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::vector<const Command*> DocumentedCommands(const Program& program) {
  std::vector<const Command*> commands;
  for (const Command& command : program.commands) {
    if (command.run != nullptr && command.visibility == Command::Visibility::kShown) {
      commands.push_back(&command);
    }
  }
  return commands;
}

std::vector<OptionSection> OptionSections(const Program& program) {
  std::vector<OptionSection> sections;
  for (const OptionRow& row : program.options) {
    OptionSection section = {.title = OptionGroupTitle(row.group), .commands = {}, .rows = {}};
    for (const Command* command : DocumentedCommands(program)) {
      if (Takes(*command, row)) section.commands.push_back(command);
    }
    if (section.commands.empty()) continue;
    const auto same = std::ranges::find_if(sections, [&](const OptionSection& other) {
      return other.title == section.title && other.commands == section.commands;
    });
    OptionSection& to = same == sections.end() ? sections.emplace_back(section) : *same;
    to.rows.push_back(&row);
  }
  // Sections that share a title stand together, in the order in which titles first occur.
  std::vector<std::string_view> titles;
  for (const OptionSection& section : sections) {
    if (std::ranges::find(titles, section.title) == titles.end()) titles.push_back(section.title);
  }
  std::ranges::stable_sort(sections, {}, [&](const OptionSection& section) {
    return std::ranges::find(titles, section.title) - titles.begin();
  });
  return sections;
}

std::vector<std::string_view> ChoicesOf(const OptionRow& row) {
  std::vector<std::string_view> choices = Split(row.value, '|');
  if (choices.size() < 2 || !std::ranges::all_of(choices, IsWord)) return {};
  return choices;
}

bool TakesFile(const OptionRow& row) {
  return row.value.find("FILE") != std::string::npos ||
         row.value.find("FOLDER") != std::string::npos;
}

ExitCode PrintDocs(const Program& program, DocsForm form) {
  if (form == DocsForm::kConfig && FindCommand(program, "serve") == nullptr) {
    return Fail(
        InvalidArgument(fmt::format("--as config: {} reads no configuration file", program.name)));
  }
  const auto text = [&] {
    switch (form) {
      case DocsForm::kMan:
        return ManPageText(program);
      case DocsForm::kBash:
        return BashCompletionText(program);
      case DocsForm::kZsh:
        return ZshCompletionText(program);
      case DocsForm::kFish:
        return FishCompletionText(program);
      case DocsForm::kConfig:
        return ConfigText(program);
      case DocsForm::kMarkdown:
        break;
    }
    return MarkdownText(program);
  };
  fmt::print("{}", text());
  return ExitCode::kOk;
}

}  // namespace ebb::cli
