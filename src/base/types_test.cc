#include "ebb/types.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(Types, RowTypesHaveTheBytesOfTheirElement) {
  EXPECT_EQ(RowTypeBytes(RowType::kF16), 2u);
  EXPECT_EQ(RowTypeBytes(RowType::kBf16), 2u);
  EXPECT_EQ(RowTypeBytes(RowType::kF32), 4u);
}

TEST(Types, NamesOfRowTypesAndGranularitiesParseBack) {
  for (RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    EXPECT_EQ(*ParseRowType(RowTypeName(type)), type);
  }
  for (Granularity granularity : {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    EXPECT_EQ(*ParseGranularity(GranularityName(granularity)), granularity);
  }
  EXPECT_EQ(RowTypeName(RowType::kBf16), "bf16");
  EXPECT_EQ(GranularityName(Granularity::kHead), "head");
}

TEST(Types, TiersAreNamedT0ToT3) {
  EXPECT_EQ(TierName(Tier::kT0), "T0");
  EXPECT_EQ(TierName(Tier::kT1), "T1");
  EXPECT_EQ(TierName(Tier::kT2), "T2");
  EXPECT_EQ(TierName(Tier::kT3), "T3");
  EXPECT_EQ(TierName(static_cast<Tier>(9)), "unknown");
}

TEST(Types, UnknownNamesListTheValidOnes) {
  EXPECT_EQ(ParseRowType("f8").status().ToString(),
            "invalid argument: unknown row type \"f8\"; valid: f16, bf16, f32");
  EXPECT_EQ(ParseGranularity("").status().ToString(),
            "invalid argument: unknown granularity \"\"; valid: token, layer, head");
}

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  struct Case {
    const char* text;
    uint64_t bytes;
  };
  const Case cases[] = {
      {"1", 1},
      {"1000000", 1000000},
      {"7B", 7},
      {"3kB", 3000},
      {"3KB", 3000},
      {"3KiB", 3072},
      {"2GB", 2000000000},
      {"512MiB", 512ull << 20},
      {"5MB", 5000000},
      {"6GiB", 6ull << 30},
      {"1TB", 1000000000000},
      {"2TiB", 2ull << 40},
      {"18446744073709551615", UINT64_MAX},
      {"1.5GiB", 3ull << 29},
      {"1e9", 1000000000},
      {"2.5e+3", 2500},
      {"1E3kB", 1000000},
      {".5Ki", 512},
      {"0.3Ki", 307},
      {"512mib", 512ull << 20},
      {"1Gib", 1ull << 30},
      {"2Gi", 2ull << 30},
      {"3ki", 3072},
      {"512M", 512000000},
      {"512m", 512000000},
      {"2G", 2000000000},
      {"7k", 7000},
      {"1T", 1000000000000},
      {"1Ti", 1ull << 40},
  };
  for (const Case& c : cases) {
    ASSERT_TRUE(ParseBytes(c.text).ok()) << c.text;
    EXPECT_EQ(*ParseBytes(c.text), c.bytes) << c.text;
  }
}

TEST(ParseBytes, RefusesAnythingElseWithBothBounds) {
  for (const char* text : {"",
                           "MiB",
                           "x",
                           "-1",
                           "+1",
                           "1 GiB",
                           "1GiBB",
                           " 1",
                           "1.5.2",
                           "1e",
                           "1e-3",
                           "e9",
                           "1eMiB",
                           ".",
                           "0x10",
                           "inf",
                           "nan",
                           "0",
                           "0MiB",
                           "0.0",
                           "0.0001KiB",
                           "18446744073709551616",
                           "18014398509481984KiB",
                           "16777216TiB",
                           "1e20",
                           "1e400",
                           "1.9e19",
                           "1Kib "}) {
    const Status status = ParseBytes(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("a size from 1 to 2^64 - 1 bytes")) << text;
    EXPECT_THAT(status.message(), HasSubstr("\"" + std::string(text) + "\"")) << text;
  }
  EXPECT_TRUE(ParseBytes("18014398509481983KiB").ok());
}

TEST(ModelShape, CountsGroupsAtEveryGranularity) {
  const ModelShape shape{.num_layers = 30, .num_q_heads = 9, .num_kv_heads = 3};
  EXPECT_EQ(shape.NumGroups(Granularity::kToken), 1);
  EXPECT_EQ(shape.NumGroups(Granularity::kLayer), 30);
  EXPECT_EQ(shape.NumGroups(Granularity::kHead), 90);
  EXPECT_EQ(shape.QueryHeadsPerKvHead(29), 3);
}

TEST(ModelShape, LayersMayDifferInKvHeadsAndWindows) {
  const ModelShape shape{.num_layers = 3,
                         .num_q_heads = 4,
                         .num_kv_heads = 4,
                         .kv_heads_by_layer = {1, 4, 2},
                         .windows = {32, 0, 16}};
  EXPECT_EQ(shape.NumStreams(), 7);
  EXPECT_EQ(shape.NumGroups(Granularity::kLayer), 3);
  EXPECT_EQ(shape.NumGroups(Granularity::kHead), 7);
  EXPECT_EQ(shape.QueryHeadsPerKvHead(0), 4);
  EXPECT_EQ(shape.QueryHeadsPerKvHead(1), 1);
  EXPECT_EQ(shape.Window(0), 32);
  EXPECT_EQ(shape.Window(1), 0);
  EXPECT_EQ(shape.SmallestWindow(), 16);
  EXPECT_EQ(ModelShape{.num_layers = 3}.SmallestWindow(), 0);
}

}  // namespace
}  // namespace ebb
