// --device and --t1-mode as a user gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>

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
  EXPECT_EQ(Record(Run("--t0 100% --t1 none"))["device"], json({{"name", "cpu"}}));
  const json tiered = Record(Run("--device ggml-cpu --t0 30%"));
  EXPECT_GT(tiered["tiers"][1]["rows"], 0);
  EXPECT_GT(tiered["moves"]["bytes_down"], 0);
  EXPECT_EQ(tiered["device"]["name"], "ggml-cpu");
  EXPECT_EQ(tiered["device"]["t1_mode"], "stream");
  EXPECT_EQ(tiered["device"]["decode_steps"], 149);
  EXPECT_GT(tiered["device"]["step_s"], 0);
  const json computed = Record(Run("--device ggml-cpu --t0 30% --t1-mode compute"));
  EXPECT_EQ(computed["device"]["t1_mode"], "compute");
}

TEST_F(DeviceTest, ABackendsDeviceHoldsWeightsAndRows) {
  const json full = Record(Run("--device ggml-cpu --t0 100% --t1 none"));
  EXPECT_EQ(full["device"]["name"], "ggml-cpu");
  EXPECT_GT(full["device"]["row_bytes"], 0);
  EXPECT_GT(full["device"]["weight_bytes"], 0);
  EXPECT_EQ(full["device"]["decode_steps"], 149);
  for (const std::string place : {"host", "file"}) {
    const json tiered = Record(Run("--device ggml-cpu --t0 30% --t1 " + place));
    EXPECT_EQ(tiered["logits_hash"], full["logits_hash"]) << place;
    EXPECT_GT(tiered["tiers"][1]["rows"], 0) << place;
  }
  EXPECT_NE(Run("--device warp9").exit_code, 0);
  EXPECT_THAT(Run("--device warp9").err, HasSubstr("no device \"warp9\" here; there are: cpu"));
  EXPECT_THAT(Run("--device ggml-cpu --lossless").err, HasSubstr("lossless.verify exact"));
  const json lossless = Record(Run("--device ggml-cpu --t1 host --lossless --verify fast"));
  EXPECT_GT(lossless["drafted"], 0);
  EXPECT_LE(lossless["accepted"], lossless["drafted"]);
  EXPECT_GT(lossless["verify_steps"], 0);
  const json allowed = Record(Run("--device ggml-cpu --t1 host --lossless --allow-inexact"));
  EXPECT_GT(allowed["verify_steps"], 0);
  const json compressed = Record(Run("--device ggml-cpu --t0 30% --t1 host --t2 30%"));
  EXPECT_GT(compressed["tiers"][2]["rows"], 0);
  const json eager = Record(Run("--device ggml-cpu:attention=eager --t0 30% --t1 host --t2 30%"));
  EXPECT_GT(eager["tiers"][2]["rows"], 0);
}

TEST_F(DeviceTest, CompressesTheWholeCacheOfADevice) {
  for (const std::string type : {"q8", "q4", "q3"}) {
    const json record =
        Record(RunEbb("run --raw --temp 0 --threads 1 -n 220 --ignore-eos --json -p tide -m " +
                      model_->path() + " --device ggml-cpu --kv-type " + type));
    EXPECT_GT(record["tiers"][2]["rows"], 0) << type;
    EXPECT_EQ(record["tiers"][1]["rows"], 0) << type;
  }
  const ProgramEnd refused =
      RunEbb("run --raw -n 2 -p tide --device ggml-cpu --kv-type q2 -m " + model_->path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("devices do not read int2 (q2); they read int3 (q3)"));
}

TEST_F(DeviceTest, TransfersOfABackendsDeviceAreProfiled) {
  const ProgramEnd end = RunEbb(
      "ebb-lab profile --device ggml-cpu --t0 50% --t1 host --t2 20% --threads 1 -n 30 --json "
      "-p tide --window 8 --interval 4 -m " +
      model_->path());
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json transfers = json::parse(LastLine(end.out))["figures"]["transfers"]["measured"];
  std::set<std::pair<std::string, std::string>> ways;
  for (const json& transfer : transfers) {
    EXPECT_GT(transfer["seconds"], 0);
    ways.emplace(transfer["from"], transfer["to"]);
  }
  EXPECT_EQ(ways.size(), 4U);
  EXPECT_TRUE(ways.contains({"T2", "T0"}));
}

TEST_F(DeviceTest, ListsDevicesAndTestsOne) {
  const ProgramEnd listed = RunEbb("device list --json");
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  std::vector<std::string> names;
  const json devices = json::parse(listed.out)["devices"];
  for (const json& device : devices) {
    names.push_back(device["name"]);
    EXPECT_TRUE(device["name"] == "cpu" || !device["tested"].get<std::string>().empty()) << device;
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"cpu", "ggml-cpu"}));
  const std::string text = RunEbb("device list").out;
  EXPECT_THAT(text, HasSubstr("ggml-cpu"));
  // A program without a card says how one would be found.
  const bool has_card =
      text.find("\ncuda") != std::string::npos || text.find("\nvulkan") != std::string::npos;
  EXPECT_EQ(text.find("No graphics card: ") == std::string::npos, has_card) << text;

  const ProgramEnd tested = RunEbb("device test --json --threads 1 --device ggml-cpu -m pebble");
  ASSERT_EQ(tested.exit_code, 0) << tested.err;
  const json record = json::parse(tested.out);
  EXPECT_EQ(record["checks"].size(), 6u);
  for (const auto& check : record["checks"].items()) EXPECT_EQ(check.value(), true) << check.key();
  EXPECT_LT(record["against_cpu"]["mean_kl"], 1e-3);
  EXPECT_LT(record["against_f32"]["mean_kl"], 1e-3);
  EXPECT_LT(record["cpu_against_f32"]["mean_kl"], record["against_f32"]["mean_kl"]);
  EXPECT_LT(record["against_cpu_evicting"]["mean_kl"], 1e-2);
  EXPECT_LT(record["against_cpu_compressed"]["mean_kl"], 1e-2);
  EXPECT_GT(record["decode_tokens_per_s"], 0);
  const std::string told = RunEbb("device test --device ggml-cpu -m pebble").out;
  EXPECT_THAT(told, HasSubstr("slots change no bit: yes"));
  EXPECT_THAT(told, HasSubstr("\nggml-cpu works: it passes all 6 checks.\n"));
  EXPECT_THAT(told, HasSubstr("send the one line of `ebb device test --device ggml-cpu --json`"));
  std::istringstream lines(text + told);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  EXPECT_NE(RunEbb("device test -m pebble").exit_code, 0);
}

TEST_F(DeviceTest, TheSimulatedDeviceIsForTheLaboratory) {
  const ProgramEnd end = Run("--device ggml-sim");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("no device \"ggml-sim\" here; there are: cpu"));
  const ProgramEnd lab = RunEbb(
      "ebb-lab fidelity --threads 1 --window-tokens 80 --windows 1 --quiet --device ggml-sim -m " +
      model_->path());
  EXPECT_EQ(lab.exit_code, 0) << lab.err;
}

TEST_F(DeviceTest, RefusesWhatMakesNoSense) {
  const auto expect_refused = [](const std::string& arguments, const std::string& why) {
    const ProgramEnd end = Run(arguments);
    EXPECT_NE(end.exit_code, 0) << arguments;
    EXPECT_THAT(end.err, HasSubstr(why)) << arguments;
  };
  for (const std::string name : {"gpu", "hip", "rocm", "amd"}) {
    expect_refused("--device " + name, "no device \"" + name + "\" here");
    expect_refused("--device " + name, "with vulkan also AMD's and Intel's");
  }
  expect_refused("--device ggml-cpu:memory=much", "memory=much");
  expect_refused("--device ggml-cpu --t0 50% --t1 file --t1-mode compute", "T1 mode compute");
  expect_refused("--t0 50% --t1 host --t1-mode compute", "host and device share one");
  expect_refused("--t1-mode both", "expected auto|compute|stream");
}

TEST_F(DeviceTest, CompressesTheCacheWhateverAttends) {
  for (const std::string attention : {"auto", "flash", "eager"}) {
    const ProgramEnd end =
        RunEbb("run --raw --temp 0 --threads 1 -n 230 --ignore-eos --json -p tide -m " +
               model_->path() + " --kv-type q4 --device ggml-cpu:attention=" + attention);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_GT(Record(end)["tiers"][2]["rows"], 0) << attention;
  }
}

}  // namespace
}  // namespace ebb
