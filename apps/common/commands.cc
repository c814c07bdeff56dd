#include "apps/common/commands.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb::cli {

std::vector<OptionGroup> WithModel(std::vector<OptionGroup> groups) {
  groups.insert(groups.end(), ModelGroups().begin(), ModelGroups().end());
  return groups;
}

Command DocsCommand(ExitCode (*run)(const CliOptions& options)) {
  return {"docs",
          "print the reference of commands and options",
          {OptionGroup::kDocs},
          run,
          {},
          Command::Visibility::kHidden};
}

bool Takes(const Command& command, const OptionRow& row) {
  return std::ranges::find(command.groups, row.group) != command.groups.end();
}

std::vector<const OptionRow*> OptionsOf(const Program& program, const Command& command) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : program.options) {
    if (Takes(command, row)) rows.push_back(&row);
  }
  return rows;
}

std::vector<const Command*> ChildrenOf(const Program& program, std::string_view parent) {
  std::vector<const Command*> children;
  for (const Command& command : program.commands) {
    const size_t space = command.name.rfind(' ');
    const std::string_view above =
        space == std::string_view::npos ? "" : command.name.substr(0, space);
    if (above == parent && command.visibility == Command::Visibility::kShown) {
      children.push_back(&command);
    }
  }
  return children;
}

std::string_view LastWord(const Command& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

const Command* FindCommand(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.commands, name, &Command::name);
  return found == program.commands.end() ? nullptr : &*found;
}

std::string WithoutEffectText(const Program& program, const Command& command) {
  std::string names;
  for (const OptionRow& row : program.options) {
    const auto& groups = command.without_effect;
    if (std::ranges::find(groups, row.group) == groups.end()) continue;
    if (!names.empty()) names += ", ";
    names += row.names.substr(0, row.names.find(','));
  }
  return names.empty() ? "" : fmt::format("Also accepted, without any effect here: {}.", names);
}

}  // namespace ebb::cli
