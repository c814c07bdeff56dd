#include "apps/common/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "apps/bench/commands.h"
#include "apps/common/options/options.h"
#include "apps/ebb/commands.h"
#include "apps/lab/commands.h"

namespace ebb::cli {
namespace {

class ProgramTest : public testing::TestWithParam<const Program* (*)()> {
 protected:
  const Program& program() const { return *GetParam()(); }
};
INSTANTIATE_TEST_SUITE_P(Programs, ProgramTest,
                         testing::Values([] { return &EbbProgram(); }, [] { return &LabProgram(); },
                                         [] { return &BenchProgram(); }),
                         [](const auto& program) {
                           std::string name(program.param()->name);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(ProgramTest, CommandsHaveUniqueNamesAndParentsStandBeforeThem) {
  std::set<std::string_view> names;
  for (const Command& command : program().commands) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    const size_t space = command.name.rfind(' ');
    if (space != std::string_view::npos) {
      EXPECT_TRUE(names.contains(command.name.substr(0, space))) << command.name;
    }
    EXPECT_FALSE(command.summary.empty()) << command.name;
  }
}

TEST_P(ProgramTest, EveryOptionHasOneNameAndOneMeaning) {
  std::set<std::string> names;
  for (const OptionRow& row : program().options) {
    std::istringstream list(row.names);
    for (std::string name; std::getline(list, name, ',');) {
      // A name without a dash is a positional argument, which help writes in capitals.
      EXPECT_TRUE(name.starts_with('-') || std::ranges::all_of(name, isupper)) << name;
      // Two rows may share a name if no command takes both.
      for (const Command& command : program().commands) {
        const bool takes = std::ranges::find(command.groups, row.group) != command.groups.end();
        EXPECT_TRUE(!takes || names.insert(std::string(command.name) + name).second) << name;
      }
    }
    EXPECT_FALSE(row.help.empty()) << row.names;
    EXPECT_FALSE(row.help.ends_with('.')) << row.names;
    EXPECT_FALSE(OptionGroupTitle(row.group).empty()) << row.names;
  }
}

TEST(ProgramsTest, SomeProgramTakesEveryOption) {
  std::set<std::string> taken;
  std::set<std::string> all;
  for (const Program* program : {&EbbProgram(), &LabProgram(), &BenchProgram()}) {
    for (const OptionRow& row : program->options) {
      all.insert(row.names + row.help);
      if (std::ranges::any_of(program->commands, [&](const Command& command) {
            return std::ranges::find(command.groups, row.group) != command.groups.end();
          })) {
        taken.insert(row.names + row.help);
      }
    }
  }
  EXPECT_EQ(taken, all);
}

TEST_P(ProgramTest, DefaultsThatHelpShowsAreAcceptedAndChangeNothing) {
  for (const OptionRow& row : program().options) {
    if (!row.show) continue;
    CliOptions options;
    const std::string value = row.show(options);
    if (value.empty()) continue;
    const Status status = row.parse(value, &options);
    // Help shows 0 for "not given" where only larger values may be given, so 0 is not accepted
    // back.
    EXPECT_TRUE(status.ok() || value == "0") << row.names << ": " << status.message();
    EXPECT_EQ(row.show(options), value) << row.names;
  }
}

TEST(ExitCodeTest, IsThatOfTheStatus) {
  EXPECT_EQ(ExitCodeFor(OkStatus()), ExitCode::kOk);
  for (const Status& status : {InvalidArgument(""), NotFound(""), Unsupported(""), Corrupt(""),
                               Status(StatusCode::kIo, "tiers.t1_path", "permission denied")}) {
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status.ToString();
  }
  EXPECT_EQ(ExitCodeFor(OutOfMemory("")), ExitCode::kLimit);
  EXPECT_EQ(ExitCodeFor(Cancelled("")), ExitCode::kInterrupted);
  for (const Status& status : {IoError(""), Internal("")}) {
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kError) << status.ToString();
  }
}

}  // namespace
}  // namespace ebb::cli
