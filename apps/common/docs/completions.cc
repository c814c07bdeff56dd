// Writes completion scripts for shells, which complete commands, their options, and the words and
// files that options take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/docs/docs.h"

namespace ebb::cli {
namespace {

// Returns the words that may follow a command: "run", "device", ... after "", and "list", "test"
// after "device".
std::vector<std::string_view> WordsUnder(const Program& program, std::string_view parent) {
  std::vector<std::string_view> words;
  for (const Command* command : ChildrenOf(program, parent)) words.push_back(LastWord(*command));
  return words;
}

// Returns the commands that have subcommands.
std::vector<const Command*> Parents(const Program& program) {
  std::vector<const Command*> parents;
  for (const Command* command : ChildrenOf(program, "")) {
    if (!ChildrenOf(program, command->name).empty()) parents.push_back(command);
  }
  return parents;
}

// Returns the options of the command that have a name, as arguments by their place do not.
std::vector<const OptionRow*> NamedOptionsOf(const Program& program, const Command& command) {
  std::vector<const OptionRow*> rows = OptionsOf(program, command);
  std::erase_if(rows, [](const OptionRow* row) { return !row->names.starts_with('-'); });
  return rows;
}

// Returns the options that some command takes.
std::vector<const OptionRow*> TakenOptions(const Program& program) {
  std::vector<const OptionRow*> rows;
  for (const OptionSection& section : OptionSections(program)) {
    rows.insert(rows.end(), section.rows.begin(), section.rows.end());
  }
  return rows;
}

// "_ebb_lab" of "ebb-lab".
std::string FunctionName(const Program& program) {
  std::string name = fmt::format("_{}", program.name);
  std::ranges::replace(name, '-', '_');
  return name;
}

// Escapes a text for single quotes of a shell.
std::string Quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted;
}

// Escapes an option's help for zsh's [...] within single quotes.
std::string ZshHelp(std::string_view text) {
  std::string help;
  for (const char c : Quoted(text)) {
    if (c == '[' || c == ']' || c == ':') help += '\\';
    help += c;
  }
  return help;
}

std::string ZshAction(const OptionRow& row) {
  if (row.value.empty()) return "";
  const auto choices = ChoicesOf(row);
  if (!choices.empty()) return fmt::format(":value:({})", fmt::join(choices, " "));
  return TakesFile(row) ? ":file:_files" : ":value: ";
}

std::string FishCondition(const Command& command) {
  const size_t space = command.name.find(' ');
  const std::string first =
      fmt::format("__fish_seen_subcommand_from {}", command.name.substr(0, space));
  if (space == std::string_view::npos) return first;
  return fmt::format("{}; and __fish_seen_subcommand_from {}", first, LastWord(command));
}

}  // namespace

std::string BashCompletionText(const Program& program) {
  std::string text = fmt::format(
      "# Completions of {0} for bash, printed by `{0} docs --as bash`.\n"
      "{1}() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local command=${{COMP_WORDS[1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{2} --help --version' -- \"$current\")\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n",
      program.name, FunctionName(program), fmt::join(WordsUnder(program, ""), " "));
  for (const Command* parent : Parents(program)) {
    text += fmt::format(
        "    {0})\n"
        "      if ((COMP_CWORD == 2)); then\n"
        "        mapfile -t COMPREPLY < <(compgen -W '{1} --help' -- \"$current\")\n"
        "        return\n"
        "      fi\n"
        "      command=\"{0} ${{COMP_WORDS[2]}}\" ;;\n",
        parent->name, fmt::join(WordsUnder(program, parent->name), " "));
  }
  text += "  esac\n  case $previous in\n";
  for (const OptionRow* taken : TakenOptions(program)) {
    const OptionRow& row = *taken;
    if (!row.names.starts_with('-') || row.value.empty()) continue;
    const auto choices = ChoicesOf(row);
    const std::string names = fmt::format("{}", fmt::join(NamesOf(row), "|"));
    if (!choices.empty()) {
      text += fmt::format("    {}) words='{}' ;;\n", names, fmt::join(choices, " "));
    } else if (TakesFile(row)) {
      text += fmt::format(
          "    {}) mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return ;;\n", names);
    } else {
      text += fmt::format("    {}) return ;;\n", names);
    }
  }
  text += "  esac\n  if [[ -z $words ]]; then\n    case $command in\n";
  for (const Command* command : DocumentedCommands(program)) {
    std::vector<std::string_view> names;
    for (const OptionRow* row : NamedOptionsOf(program, *command)) {
      for (const std::string_view name : NamesOf(*row)) names.push_back(name);
    }
    text += fmt::format("      '{}') words='{} --help' ;;\n", command->name, fmt::join(names, " "));
  }
  text +=
      "    esac\n  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  if ((${#COMPREPLY[@]} == 0)) && [[ $current != -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "  fi\n"
      "}\n";
  return text +
         fmt::format("complete -o filenames -F {} {}\n", FunctionName(program), program.name);
}

std::string ZshCompletionText(const Program& program) {
  std::string text = fmt::format(
      "#compdef {0}\n"
      "# Completions of {0} for zsh, printed by `{0} docs --as zsh`.\n",
      program.name);
  text +=
      "local command=$words[2]\n"
      "if ((CURRENT == 2)); then\n"
      "  local -a commands=(\n";
  for (const Command* command : ChildrenOf(program, "")) {
    text += fmt::format("    '{}:{}'\n", command->name, Quoted(command->summary));
  }
  text += "  )\n  _describe command commands\n  return\nfi\ncase $command in\n";
  for (const Command* parent : Parents(program)) {
    text += fmt::format(
        "  {0})\n"
        "    if ((CURRENT == 3)); then\n"
        "      compadd {1}\n"
        "      return\n"
        "    fi\n"
        "    command=\"{0} $words[3]\" ;;\n",
        parent->name, fmt::join(WordsUnder(program, parent->name), " "));
  }
  text += "esac\ncase $command in\n";
  for (const Command* command : DocumentedCommands(program)) {
    text += fmt::format("  '{}')\n    _arguments -s \\\n", command->name);
    for (const OptionRow* row : NamedOptionsOf(program, *command)) {
      for (const std::string_view name : NamesOf(*row)) {
        text += fmt::format("      '*{}[{}]{}' \\\n", name, ZshHelp(row->help), ZshAction(*row));
      }
    }
    text += "      '*:file:_files' ;;\n";
  }
  text += "esac\n";
  return text;
}

std::string FishCompletionText(const Program& program) {
  std::string text = fmt::format(
      "# Completions of {0} for fish, printed by `{0} docs --as fish`.\n"
      "complete -c {0} -f\n",
      program.name);
  for (const Command* command : ChildrenOf(program, "")) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d '{}'\n", program.name,
                        command->name, Quoted(command->summary));
  }
  for (const Command* parent : Parents(program)) {
    text += fmt::format(
        "complete -c {2} -n '__fish_seen_subcommand_from {0}; and not "
        "__fish_seen_subcommand_from {1}' -a '{1}'\n",
        parent->name, fmt::join(WordsUnder(program, parent->name), " "), program.name);
  }
  for (const Command* command : DocumentedCommands(program)) {
    for (const OptionRow* row : NamedOptionsOf(program, *command)) {
      text += fmt::format("complete -c {} -n '{}'", program.name, FishCondition(*command));
      for (const std::string_view name : NamesOf(*row)) {
        // fish's -o completes a name of several letters behind one dash, such as -hf.
        text += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                : name.size() == 2     ? fmt::format(" -s {}", name.substr(1))
                                       : fmt::format(" -o {}", name.substr(1));
      }
      const auto choices = ChoicesOf(*row);
      if (!choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(choices, " "));
      } else if (!row->value.empty()) {
        text += TakesFile(*row) ? " -r -F" : " -x";
      }
      text += fmt::format(" -d '{}'\n", Quoted(row->help));
    }
  }
  return text;
}

}  // namespace ebb::cli
