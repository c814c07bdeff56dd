#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ImportanceTest : public testing::Test {
 protected:
  ProgramEnd Importance(const std::string& more) {
    return RunEbb("ebb-lab importance --problems 3 --stride 64 --boundary all. --quiet --out " +
                  out_ + " " + more);
  }

  TempFolder folder_;
  std::string out_ = folder_.File("labels");
};

TEST_F(ImportanceTest, WritesLabelsAndCorrelations) {
  const ProgramEnd end = Importance("--json");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json record = json::parse(end.out);
  EXPECT_EQ(record["problems"], 3);
  EXPECT_EQ(record["labelled"].get<int>() + record["wrong"].get<int>() +
                record["not repeated"].get<int>(),
            3);
  std::ifstream labels(out_ + "/labels.jsonl");
  int num_labelled = 0, num_lines = 0;
  for (std::string line; std::getline(labels, line); ++num_lines) {
    const json label = json::parse(line);
    EXPECT_EQ(label["problem"], num_lines);
    if (label["outcome"] != "labelled") continue;
    ++num_labelled;
    EXPECT_EQ(label["tokens"].size(), label["boundary"]);
    EXPECT_EQ(label["important"].get<std::string>().size(), label["boundary"]);
  }
  EXPECT_EQ(num_lines, 3);
  EXPECT_EQ(record["labelled"], num_labelled);
  EXPECT_EQ(json::parse(std::ifstream(out_ + "/importance.json")), record);
  std::vector<std::string> names;
  for (const json& signal : record["signals"]) names.push_back(signal["signal"]);
  EXPECT_THAT(names, testing::IsSupersetOf({"hidden_0 raw", "hidden_3 rolling",
                                            "key_variance_before_rope rolling", "entropy raw",
                                            "attention", "kv_val", "rkv"}));
}

TEST_F(ImportanceTest, LabelsThatAreThereAreNotWrittenOver) {
  ASSERT_EQ(Importance("").exit_code, 0);
  const ProgramEnd again = Importance("");
  EXPECT_NE(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("holds labels already"));
}

TEST_F(ImportanceTest, BadInputIsNamed) {
  EXPECT_THAT(RunEbb("ebb-lab importance --problems 1").err, HasSubstr("--out"));
  EXPECT_THAT(Importance("--occlude 0").err, HasSubstr("--occlude"));
  EXPECT_THAT(Importance("--task nowhere.jsonl").err, HasSubstr("nowhere.jsonl"));
}

}  // namespace
}  // namespace ebb
