#include "apps/common/options/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/ebb/commands.h"
#include "apps/ebb/serve/serve_options.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = ConfigValue::Kind;

std::vector<const OptionRow*> ServeRows() {
  const std::vector<OptionGroup>& groups = FindCommand(EbbProgram(), "serve")->groups;
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : EbbProgram().options) {
    if (std::ranges::count(groups, row.group) > 0) rows.push_back(&row);
  }
  return rows;
}

const OptionRow* RowOf(std::string_view name) {
  for (const OptionRow* row : ServeRows()) {
    if (ConfigName(*row) == name) return row;
  }
  return nullptr;
}

std::vector<ConfigSetting> Parsed(std::string_view text) {
  auto settings = ParseConfig(text, "f");
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  return settings.ok() ? *settings : std::vector<ConfigSetting>();
}

std::string ParseError(std::string_view text) {
  const auto settings = ParseConfig(text, "f");
  EXPECT_EQ(settings.status().code(), StatusCode::kInvalidArgument) << text;
  return settings.status().message();
}

Status Apply(std::string_view text, CliOptions* options, const CommandLine& given = {}) {
  EBB_ASSIGN_OR_RETURN(const std::vector<ConfigSetting> settings, ParseConfig(text, "f"));
  return ApplyConfig(settings, "f", ServeRows(), given, options);
}

std::string ApplyError(std::string_view text) {
  CliOptions options;
  const Status status = Apply(text, &options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  return status.message();
}

TEST(ConfigFileTest, ValuesOfEveryKindAreRead) {
  const auto settings = Parsed(
      "# a comment\r\n"
      "port = 8_080 # another\n"
      "\n"
      "  temp=-0.5\n"
      "alias = [ 'a\\b', # the first\n  \"b \\\"c\\\" \\u00e9\\U0001F30A\\t\",\n]\n"
      "cors = []\n"
      "any-model = true");
  ASSERT_EQ(settings.size(), 5U);
  EXPECT_EQ(settings[0].name, "port");
  EXPECT_THAT(settings[0].values, ElementsAre(ConfigValue{Kind::kNumber, "8080"}));
  EXPECT_EQ(settings[0].line, 2);
  EXPECT_THAT(settings[1].values, ElementsAre(ConfigValue{Kind::kNumber, "-0.5"}));
  EXPECT_TRUE(settings[2].is_list);
  EXPECT_THAT(settings[2].values,
              ElementsAre(ConfigValue{Kind::kString, "a\\b"},
                          ConfigValue{Kind::kString, "b \"c\" \xc3\xa9\xf0\x9f\x8c\x8a\t"}));
  EXPECT_THAT(settings[3].values, IsEmpty());
  EXPECT_EQ(settings[3].line, 8);
  EXPECT_THAT(settings[4].values, ElementsAre(ConfigValue{Kind::kBool, "true"}));
  EXPECT_EQ(settings[4].line, 9);
}

TEST(ConfigFileTest, NumbersOfEveryBaseAndQuotedNamesAreRead) {
  const auto settings = Parsed(
      "\xef\xbb\xbfport = 0x1F90\n\"max-queue\" = 0b1000\n'threads' = 0o17\ntemp = 1.0\n"
      "stop = \"\"\"a\nb\"\"\"\nseed = -1\n");
  ASSERT_EQ(settings.size(), 6U);
  EXPECT_EQ(settings[0].name, "port");
  EXPECT_THAT(settings[0].values, ElementsAre(ConfigValue{Kind::kNumber, "8080"}));
  EXPECT_EQ(settings[1].name, "max-queue");
  EXPECT_THAT(settings[1].values, ElementsAre(ConfigValue{Kind::kNumber, "8"}));
  EXPECT_EQ(settings[2].name, "threads");
  EXPECT_THAT(settings[2].values, ElementsAre(ConfigValue{Kind::kNumber, "15"}));
  EXPECT_THAT(settings[3].values, ElementsAre(ConfigValue{Kind::kNumber, "1.0"}));
  EXPECT_THAT(settings[4].values, ElementsAre(ConfigValue{Kind::kString, "a\nb"}));
  EXPECT_THAT(settings[5].values, ElementsAre(ConfigValue{Kind::kNumber, "-1"}));
  EXPECT_EQ(settings[5].line, 7);
}

TEST(ConfigFileTest, WhatIsNoTomlIsNamedWithItsLine) {
  EXPECT_EQ(ParseError("\n port 8080\n"),
            "f:2:7: Error while parsing key-value pair: expected '=', saw '8', in \" port 8080\"");
  const std::pair<std::string_view, const char*> cases[] = {
      {"port = 1 2\n", "f:1:10: "},
      {"\npolicy = h2o\n", "f:2:10: Error while parsing value: could not determine value type"},
      {"port =\n", "f:1:7: "},
      {"a = 'x\nb = 1\n", "f:1:7: "},
      {"a = \"x\n", "f:1:7: "},
      {"a = \"\\q\"\n", "unknown escape sequence '\\q'"},
      {"a = \"\\ud800\"\n", "surrogates"},
      {"a = [1,\n2\n", "f:2:"},
      {"a = 1\nb = 2\na = 3\n", "f:3:"},
      {"seed = 18446744073709551615\n", "f:1:"},
      {"port = 0x\n", "f:1:"},
      {"a = 'x\xff'\n", "f:1:"},
      {std::string_view("a = 'x\0y'\n", 10), "f:1:"},
      {std::string_view("\xff\xfep\0", 4), "f:1:"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ParseError(text), HasSubstr(message));
  // A message shows only the part of a long line around the error.
  EXPECT_THAT(ParseError("port = 1 " + std::string(10'000, 'x')),
              EndsWith("in \"port = 1 " + std::string(41, 'x') + "...\""));
  const std::string before = "api = [" + std::string(300, ' ') + "'secret', ";
  EXPECT_THAT(ParseError(before + std::string(30, ' ') + "x, 2]"),
              AllOf(Not(HasSubstr("secret")), EndsWith("x, 2]\"")));
  // Columns count characters, and a cut never splits one.
  EXPECT_THAT(ParseError("a = '\u00e9\u00e9' x"), HasSubstr("f:1:10: "));
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\u00e9";
  EXPECT_THAT(ParseError("a = x'" + accents),
              EndsWith("in \"a = x'" + accents.substr(0, 44) + "...\""));
}

TEST(ConfigFileTest, PartsOfTomlThatAreNoOptionsAreNamed) {
  const std::string expected = "expected a text in quotes, a number, true or false, found ";
  EXPECT_EQ(ParseError("\n[server]\nport = 1\n"), "f:2: server: " + expected + "a table");
  EXPECT_EQ(ParseError("a.b = 1\n"), "f:1: a: " + expected + "a table");
  EXPECT_EQ(ParseError("a = 1979-05-27\n"), "f:1: a: " + expected + "a date or a time");
  EXPECT_EQ(ParseError("a = [1,\n[2]]\n"), "f:2: a: " + expected + "a list");
  // The system would end the path before the character U+0000.
  EXPECT_EQ(ParseError("\nmodel = \"/etc/passwd\\u0000.gguf\"\n"),
            "f:2: model: expected a text without the character U+0000");
}

TEST(ConfigFileTest, SettingsAreThoseOfTheOptions) {
  CliOptions options;
  const Status status = Apply(
      "model = 'pebble'\nport = 0\nkv-cap = \"2GiB\"\nany-model = true\nignore-eos = false\n"
      "alias = ['a', 'b']\nstop = 'END'\npolicy = 'h2o'\n",
      &options);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(options.model.path, "pebble");
  EXPECT_EQ(options.Of<ServeInput>().server.port, 0);
  EXPECT_EQ(options.engine.kv_cap_bytes, uint64_t{2} << 30);
  EXPECT_TRUE(options.Of<ServeInput>().server.defaults.takes_any_model);
  EXPECT_FALSE(options.ignore_eos);
  EXPECT_THAT(options.Of<ServeInput>().server.defaults.aliases, ElementsAre("a", "b"));
  EXPECT_THAT(options.stops, ElementsAre("END"));
  EXPECT_EQ(options.shared.OptionThatSet(SharedField::kPolicy), "--policy");
}

TEST(ConfigFileTest, AModelOfAHubIsNamedByTheLongNameOfItsOption) {
  CliOptions options;
  ASSERT_TRUE(Apply("hf-repo = 'org/repo:Q8_0'\n", &options).ok());
  EXPECT_EQ(options.model.path, "hf:org/repo:Q8_0");
  EXPECT_THAT(ApplyError("hf-repo = 'repo'"), HasSubstr("f:1: hf-repo: "));
  EXPECT_THAT(ApplyError("hf = 'org/repo'"), HasSubstr("f:1: expected the long name"));
}

TEST(ConfigFileTest, OptionsOfTheCommandLineTakeThePlaceOfAllValues) {
  CliOptions options;
  options.Of<ServeInput>().server.defaults.aliases = {"c"};
  ASSERT_TRUE(
      Apply("alias = ['a', 'b']\nport = 1\n", &options, {.rows = {RowOf("alias")}, .shared = {}})
          .ok());
  EXPECT_THAT(options.Of<ServeInput>().server.defaults.aliases, ElementsAre("c"));
  EXPECT_EQ(options.Of<ServeInput>().server.port, 1);
  // A wrong value in the file is an error even if the command line replaces it.
  EXPECT_EQ(Apply("port = 'x'\n", &options, {.rows = {RowOf("port")}, .shared = {}}).code(),
            StatusCode::kInvalidArgument);
}

TEST(ConfigFileTest, OptionsOfTheCommandLineReplaceOthersThatSetTheSameField) {
  CliOptions options;
  CommandLine given;
  ASSERT_TRUE(given.shared.Add("--t2", "25%").ok());
  ASSERT_TRUE(Apply("kv-type = 'q4'\nport = 1\n", &options, given).ok());
  EXPECT_EQ(options.compressed, std::nullopt);
  EXPECT_EQ(options.Of<ServeInput>().server.port, 1);
  ASSERT_TRUE(Apply("kv-type = 'q4'\n", &options).ok());
  EXPECT_EQ(options.compressed, CompressedType::kInt4);
}

TEST(ConfigFileTest, TwoOptionsThatSetOneFieldAreRefused) {
  EXPECT_EQ(ApplyError("kv-type = 'q4'\nt2 = '25%'\n"),
            "f:2: t2: --kv-type q4 and --t2 both set what T2 holds; give one");
  EXPECT_EQ(ApplyError("t2 = '25%'\n\nkv-type = 'q4'\n"),
            "f:3: kv-type: --t2 and --kv-type q4 both set what T2 holds; give one");
}

TEST(ConfigFileTest, WrongNamesAndValuesAreNamedWithTheirLine) {
  EXPECT_EQ(ApplyError("\nprot = 1\n"),
            "f:2: expected the long name of an option without its dashes, found \"prot\"; the "
            "nearest is \"port\"");
  EXPECT_THAT(ApplyError("any_model = true"), EndsWith("; the nearest is \"any-model\""));
  EXPECT_THAT(ApplyError("api-key = 'x'"), EndsWith("; the nearest is \"api-keys\""));
  // Options of other commands, and options that end the program, are refused.
  for (const char* name : {"n", "prompt"}) {
    EXPECT_THAT(ApplyError(std::string(name) + " = 1"), HasSubstr("f:1: expected the long name"));
  }
  for (const std::string name : {"config", "new-key", "list-policies"}) {
    EXPECT_EQ(ApplyError(name + " = 1"),
              "f:1: " + name + " is an option of the command line alone");
  }
  EXPECT_EQ(ApplyError("port = 70000"),
            "f:1: port: expected an integer from 0 to 65535, found \"70000\"");
  EXPECT_EQ(ApplyError("port = true"), "f:1: port: expected N, found the boolean true");
  EXPECT_EQ(ApplyError("any-model = 1"),
            "f:1: any-model: expected the boolean true or false, found the number 1");
  EXPECT_EQ(ApplyError("any-model = 'true'"),
            "f:1: any-model: expected the boolean true or false, found the string \"true\"");
  EXPECT_EQ(ApplyError("any-model = '" + std::string(1000, 'y') + "'"),
            "f:1: any-model: expected the boolean true or false, found the string \"" +
                std::string(50, 'y') + "...\"");
  EXPECT_EQ(ApplyError("port = [1, 2]"), "f:1: port: expected one value, found a list");
  EXPECT_EQ(ApplyError("api-keys = ''"), "f:1: api-keys: expected FILE, found an empty name");
}

TEST(ConfigFileTest, FilesThatCannotBeReadAreErrorsOfTheOption) {
  const TempFolder folder;
  const std::string huge = folder.File("huge");
  std::ofstream(huge) << std::string((1 << 20) + 1, '\n');
  ASSERT_EQ(mkfifo(folder.File("pipe").c_str(), 0600), 0);
  const std::pair<std::string, const char*> cases[] = {
      {folder.File("none"), "No such file"},
      {folder.File("."), "it is not a regular file but a folder"},
      {"/dev/zero", "it is not a regular file but a device"},
      {folder.File("pipe"), "it is not a regular file but a named pipe"},
      {huge, "expected at most 1 MiB, found more"},
  };
  CliOptions options;
  for (const auto& [file, why] : cases) {
    const Status status = ApplyConfigFile(file, ServeRows(), {}, &options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << file;
    EXPECT_THAT(status.message(), HasSubstr("--config: cannot read " + file + ": " + why));
  }
  std::ofstream(folder.File("empty")).close();
  EXPECT_TRUE(ApplyConfigFile(folder.File("empty"), ServeRows(), {}, &options).ok());
  std::ofstream(folder.File("file")) << std::string((1 << 20) - 9, '\n') + "port = 5\n";
  EXPECT_TRUE(ApplyConfigFile(folder.File("file"), ServeRows(), {}, &options).ok());
  EXPECT_EQ(options.Of<ServeInput>().server.port, 5);
}

}  // namespace
}  // namespace ebb::cli
