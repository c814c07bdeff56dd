// --device, --t1-mode and --timeline as a user gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DeviceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<TinyModel>(); }
  static void TearDownTestSuite() { model_.reset(); }

  static ProgramEnd Run(const std::string& arguments) {
    return RunEbb("run --raw --temp 0 --threads 1 -n 150 --ignore-eos --json -p tide -m " +
                  model_->path() + " --window 16 --interval 8 " + arguments);
  }
  static json Record(const ProgramEnd& end) {
    json record = json::parse(LastLine(end.err), nullptr, false);
    EXPECT_TRUE(record.is_object()) << end.err;
    return record;
  }

  static std::unique_ptr<TinyModel> model_;
};

std::unique_ptr<TinyModel> DeviceTest::model_;

TEST_F(DeviceTest, StreamsT1FromTheHostWithoutBeingTold) {
  const json full = Record(Run("--t0 100% --t1 none"));
  EXPECT_EQ(full["device"], json({{"name", "cpu"}}));
  const json sim = Record(Run("--device sim:h2d=10GBps --t0 30%"));
  EXPECT_EQ(sim["logits_hash"], full["logits_hash"]);
  EXPECT_GT(sim["tiers"][1]["rows"], 0);
  EXPECT_GT(sim["moves"]["bytes_down"], 0);
  EXPECT_EQ(sim["device"]["name"], "sim");
  EXPECT_EQ(sim["device"]["t1_mode"], "stream");
  EXPECT_EQ(sim["device"]["decode_steps"], 149);
  EXPECT_NEAR(sim["device"]["step_s"].get<double>(), sim["device"]["critical_path_s"].get<double>(),
              0.05 * sim["device"]["step_s"].get<double>());
  EXPECT_EQ(Record(Run("--device sim --t0 30% --t1-mode compute"))["device"]["t1_mode"], "compute");
}

TEST_F(DeviceTest, OtherTiersAndPoliciesLieOnItToo) {
  for (const std::string setting : {"--t1 none --t2 50%", "--t0 50% --t2 30%:int4 --evict 10%",
                                    "--policy streaming --budget 20"}) {
    const json cpu = Record(Run(setting.starts_with("--t0") ? "--t1 host " + setting : setting));
    EXPECT_EQ(Record(Run("--device sim " + setting))["logits_hash"], cpu["logits_hash"]) << setting;
  }
}

TEST_F(DeviceTest, WritesItsTimeline) {
  const TempFolder folder;
  const std::string path = folder.File("timeline.json");
  EXPECT_EQ(Run("--device sim --t0 30% --timeline " + path).exit_code, 0);
  std::ifstream file(path);
  const json trace = json::parse(file, nullptr, false);
  ASSERT_TRUE(trace.is_object());
  EXPECT_GT(trace["traceEvents"].size(), 500u);
}

TEST_F(DeviceTest, RefusesWhatMakesNoSense) {
  const auto expect_refused = [](const std::string& arguments, const std::string& why) {
    const ProgramEnd end = Run(arguments);
    EXPECT_NE(end.exit_code, 0) << arguments;
    EXPECT_THAT(end.err, HasSubstr(why)) << arguments;
  };
  expect_refused("--device gpu", "not a device");
  expect_refused("--device sim:h2d=fast", "expected a rate");
  expect_refused("--device sim --t0 50% --t1 file", "T1 in a file");
  expect_refused("--t0 50% --t1 host --t1-mode compute", "one memory");
  expect_refused("--t1-mode both", "expected auto|compute|stream");
  expect_refused("--timeline x.json", "add --device sim");
  expect_refused("--device sim --memory 1GiB", "--memory");
  expect_refused("--device sim --t0 30% --timeline /nonexistent/x.json", "cannot write");
}

}  // namespace
}  // namespace ebb
