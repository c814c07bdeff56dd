#include "apps/ebb/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "apps/ebb/options/options.h"

namespace ebb::cli {
namespace {

TEST(CommandTableTest, NamesAreUniqueAndParentsStandBeforeTheirCommands) {
  std::set<std::string_view> names;
  for (const Command& command : CommandTable()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    const size_t space = command.name.rfind(' ');
    if (space != std::string_view::npos) {
      EXPECT_TRUE(names.contains(command.name.substr(0, space))) << command.name;
    }
    EXPECT_FALSE(command.summary.empty()) << command.name;
  }
}

TEST(OptionTableTest, EveryOptionHasOneNameOneMeaningAndACommand) {
  std::set<std::string> names;
  for (const OptionRow& row : OptionTable()) {
    std::istringstream list(row.names);
    for (std::string name; std::getline(list, name, ',');) {
      // Others are arguments, which help names in capitals.
      EXPECT_TRUE(name.starts_with('-') || std::ranges::all_of(name, isupper)) << name;
      // Two rows of one name are fine where no command takes both.
      for (const Command& command : CommandTable()) {
        const bool takes = std::ranges::find(command.groups, row.group) != command.groups.end();
        EXPECT_TRUE(!takes || names.insert(std::string(command.name) + name).second) << name;
      }
    }
    EXPECT_FALSE(row.help.empty()) << row.names;
    EXPECT_FALSE(row.help.ends_with('.')) << row.names;
    EXPECT_FALSE(OptionGroupTitle(row.group).empty()) << row.names;
    EXPECT_TRUE(std::ranges::any_of(CommandTable(), [&](const Command& command) {
      return std::ranges::find(command.groups, row.group) != command.groups.end();
    })) << row.names;
  }
}

TEST(OptionTableTest, DefaultsThatHelpShowsAreAcceptedAndChangeNothing) {
  for (const OptionRow& row : OptionTable()) {
    if (!row.show) continue;
    CliOptions options;
    const std::string value = row.show(options);
    if (value.empty()) continue;
    const Status status = row.parse(value, &options);
    // 0 stands for "not given" where only larger values may be given.
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
