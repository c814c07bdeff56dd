// --speculate, as a user gives it: the text and its logits are the same with and without guesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A random model repeats itself soon, if it always takes the likeliest token.
ProgramEnd RunRepeating(const std::string& arguments) {
  static const TinyModel kModel;
  return RunEbb("run --raw --temp 0 --threads 1 -n 200 --ignore-eos --json -p tide -m " +
                kModel.path() + " " + arguments);
}

json RecordOf(const ProgramEnd& end) {
  json record = json::parse(LastLine(end.err), nullptr, false);
  EXPECT_TRUE(record.is_object()) << end.err;
  return record;
}

TEST(SpeculateOptionTest, ChangesNeitherTextNorLogits) {
  for (const std::string tiers :
       {"", "--kv-type q4", "--t0 30% --t1 host --window 16 --interval 16",
        "--policy attention --budget 25% --window 16 --interval 16"}) {
    const ProgramEnd plain = RunRepeating("--speculate off " + tiers);
    const json expected = RecordOf(plain);
    EXPECT_EQ(expected["speculation"]["drafted"], 0);
    for (const std::string speculate : {"", "--speculate auto", "--speculate lookup"}) {
      const ProgramEnd end = RunRepeating(tiers + " " + speculate);
      EXPECT_EQ(end.out, plain.out) << tiers;
      const json record = RecordOf(end);
      EXPECT_EQ(record["logits_hash"], expected["logits_hash"]) << tiers;
      EXPECT_EQ(record["rows_evicted"], expected["rows_evicted"]) << tiers;
      EXPECT_LE(record["speculation"]["accepted"], record["speculation"]["drafted"]);
    }
  }
}

TEST(SpeculateOptionTest, RefusesOtherSources) {
  const ProgramEnd end = RunRepeating("--speculate mtp");
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("expected auto|off|lookup, found \"mtp\""));
}

}  // namespace
}  // namespace ebb
