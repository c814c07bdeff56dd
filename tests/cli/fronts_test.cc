// `ebb report --fronts`, over runs of the models inside the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/eval_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class Fronts : public testing::Test {
 protected:
  // Two problems, four answers to each.
  void Eval(const std::string& out, const std::string& more) {
    const ProgramEnd end = RunEbb(
        "eval --task pebble --problems 2 --samples 4 --temp 1 --top-k 0 --top-p 1 --min-p 0 "
        "--quiet --out " +
        Out(out) + " " + more);
    ASSERT_EQ(end.exit_code, 0) << end.err;
  }
  ProgramEnd Report(const std::string& more) {
    return RunEbb("report --fronts --out " + Out("fronts") + " " + more);
  }
  [[nodiscard]] std::string Out(const std::string& name) const { return folder_.File(name); }
  [[nodiscard]] json Written() const {
    return json::parse(ReadFile(Out("fronts") + "/fronts.json"));
  }
  // Rewrites results: right are answers to problem 0 with the first `count` seeds alone.
  void MakeRight(const std::string& out, int count) {
    std::string text;
    for (json& line : Lines(Out(out) + "/results.jsonl")) {
      const bool is_right = line["problem"] == 0 && line["seed"].get<int>() < count;
      line["correct"] = is_right;
      line["extracted"] = is_right ? "right" : "";
      text += line.dump() + "\n";
    }
    std::ofstream(Out(out) + "/results.jsonl") << text;
  }

  TempFolder folder_;
};

TEST_F(Fronts, AreOfModelsLimitsPoliciesAndSamples) {
  Eval("short", "-n 20 --policies full,tova --budgets 1/2");
  Eval("long", "-n 40 --policies full");
  Eval("marked", "-n 40 -m pebble-dms --policies dms --window 4");
  MakeRight("short", 2);
  MakeRight("long", 4);
  MakeRight("marked", 3);
  const ProgramEnd end = Report(Out("marked") + " " + Out("short") + " " + Out("long"));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json fronts = Written();
  EXPECT_EQ(fronts["methods"], json({"full", "tova", "dms"}));
  std::vector<std::string> names;
  for (const json& point : fronts["points"]) names.push_back(point["name"]);
  EXPECT_THAT(names, ElementsAre("20-1-1", "20-2-1", "20-4-1", "40-1-1", "40-2-1", "40-4-1",
                                 "20-1-2", "20-2-2", "20-4-2", "40-1-4", "40-2-4", "40-4-4"));
  // Costs are W times the mean of all answers of the setting.
  double reads = 0, peak = 0;
  for (const json& line : Lines(Out("long") + "/results.jsonl")) {
    reads += line["kv_reads"].get<double>() / 8;
    peak += line["peak_tokens"].get<double>() / 8;
  }
  const json& four = fronts["points"][5];
  EXPECT_NEAR(four["kv_reads"].get<double>(), 4 * reads, 1e-9 * reads);
  EXPECT_NEAR(four["peak_tokens"].get<double>(), 4 * peak, 1e-9 * peak);
  EXPECT_EQ(four["majority"], 0.5);
  // Seeds 0 and 1 of 4: of two subsets of two, one is right.
  EXPECT_EQ(fronts["points"][1]["majority"], 0.25);
  EXPECT_EQ(fronts["points"][9]["model_compression"], 4);
  EXPECT_EQ(fronts["margins"].size(), 3u);
  EXPECT_EQ(fronts["run"]["top_k"], 0);
  EXPECT_EQ(fronts["bootstrap"]["resamples"], 1000);

  EXPECT_THAT(end.out, HasSubstr("| dms | 40-4-4 | "));
  EXPECT_THAT(end.out, HasSubstr("| dms over tova |"));
  EXPECT_EQ(ReadFile(Out("fronts") + "/fronts.md"), end.out);
  const std::string page = ReadFile(Out("fronts") + "/report.html");
  EXPECT_THAT(page, HasSubstr("\"name\":\"40-4-4\""));
  EXPECT_THAT(page, testing::Not(HasSubstr("@EBB_")));
  const ProgramEnd as_json =
      Report("--json " + Out("long") + " " + Out("marked") + " " + Out("short"));
  EXPECT_EQ(json::parse(as_json.out)["margins"], fronts["margins"])
      << "whatever the order of the folders";
}

TEST_F(Fronts, AreOfTheSameProblems) {
  Eval("one", "-n 8");
  Eval("other", "-n 8 --seed 5 -m pebble-dms --policies dms");
  Eval("greedier", "-n 8 --min-p 0.1 -m pebble-dms --policies dms");
  const auto refuses = [&](const std::string& arguments, const std::string& words) {
    const ProgramEnd end = Report(arguments);
    EXPECT_EQ(end.exit_code, 2) << arguments;
    EXPECT_THAT(end.err, HasSubstr(words)) << arguments;
    EXPECT_FALSE(std::filesystem::exists(Out("fronts")));
  };
  refuses(Out("one") + " " + Out("other"), "no fronts in common: their \"seed\" differs");
  refuses(Out("one") + " " + Out("greedier"), "their \"min_p\" differs");
  refuses(Out("one") + " --against full", "--against: with --fronts");
  refuses("", "expected folders");
  EXPECT_EQ(Report(Out("nowhere")).exit_code, 1);
  std::filesystem::resize_file(Out("one") + "/results.jsonl",
                               std::filesystem::file_size(Out("one") + "/results.jsonl") - 1);
  refuses(Out("one"), "1 of 8 answers are missing; end the run by --resume");
  // A grid that somebody wrote into.
  json grid = json::parse(ReadFile(Out("other") + "/grid.json"));
  grid["model"] = 5;
  std::ofstream(Out("other") + "/grid.json") << grid.dump();
  EXPECT_THAT(Report(Out("other")).err, HasSubstr("grid.json: \"model\" is no such value"));
}

}  // namespace
}  // namespace ebb
