// Completions for shells: commands, their options, and the words and files that options take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/docs/docs.h"

namespace ebb::cli {
namespace {

// "run", "bench" of ""; "decode", "prefill" of "bench".
std::vector<std::string_view> WordsUnder(std::string_view parent) {
  std::vector<std::string_view> words;
  for (const Command* command : ChildrenOf(parent)) words.push_back(LastWord(*command));
  return words;
}

// Returns the commands that have subcommands.
std::vector<const Command*> Parents() {
  std::vector<const Command*> parents;
  for (const Command* command : ChildrenOf("")) {
    if (!ChildrenOf(command->name).empty()) parents.push_back(command);
  }
  return parents;
}

std::vector<const OptionRow*> OptionsOf(const Command& command) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : OptionTable()) {
    if (Takes(command, row) && row.names.starts_with('-')) rows.push_back(&row);
  }
  return rows;
}

// Within single quotes of a shell.
std::string Quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted;
}

// A help that stands in zsh's [..] within single quotes.
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

std::string BashCompletionText() {
  std::string text = fmt::format(
      "# Completions of ebb for bash, printed by `ebb docs --as bash`.\n"
      "_ebb() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local command=${{COMP_WORDS[1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- \"$current\")\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n",
      fmt::join(WordsUnder(""), " "));
  for (const Command* parent : Parents()) {
    text += fmt::format(
        "    {0})\n"
        "      if ((COMP_CWORD == 2)); then\n"
        "        mapfile -t COMPREPLY < <(compgen -W '{1} --help' -- \"$current\")\n"
        "        return\n"
        "      fi\n"
        "      command=\"{0} ${{COMP_WORDS[2]}}\" ;;\n",
        parent->name, fmt::join(WordsUnder(parent->name), " "));
  }
  text += "  esac\n  case $previous in\n";
  for (const OptionRow& row : OptionTable()) {
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
  for (const Command* command : DocumentedCommands()) {
    std::vector<std::string_view> names;
    for (const OptionRow* row : OptionsOf(*command)) {
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
      "}\n"
      "complete -o filenames -F _ebb ebb\n";
  return text;
}

std::string ZshCompletionText() {
  std::string text =
      "#compdef ebb\n"
      "# Completions of ebb for zsh, printed by `ebb docs --as zsh`.\n"
      "local command=$words[2]\n"
      "if ((CURRENT == 2)); then\n"
      "  local -a commands=(\n";
  for (const Command* command : ChildrenOf("")) {
    text += fmt::format("    '{}:{}'\n", command->name, Quoted(command->summary));
  }
  text += "  )\n  _describe command commands\n  return\nfi\ncase $command in\n";
  for (const Command* parent : Parents()) {
    text += fmt::format(
        "  {0})\n"
        "    if ((CURRENT == 3)); then\n"
        "      compadd {1}\n"
        "      return\n"
        "    fi\n"
        "    command=\"{0} $words[3]\" ;;\n",
        parent->name, fmt::join(WordsUnder(parent->name), " "));
  }
  text += "esac\ncase $command in\n";
  for (const Command* command : DocumentedCommands()) {
    text += fmt::format("  '{}')\n    _arguments -s \\\n", command->name);
    for (const OptionRow* row : OptionsOf(*command)) {
      for (const std::string_view name : NamesOf(*row)) {
        text += fmt::format("      '*{}[{}]{}' \\\n", name, ZshHelp(row->help), ZshAction(*row));
      }
    }
    text += "      '*:file:_files' ;;\n";
  }
  text += "esac\n";
  return text;
}

std::string FishCompletionText() {
  std::string text =
      "# Completions of ebb for fish, printed by `ebb docs --as fish`.\n"
      "complete -c ebb -f\n";
  for (const Command* command : ChildrenOf("")) {
    text += fmt::format("complete -c ebb -n __fish_use_subcommand -a {} -d '{}'\n", command->name,
                        Quoted(command->summary));
  }
  for (const Command* parent : Parents()) {
    text += fmt::format(
        "complete -c ebb -n '__fish_seen_subcommand_from {0}; and not "
        "__fish_seen_subcommand_from {1}' -a '{1}'\n",
        parent->name, fmt::join(WordsUnder(parent->name), " "));
  }
  for (const Command* command : DocumentedCommands()) {
    for (const OptionRow* row : OptionsOf(*command)) {
      text += fmt::format("complete -c ebb -n '{}'", FishCondition(*command));
      for (const std::string_view name : NamesOf(*row)) {
        // -o: a name of several letters behind one dash.
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
