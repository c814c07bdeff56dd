#include "apps/common/docs/docs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/common/options/config_file.h"
#include "apps/common/terminal/subprocess.h"
#include "apps/ebb/commands.h"
#include "apps/lab/commands.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(DocsTest, TheCommittedFilesAreWhatTheTablesSay) {
  for (const Program* program : {&EbbProgram(), &LabProgram(), &BenchProgram()}) {
    std::ifstream file(fmt::format("{}/{}", EBB_SOURCE_DIR, program->reference));
    const std::string committed{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(MarkdownText(*program), committed)
        << fmt::format("the options have changed: {} docs > {}", program->name, program->reference);
  }
}

TEST(DocsTest, EveryOptionThatACommandTakesStandsOnceUnderItsCommands) {
  std::vector<const OptionRow*> seen;
  for (const OptionSection& section : OptionSections(EbbProgram())) {
    EXPECT_FALSE(section.commands.empty());
    for (const OptionRow* row : section.rows) {
      EXPECT_EQ(std::ranges::count(seen, row), 0) << row->names;
      seen.push_back(row);
      for (const Command* command : DocumentedCommands(EbbProgram())) {
        EXPECT_EQ(std::ranges::count(section.commands, command), Takes(*command, *row) ? 1 : 0)
            << row->names << " " << command->name;
      }
    }
  }
  for (const OptionRow& row : EbbProgram().options) {
    const bool is_taken =
        std::ranges::any_of(DocumentedCommands(EbbProgram()),
                            [&](const Command* command) { return Takes(*command, row); });
    EXPECT_EQ(std::ranges::count(seen, &row), is_taken ? 1 : 0) << row.names;
  }
}

TEST(DocsTest, ChoicesAreWordsAlone) {
  OptionRow row = {OptionGroup::kDocs, "-x,--example", "none|host", "", nullptr, nullptr};
  EXPECT_EQ(ChoicesOf(row), (std::vector<std::string_view>{"none", "host"}));
  EXPECT_EQ(NamesOf(row), (std::vector<std::string_view>{"-x", "--example"}));
  for (const char* value : {"FILE|NAME", "none|file[:FOLDER]", "N", "", "none|"}) {
    row.value = value;
    EXPECT_TRUE(ChoicesOf(row).empty()) << value;
  }
}

// Expects that each line that begins with a dot is a request of man(7), since help that began with
// a dot would be taken for one.
TEST(DocsTest, TheManualPageNamesEveryOption) {
  const std::string page = ManPageText(EbbProgram());
  EXPECT_THAT(page, AllOf(HasSubstr(".SH NAME\nebb \\- "), HasSubstr(".SH EXIT STATUS"),
                          HasSubstr("\\fB\\-\\-policy\\fR"), Not(HasSubstr("--"))));
  for (size_t at = page.find("\n."); at != std::string::npos; at = page.find("\n.", at + 1)) {
    const std::string request = page.substr(at + 2, 2);
    EXPECT_TRUE(request == "SH" || request == "SS" || request == "TP" || request == "PP" ||
                request == "B " || request == "I ")
        << page.substr(at + 1, 40);
  }
}

// Returns bash's proposals for a line that ends with the last of `words`.
std::string ProposedBy(const Program& program, const std::vector<std::string>& words) {
  const TempFolder folder;
  const std::string path = folder.File("ebb.bash");
  std::ofstream(path) << BashCompletionText(program);
  std::vector<std::string> command = {
      "bash", "-c",
      "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _${1//-/_}; "
      "echo \" ${COMPREPLY[*]} \"",
      "bash", path};
  command.insert(command.end(), words.begin(), words.end());
  const auto result = RunProcess(command, ProcessOutput::kKeepBoth);
  EXPECT_TRUE(result.ok() && result->exit_code == 0);
  return result.ok() ? result->output : "";
}

TEST(DocsTest, BashCompletesCommandsOptionsAndWords) {
  const auto Proposed = [](const std::vector<std::string>& words) {
    return ProposedBy(EbbProgram(), words);
  };
  EXPECT_THAT(Proposed({"ebb", ""}), AllOf(HasSubstr(" run "), HasSubstr(" device "),
                                           Not(HasSubstr("test")), Not(HasSubstr("docs"))));
  EXPECT_THAT(Proposed({"ebb", "dev"}), " device \n");
  EXPECT_THAT(Proposed({"ebb", "device", "li"}), " list \n");
  EXPECT_THAT(ProposedBy(BenchProgram(), {"ebb-bench", "decode", "--dep"}), " --depth --depths \n");
  EXPECT_THAT(Proposed({"ebb", "run", "--pol"}), " --policy \n");
  EXPECT_THAT(Proposed({"ebb", "pull", "--pol"}), "  \n");
  EXPECT_THAT(Proposed({"ebb", "run", "--kv-type", "f"}), " f16 f32 \n");
  EXPECT_THAT(Proposed({"ebb", "run", "--model", EBB_SOURCE_DIR "/READM"}),
              " " EBB_SOURCE_DIR "/README.md \n");
  EXPECT_THAT(Proposed({"ebb", "run", "--budget", ""}), "  \n");
}

TEST(DocsTest, OtherShellsAreToldTheSame) {
  EXPECT_THAT(ZshCompletionText(EbbProgram()),
              AllOf(testing::StartsWith("#compdef ebb\n"), HasSubstr("'*--kv-type["),
                    HasSubstr(":value:(f16 bf16 f32 q8 q4 q3 q2)"), HasSubstr("'device list')")));
  EXPECT_THAT(FishCompletionText(EbbProgram()),
              AllOf(HasSubstr(" -l kv-type -x -a 'f16 bf16 f32 q8 q4 q3 q2' "),
                    HasSubstr(" -s m -l model -r -F "),
                    HasSubstr("__fish_seen_subcommand_from device; and "
                              "__fish_seen_subcommand_from list")));
}

// Returns ConfigText(EbbProgram()) with every setting in effect.
std::string SettingsInEffect() {
  std::string text = ConfigText(EbbProgram());
  for (size_t at = 0; (at = text.find("\n#", at)) != std::string::npos; ++at) {
    if (text[at + 2] >= 'a' && text[at + 2] <= 'z') text.erase(at + 1, 1);
  }
  return text;
}

TEST(DocsTest, TheConfigurationFileHasEverySettingOfTheServer) {
  EXPECT_TRUE(ParseConfig(ConfigText(EbbProgram()), "").ok() &&
              ParseConfig(ConfigText(EbbProgram()), "")->empty())
      << "a setting is in effect";
  const auto settings = ParseConfig(SettingsInEffect(), "serve.toml");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : EbbProgram().options) {
    if (Takes(*FindCommand(EbbProgram(), "serve"), row) && IsConfigurable(row))
      rows.push_back(&row);
  }
  EXPECT_EQ(settings->size(), rows.size());
  for (const OptionRow* row : rows) {
    const auto same = std::ranges::find(*settings, ConfigName(*row), &ConfigSetting::name);
    ASSERT_NE(same, settings->end()) << row->names;
    EXPECT_EQ(same->is_list, row->is_repeatable) << row->names;
    if (!row->show) continue;
    CliOptions options;
    const std::string shown = row->show(options);
    // Help shows 0 for "not given" where only larger values may be given, so 0 is not accepted
    // back.
    if (shown.empty() || shown == "0") continue;
    const Status status = ApplyConfig({*same}, "serve.toml", rows, {}, &options);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(row->show(options), shown) << row->names;
  }
}

}  // namespace
}  // namespace ebb::cli
