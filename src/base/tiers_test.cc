#include "ebb/tiers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

// Returns a spec in which no field has its default.
TierSetting Odd() {
  return {
      .engine = {.t0_cap_bytes = 7,
                 .t1 = T1Place::kHost,
                 .t1_path = "kept",
                 .t1_cap_bytes = 9,
                 .t2_type = CompressedType::kInt4},
      .shares = {
          .t0_share = 0.125, .t2_share = 0.375, .evict_share = 0.625, .evict_of = EvictOf::kAlive}};
}

using Parser = Status (*)(std::string_view, TierSetting*);

// Expects that parsing the text sets the fields that differ in `expected`, and leaves the others
// unchanged.
void ExpectRead(Parser parse, const char* text, const TierSetting& expected) {
  SCOPED_TRACE(text);
  TierSetting spec = Odd();
  const Status status = parse(text, &spec);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(spec, expected);
}

struct Bad {
  const char* text;
  const char* why;
};

void ExpectRefused(Parser parse, std::initializer_list<Bad> cases, const char* expected) {
  for (const Bad& c : cases) {
    SCOPED_TRACE(c.text);
    TierSetting spec = Odd();
    const Status status = parse(c.text, &spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("\"" + std::string(c.text) + "\""));
    EXPECT_THAT(status.message(), HasSubstr(c.why));
    EXPECT_THAT(status.message(), HasSubstr(expected));
    EXPECT_EQ(spec, Odd());
  }
}

TEST(CompressedTypeName, NamesAllAndNoOther) {
  EXPECT_EQ(CompressedTypeName(CompressedType::kInt8), "int8");
  EXPECT_EQ(CompressedTypeName(CompressedType::kInt4), "int4");
  EXPECT_EQ(CompressedTypeName(CompressedType::kInt8Naive), "int8_naive");
  EXPECT_EQ(CompressedTypeName(static_cast<CompressedType>(9)), "unknown");
}

TEST(ParseT0, ReadsAShareOrACap) {
  const struct {
    const char* text;
    double share;
  } shares[] = {{"50%", 0.5}, {"0%", 0}, {"100%", 1}, {"12.5%", 0.125}, {"1e1%", 0.1}};
  for (const auto& c : shares) {
    TierSetting expected = Odd();
    expected.shares.t0_share = c.share;
    expected.engine.t0_cap_bytes = 0;
    ExpectRead(ParseT0, c.text, expected);
  }
  TierSetting expected = Odd();
  expected.shares.t0_share.reset();
  expected.engine.t0_cap_bytes = 512ull << 20;
  ExpectRead(ParseT0, "512MiB", expected);
  expected.engine.t0_cap_bytes = 4096000;
  ExpectRead(ParseT0, "4096000", expected);
}

TEST(ParseT0, RefusesEverythingElse) {
  const char* share = "not a share from 0% to 100%";
  ExpectRefused(ParseT0,
                {{"%", share},
                 {"x%", share},
                 {"-1%", share},
                 {"-0%", share},
                 {"100.1%", share},
                 {"1e400%", share},
                 {"nan%", share},
                 {"inf%", share},
                 {"5%%", share},
                 {" 5%", share}},
                "write a share (50%) or a cap (512MiB)");
  const char* size = "neither a share nor a size";
  ExpectRefused(ParseT0,
                {{"", size},
                 {"0.5", "did you mean 50%?"},
                 {"half", size},
                 {"0", size},
                 {"0MiB", size},
                 {"-1MiB", size},
                 {"99999999999999999999", size},
                 {"18446744073709551615KiB", size}},
                "write a share (50%) or a cap (512MiB)");
}

TEST(ParseT1, ReadsPlacePathAndCap) {
  const struct {
    const char* text;
    T1Place place;
    const char* path;
    uint64_t cap_bytes;
  } cases[] = {
      {"none", T1Place::kNone, "", 0},
      {"host", T1Place::kHost, "", 0},
      {"host,2GiB", T1Place::kHost, "", 2ull << 30},
      {"file", T1Place::kFile, "", 0},
      {"file,64MiB", T1Place::kFile, "", 64ull << 20},
      {"file:/var/tmp", T1Place::kFile, "/var/tmp", 0},
      {"file:/var/tmp,1000000", T1Place::kFile, "/var/tmp", 1000000},
      {"file:a,b,1000000", T1Place::kFile, "a,b", 1000000},
      {"file:a:b", T1Place::kFile, "a:b", 0},
      {"file:/tmp/a,b,", T1Place::kFile, "/tmp/a,b", 0},
      {"file:/tmp/a,b,1.5Gi", T1Place::kFile, "/tmp/a,b", 3ull << 29},
      {"file:/tmp/a,", T1Place::kFile, "/tmp/a", 0},
  };
  for (const auto& c : cases) {
    TierSetting expected = Odd();
    expected.engine.t1 = c.place;
    expected.engine.t1_path = c.path;
    expected.engine.t1_cap_bytes = c.cap_bytes;
    ExpectRead(ParseT1, c.text, expected);
  }
}

TEST(ParseT1, RefusesEverythingElse) {
  const char* size =
      "the text after the last comma is not a size; a folder with a comma in its name is followed";
  ExpectRefused(ParseT1,
                {{"", "not a place"},
                 {"disk", "not a place"},
                 {"File", "not a place"},
                 {"none ", "not a place"},
                 {"file:", "the path is empty"},
                 {"file:,5MiB", "the path is empty"},
                 {"file,x", size},
                 {"file,0", size},
                 {"file:a,b", size},
                 {"file,99999999999999999999", size},
                 {"none:a", "only a file has a path"},
                 {"host:a", "only a file has a path"},
                 {"none,5MiB", "none has no size"}},
                "write none, host[,SIZE] or file[:PATH][,SIZE]");
}

TEST(ParseT1Read, ReadsWhatIsReadAndTheMass) {
  const struct {
    const char* text;
    T1Read read;
    double mass;
    int rows = 0;
    double reuse = 0;
  } cases[] = {{"all", T1Read::kAll, Odd().shares.t1_mass},
               {"select", T1Read::kSelect, 0.9},
               {"select:mass=0.95", T1Read::kSelect, 0.95},
               {"select:mass=1", T1Read::kSelect, 1},
               {"select:rows=1024", T1Read::kSelect, 0.9, 1024},
               {"select:rows=384,mass=0.5", T1Read::kSelect, 0.5, 384},
               {"select:reuse=0.8", T1Read::kSelect, 0.9, 0, 0.8},
               {"select:reuse=1,mass=0.5", T1Read::kSelect, 0.5, 0, 1}};
  for (const auto& c : cases) {
    TierSetting expected = Odd();
    expected.shares.t1_read = c.read;
    expected.shares.t1_mass = c.mass;
    expected.shares.t1_rows = c.rows;
    expected.shares.t1_reuse = c.reuse;
    ExpectRead(ParseT1Read, c.text, expected);
  }
}

TEST(ParseT1Read, RefusesEverythingElse) {
  const char* mass = "the mass is not above 0 and at most 1";
  const std::string selections =
      "select, or select: followed by any of mass=0.9, rows=1024 and reuse=0.8, with commas";
  ExpectRefused(ParseT1Read,
                {{"", "neither all nor select"},
                 {"some", "neither all nor select"},
                 {"selected", "neither all nor select"}},
                ("write all, " + selections).c_str());
  ExpectRefused(ParseT1Read,
                {{"select:mass=", "\"mass=\" is not key=value"},
                 {"select:mass=0.9,", "\"\" is not key=value"},
                 {"select:", "\"\" is not key=value"},
                 {"select:share=0.9", "neither mass= nor rows= nor reuse="},
                 {"select:reuse=0", "the cosine of reuse is not above 0 and at most 1"},
                 {"select:reuse=1.5", "the cosine of reuse is not above 0 and at most 1"},
                 {"select:mass=0.9,mass=0.9", "\"mass\" is given twice"},
                 {"select:rows=512,mass=0.5,rows=1024", "\"rows\" is given twice"},
                 {"select:rows=64", "the rows are not a number of at least 384"},
                 {"select:mass=0.9,rows=x", "the rows are not a number of at least 384"},
                 {"select:mass=0", mass},
                 {"select:mass=1.01", mass},
                 {"select:mass=nan", mass},
                 {"select:mass=0.9x", mass}},
                ("; write " + selections).c_str());
}

TEST(ParseT2, ReadsShareAndFormat) {
  const struct {
    const char* text;
    double share;
    CompressedType type;
  } cases[] = {
      {"25%", 0.25, CompressedType::kInt8},    {"25%:int8", 0.25, CompressedType::kInt8},
      {"100%:int4", 1, CompressedType::kInt4}, {"100%:int8_naive", 1, CompressedType::kInt8Naive},
      {"0%", 0, CompressedType::kInt8},        {"10%:int3", 0.1, CompressedType::kInt3},
  };
  for (const auto& c : cases) {
    TierSetting expected = Odd();
    expected.shares.t2_share = c.share;
    expected.engine.t2_type.reset();
    if (c.share > 0) expected.engine.t2_type = c.type;
    ExpectRead(ParseT2, c.text, expected);
  }
}

TEST(ParseT2, ReadsOldRowsAndFormat) {
  TierSetting expected = Odd();
  expected.shares.t2_rows = T2Rows::kOld;
  expected.shares.t2_share = 0;
  expected.engine.t2_type = CompressedType::kInt8;
  ExpectRead(ParseT2, "old", expected);
  expected.engine.t2_type = CompressedType::kInt3;
  ExpectRead(ParseT2, "old:int3", expected);
}

TEST(ParseT2, RefusesEverythingElse) {
  const char* share = "neither a share from 0% to 100% nor old";
  const char* format = "not a compressed format";
  ExpectRefused(ParseT2,
                {{"", share},
                 {":int8", share},
                 {"25", share},
                 {"512MiB", share},
                 {"101%", share},
                 {"older", share},
                 {"old:", format},
                 {"25%:", format},
                 {"25%:int1", format},
                 {"25%:INT8", format},
                 {"25%:int8:int4", format}},
                "write a share, or old, and after a colon int8, int4, int3, int2 or int8_naive "
                "(25%:int8, old:int4)");
}

TEST(ParseEvict, ReadsAShareAndRefusesEverythingElse) {
  TierSetting expected = Odd();
  expected.shares.evict_share = 0.1;
  ExpectRead(ParseEvict, "10%", expected);
  expected.shares.evict_share = 0;
  ExpectRead(ParseEvict, "0%", expected);
  expected.shares.evict_beyond_caps = true;
  ExpectRead(ParseEvict, "caps", expected);
  const char* share = "not a share from 0% to 100%";
  ExpectRefused(
      ParseEvict,
      {{"", share}, {"10", share}, {"0.1", share}, {"-5%", share}, {"200%", share}, {"x", share}},
      "write it as 10%, or caps: what the caps on T0 and T1 leave out");
}

TEST(ParseEvictOf, ReadsBothMeaningsAndNoOther) {
  TierSetting expected = Odd();
  expected.shares.evict_of = EvictOf::kGenerated;
  ExpectRead(ParseEvictOf, "generated", expected);
  expected.shares.evict_of = EvictOf::kAlive;
  ExpectRead(ParseEvictOf, "alive", expected);
  ExpectRefused(ParseEvictOf, {{"", "unknown"}, {"all", "unknown"}, {"Alive", "unknown"}},
                "valid: generated, alive");
}

}  // namespace
}  // namespace ebb
