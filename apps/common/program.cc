#include "apps/common/program.h"
#include "apps/common/options/option_errors.h"

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "apps/common/help.h"
#include "apps/common/models/known_models.h"
#include "apps/common/options/config_file.h"
#include "apps/common/options/foreign_options.h"
#include "apps/common/options/policy_list.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "apps/common/tier_notices.h"
#include "ebb/version.h"
#include "src/base/text/near_names.h"

namespace ebb::cli {
namespace {

std::string Names(const std::vector<const Command*>& commands) {
  std::string names;
  for (const Command* command : commands) {
    if (!names.empty()) names += ", ";
    names += LastWord(*command);
  }
  return names;
}

// Returns an error that names, in this order: the new spelling of a command that moved to another
// program, ebb's replacement of another program's command, the command that was likely meant, or
// all commands.
Status UnknownCommand(const Program& program, std::string_view parent, const std::string& name,
                      std::span<const std::string> rest) {
  for (const MovedCommand& moved : program.moved) {
    if (moved.name != name) continue;
    // If a whole group of commands moved (`bench` became ebb-bench), the subcommand follows the
    // program's name.
    const bool is_program = moved.now.find(' ') == std::string_view::npos;
    return InvalidArgument(fmt::format("\"{} {}\" is a command of another program now: {}{}",
                                       program.name, name, moved.now,
                                       !is_program    ? ""
                                       : rest.empty() ? " COMMAND"
                                                      : " " + rest.front()));
  }
  if (name.starts_with('-')) {
    return InvalidArgument(fmt::format("{} stands before a command; expected {} {} {}", name,
                                       program.name, ChildrenOf(program, parent).front()->name,
                                       name));
  }
  std::string text = fmt::format("unknown command \"{}\"; ", name);
  std::vector<std::string> names;
  for (const Command* command : ChildrenOf(program, parent)) names.emplace_back(command->name);
  if (const std::string_view hint = parent.empty() ? HintForCommand(name) : ""; !hint.empty()) {
    text += fmt::format("{}; ", hint);
  } else if (const auto meant = LikelyMeant(name, std::move(names)); meant.has_value()) {
    text += fmt::format("did you mean \"{} {}\"? ", program.name, *meant);
  } else if (name.find(' ') != std::string::npos && parent.empty()) {
    text += fmt::format("`{} run -p 'PROMPT'` answers a prompt; ", program.name);
  }
  return InvalidArgument(text + "expected one of: " + Names(ChildrenOf(program, parent)));
}

// Returns the command that `arguments` begin with and removes its words from them, or the exit code
// if they ask for help or the version, or name no command.
std::variant<const Command*, ExitCode> TakeCommand(const Program& program,
                                                   std::span<const std::string>* arguments) {
  std::string name;
  bool is_help = false;  // "help COMMAND", which is "COMMAND --help"
  while (true) {
    if (arguments->empty()) {
      PrintCommands(is_help ? stdout : stderr, program, name);
      return is_help ? ExitCode::kOk : ExitCode::kUsage;
    }
    const std::string& word = arguments->front();
    if (word == "help" && arguments->size() > 1) {
      *arguments = arguments->subspan(1);
      is_help = true;
      continue;
    }
    if (word == "--help" || word == "-h" || word == "help") {
      PrintCommands(stdout, program, name);
      return ExitCode::kOk;
    }
    if ((word == "--version" || word == "-v" || word == "-V") && name.empty()) {
      fmt::print("{} {}\n", program.name, EBB_VERSION);
      return ExitCode::kOk;
    }
    const std::string full = name.empty() ? word : name + " " + word;
    const Command* command = FindCommand(program, full);
    if (command == nullptr) {
      return Fail(UnknownCommand(program, name, full, arguments->subspan(1)));
    }
    *arguments = arguments->subspan(1);
    if (command->run != nullptr) {
      static const std::vector<std::string> kHelp = {"--help"};
      if (is_help) *arguments = kHelp;
      return command;
    }
    name = full;
  }
}

// Returns whether the name has one dash and several letters, such as -hf.
bool IsLongShortName(std::string_view name) {
  return name.starts_with('-') && !name.starts_with("--") && name.size() > 2;
}

// Returns the names of an option that CLI11 can parse. CLI11 takes no short names of several
// letters; ForParser() replaces these in the arguments.
std::string NamesForParser(const OptionRow& row) {
  std::vector<std::string_view> names = NamesOf(row);
  std::erase_if(names, IsLongShortName);
  return fmt::format("{}", fmt::join(names, ","));
}

// Checks the value of --FLAG=VALUE before the parser does, which would take 2 for true, n and -7
// for false, and throw at others. Returns the reason for refusing it, or an empty text.
std::string CheckFlagValue(const std::string& text) {
  constexpr std::array<std::string_view, 8> kValues = {"true", "false", "1",   "0",
                                                       "on",   "off",   "yes", "no"};
  if (std::ranges::count(kValues, CLI::detail::to_lower(text)) > 0) return "";
  return fmt::format("expected true or false, found \"{}\"", text);
}

// TakeOption receives an option that the parser met and its value; for a flag "true", or "false"
// for --FLAG=false.
using TakeOption = std::function<Status(const OptionRow& row, std::string_view text)>;

// Adds an option to the parser; help lists it under `title`, or not at all if that is empty.
void AddOption(const OptionRow& row, const std::string& title, const TakeOption& take,
               CLI::App* app) {
  const auto set = [&row, take](const std::string& text) {
    const Status status = take(row, text);
    if (status.ok()) return;
    // A message about two options names both already.
    if (status.message().starts_with("--")) throw CLI::ValidationError(status.message());
    throw CLI::ValidationError(LongName(row), status.message());
  };
  if (row.value.empty()) {
    app->add_flag_function(
           NamesForParser(row), [set](int64_t count) { set(count > 0 ? "true" : "false"); },
           row.help)
        ->group(title)
        ->check(CheckFlagValue)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return;
  }
  const bool is_positional = !row.names.starts_with('-');
  if (is_positional) {
    const auto set_all = [set](const std::vector<std::string>& texts) {
      for (const std::string& text : texts) set(text);
    };
    app->add_option_function<std::vector<std::string>>(NamesForParser(row), set_all, row.help)
        ->group(title)
        ->type_name("...");
    return;
  }
  app->add_option_function<std::string>(NamesForParser(row), set, row.help)
      ->group(title)
      ->type_name(row.value)
      ->allow_extra_args(false)
      ->trigger_on_parse();  // --stop may come several times; of others the last one holds
}

// Returns the option that the user likely meant by an unknown one: an option of this command with
// nearly the same name, or one of another command. Returns an empty text if there is neither.
std::string MeantOption(const Program& program, const std::vector<const OptionRow*>& rows,
                        std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  if (!name.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const OptionRow* row : rows) names.push_back(LongName(*row));
  if (const auto meant = LikelyMeant(name, std::move(names)); meant.has_value()) {
    return fmt::format("; did you mean {}?", *meant);
  }
  for (const Command& command : program.commands) {
    for (const OptionRow& row : program.options) {
      if (LongName(row) == name && Takes(command, row)) {
        return fmt::format(
            "; it is an option of `{} {}`{}", program.name, command.name,
            name == "--memory"
                ? "; `ebb serve` limits rows by --kv-cap SIZE, or --t0 SIZE --t1 file"
                : "");
      }
    }
  }
  return "";
}

std::string ErrorText(const CLI::ParseError& error, const CLI::App& app, const Program& program,
                      const std::vector<const OptionRow*>& rows) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    text = "unknown option or argument:";
    for (const std::string& word : app.remaining()) text += " " + word;
    for (const std::string& word : app.remaining()) {
      const std::string meant = MeantOption(program, rows, word);
      text += meant;
      if (!meant.empty()) break;
    }
  }
  return fmt::format("{} (see \"{} --help\")", text, app.get_name());
}

// Prepares arguments for the parser and reverses them, as it expects. Splits "--stop=" into
// "--stop" and "", since the parser would take the next argument for the value; replaces short
// names of several letters, such as "-hf", by the long ones.
std::vector<std::string> ForParser(std::span<const OptionRow* const> rows,
                                   std::span<const std::string> arguments) {
  std::vector<std::string> all;
  bool only_words = false;  // behind "--"
  for (const std::string& argument : arguments) {
    only_words = only_words || argument == "--";
    const bool is_empty = !only_words && argument.size() > 3 && argument.starts_with("--") &&
                          argument.find('=') == argument.size() - 1;
    const auto named = std::ranges::find_if(rows, [&](const OptionRow* row) {
      return IsLongShortName(argument) && std::ranges::count(NamesOf(*row), argument) > 0;
    });
    if (!only_words && named != rows.end()) {
      all.push_back(LongName(**named));
      continue;
    }
    all.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty) all.emplace_back();
  }
  std::ranges::reverse(all);
  return all;
}

// Adds the options that a command takes.
void AddOptions(const Program& program, const Command& command, const TakeOption& take,
                CLI::App* app) {
  for (const OptionRow& row : program.options) {
    if (Takes(command, row)) {
      AddOption(row, std::string(OptionGroupTitle(row.group)), take, app);
    } else if (std::ranges::count(command.without_effect, row.group) > 0) {
      AddOption(row, "", take, app);
    }
  }
}

// Sets the options of the --config file, if the arguments name one, except options that the
// arguments give too. Ignores arguments that cannot be parsed; the caller reports them.
Status ReadConfigOf(const Program& program, const Command& command,
                    const std::vector<const OptionRow*>& rows,
                    const std::vector<std::string>& arguments, CliOptions* options) {
  const auto is_config = [](const OptionRow* row) { return LongName(*row) == "--config"; };
  if (std::ranges::none_of(rows, is_config)) return OkStatus();
  CommandLine given;
  std::string file;
  const auto note = [&](const OptionRow& row, std::string_view text) {
    given.rows.push_back(&row);
    if (is_config(&row)) file = text;
    return given.shared.Add(LongName(row), text);
  };
  CLI::App app;
  AddOptions(program, command, note, &app);
  try {
    app.parse(std::vector(arguments));
  } catch (const CLI::ParseError&) {
    return OkStatus();
  }
  return file.empty() ? OkStatus() : ApplyConfigFile(file, rows, given, options);
}

ExitCode RunCommand(const Program& program, const Command& command,
                    std::span<const std::string> arguments) {
  CliOptions options;
  const std::vector<const OptionRow*> rows = OptionsOf(program, command);
  const auto own = WithoutForeignOptions(rows, arguments);
  if (!own.ok()) return Fail(own.status());
  const auto named = WithoutBareWords(rows, *own);
  if (!named.ok()) return Fail(named.status());
  const std::vector<std::string> words = ForParser(rows, *named);
  if (const Status status = ReadConfigOf(program, command, rows, words, &options); !status.ok()) {
    return Fail(status);
  }
  CLI::App app(std::string(command.summary), fmt::format("{} {}", program.name, command.name));
  app.set_help_all_flag("--help-all");
  const auto set = [&options](const OptionRow& row, std::string_view text) {
    // --FLAG=false needs no call of SetOption(): the flag is off by default, and ReadConfigOf() has
    // already ignored the file's setting of it.
    if (row.value.empty() && text == "false") return OkStatus();
    return SetOption(row, text, &options);
  };
  AddOptions(program, command, set, &app);
  try {
    app.parse(std::vector(words));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", CommandHelp(program, command, HelpLength::kUsual, HelpColumns()));
    return ExitCode::kOk;
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", CommandHelp(program, command, HelpLength::kAll, HelpColumns()));
    return ExitCode::kOk;
  } catch (const CLI::ParseError& error) {
    return Fail(InvalidArgument(ErrorText(error, app, program, rows)));
  }
  if (options.draws_seed) {
    options.seed = std::random_device{}();
    // The user can repeat the run by this seed. With --quiet only the records of --json hold it.
    const Status announced = Announce(
        {"seed", fmt::format("--seed {} was drawn for --seed random", options.seed)}, options);
    if (!announced.ok()) return Fail(announced);
  }
  options.sampling.seed = options.seed;
  options.session.policy.seed = options.seed;
  // An evaluation (has_settings) does this for each of its settings instead.
  if (!command.has_settings) {
    Status status = SettleTiers(&options);
    if (status.ok()) status = SettleLossless(&options);
    if (!status.ok()) return Fail(status, options.shared);
    ChooseDraft(&options);
  }
  if (const std::string folder = CacheFolder(); !folder.empty()) {
    options.engine.metrics_folder = folder;
  }
  if (std::ranges::find(command.groups, OptionGroup::kSpeculation) != command.groups.end()) {
    options.session.speculation = options.speculation;
    if (const std::string folder = CacheFolder(); !folder.empty()) {
      options.engine.checks_file = folder + "/speculation-checks";
    }
  }
  if (options.list_policies) return ListPolicies();
  return command.run(options);
}

}  // namespace

ExitCode RunProgram(const Program& program, std::span<const std::string> arguments) {
  const auto found = TakeCommand(program, &arguments);
  if (const ExitCode* end = std::get_if<ExitCode>(&found)) return *end;
  return RunCommand(program, *std::get<const Command*>(found), arguments);
}

}  // namespace ebb::cli
