// --speculate, as a user gives it: the text and its logits are the same with and without guesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/expect_ok.h"
#include "tests/support/random_gguf.h"

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
  const ProgramEnd end = RunRepeating("--speculate eagle");
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(
      end.err,
      HasSubstr("expected auto|off|lookup|model|mtp|eagle3|assistant|dflash, found \"eagle\""));
}

// --memory is for the model and its rows, unless the file's MTP layer is asked for.
TEST(SpeculateOptionTest, AnMtpLayerTakesNoMemoryUnasked) {
  const auto planned = [](const std::string& source) {
    const ProgramEnd end =
        RunEbb("run --raw --threads 1 -n 1 --json -p tide --memory 1G -m " EBB_SOURCE_DIR
               "/training/pebble/pebble-mtp.gguf --speculate " +
               source);
    return json::parse(end.err.substr(0, end.err.find('\n')))["memory_bytes"].get<uint64_t>();
  };
  const uint64_t without = planned("lookup");
  EXPECT_EQ(planned("auto"), without);
  EXPECT_GT(planned("mtp"), without);
}

// --draft-model takes a head for the model; reports name it.
TEST(SpeculateOptionTest, TakesHeadsInFiles) {
  const TempFolder folder;
  const RandomGgufOptions target = {.num_layers = 4,
                                    .embed_dim = 64,
                                    .num_q_heads = 2,
                                    .num_kv_heads = 1,
                                    .head_dim = 32,
                                    .feed_forward_dim = 64,
                                    .context = 256};
  ExpectOk(WriteRandomGguf(target, folder.File("model.gguf")));
  ExpectOk(WriteRandomEagle3(target, {}, folder.File("head.gguf")));
  const auto run = [&](const std::string& arguments) {
    return RunEbb("run --raw --temp 0 --threads 1 -n 60 --ignore-eos --json -p tide -m " +
                  folder.File("model.gguf") + " " + arguments);
  };
  const std::string head = " --draft-model " + folder.File("head.gguf");
  const json expected = RecordOf(run("--speculate off"));
  const json record = RecordOf(run("--speculate eagle3 --speculate-min 3" + head));
  EXPECT_EQ(record["logits_hash"], expected["logits_hash"]);
  EXPECT_GT(record["speculation"]["drafted_by_eagle3"], 20);
  EXPECT_EQ(record["speculation"]["drafted_by_eagle3"], record["speculation"]["drafted"]);
  EXPECT_EQ(record["speculation"]["drafted_by_model"], 0);
  EXPECT_THAT(run("--speculate eagle3").err, HasSubstr("--speculate eagle3: needs --draft-model"));
  EXPECT_THAT(run("--speculate model" + head).err, HasSubstr("head.gguf is a head (eagle3)"));
  EXPECT_THAT(run("--draft-kv-type q4" + head).err,
              HasSubstr("--draft-kv-type: the rows of a head"));
  const ProgramEnd alone = RunEbb("run -p tide -m " + folder.File("head.gguf"));
  EXPECT_THAT(alone.err, HasSubstr("as that model's draft model (--draft-model)"));
  const ProgramEnd fit = RunEbb("fit --json -m " + folder.File("model.gguf") + head);
  EXPECT_EQ(fit.exit_code, 0) << fit.err;
}

}  // namespace
}  // namespace ebb
