#include "src/rows/rows_under_caps.h"

#include <vector>

#include <gtest/gtest.h>

namespace ebb {
namespace {

constexpr uint64_t kCapExtent = 2 << 20;
constexpr uint64_t kCapSegments = 30 << 20;
constexpr int kCapInterval = 64;

// kSmallShape is that of SmolLM2 135M. One page of every stream takes 1,474,560 bytes in all;
// arenas take memory in extents of 2 MiB, and a file takes segments of 1 MiB for each layer.
constexpr ModelShape kSmallShape = {
    .num_layers = 30, .num_q_heads = 9, .num_kv_heads = 3, .head_dim = 64};
constexpr size_t kSmallPageBytes = 256 * 64;

TEST(RowsUnderCaps, ATierWithoutACapHasNoLimit) {
  const RowsAvailable rows = RowsUnderCaps({}, kSmallShape, kSmallPageBytes);
  EXPECT_EQ(rows.t0, RowsAvailable::kNoCap);
  EXPECT_EQ(rows.t1, RowsAvailable::kNoCap);
}

TEST(RowsUnderCaps, MemoryCountsPagesOfWholeExtentsLessOneOfEachStream) {
  // 3 extents of 128 pages are 4 pages for each of 90 streams; 2 extents are 2.
  const auto t0 = [](uint64_t bytes) {
    return RowsUnderCaps({.t0_cap_bytes = bytes}, kSmallShape, kSmallPageBytes).t0;
  };
  EXPECT_EQ(t0(3 * kCapExtent), 3u * 64);
  EXPECT_EQ(t0(3 * kCapExtent - 1), 1u * 64);
  EXPECT_EQ(t0(kCapExtent), 0u);
  EXPECT_EQ(t0(kCapExtent - 1), 0u);
  EXPECT_EQ(RowsUnderCaps({.t1 = T1Place::kHost, .t1_cap_bytes = 3 * kCapExtent}, kSmallShape,
                          kSmallPageBytes)
                .t1,
            3u * 64);
}

TEST(RowsUnderCaps, AFileCountsWholeSegmentsOfEachLayer) {
  // The model has 4 layers of 3 kv heads, and pages of 1 MiB. The cap holds 2 segments of 64 MiB
  // for each layer: 128 pages for 3 streams, of which each uses 42 less 1.
  const ModelShape shape = {.num_layers = 4, .num_q_heads = 3, .num_kv_heads = 3, .head_dim = 64};
  const EngineTiers tiers = {.t1_cap_bytes = (uint64_t{4 * 3} * 64 << 20) - 1};
  EXPECT_EQ(RowsUnderCaps(tiers, shape, size_t{1} << 20).t1, 41u * 64);
}

TEST(CheckCaps, RefusesACapThatHoldsNoMoreThanTheReserve) {
  struct Refused {
    EngineTiers tiers;
    const char* why;
  };
  const std::vector<Refused> refused = {
      {{.t0_cap_bytes = 3 * kCapExtent - 1},
       "T0 of 6291455 bytes is too small: an interval of 64 rows and a page of 64 are kept in "
       "reserve, so it needs 6291456 bytes"},
      {{.t1 = T1Place::kHost, .t1_cap_bytes = 3 * kCapExtent - 1},
       "T1 of 6291455 bytes is too small: an interval of 64 rows and a page of 64 are kept in "
       "reserve, so it needs 6291456 bytes"},
      {{.t1_cap_bytes = kCapSegments - 1},
       "T1 of 31457279 bytes is too small: an interval of 64 rows and a page of 64 are kept in "
       "reserve, so it needs 31457280 bytes"},
  };
  for (const Refused& c : refused) {
    const Status status = CheckCaps(c.tiers, kSmallShape, kSmallPageBytes, kCapInterval);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.why);
  }
  const std::vector<EngineTiers> accepted = {
      {},
      {.t0_cap_bytes = 3 * kCapExtent},
      {.t1 = T1Place::kHost, .t1_cap_bytes = 3 * kCapExtent},
      {.t1_cap_bytes = kCapSegments},
      {.t0_cap_bytes = 3 * kCapExtent, .t1 = T1Place::kHost, .t1_cap_bytes = 3 * kCapExtent},
  };
  for (const EngineTiers& tiers : accepted) {
    const Status status = CheckCaps(tiers, kSmallShape, kSmallPageBytes, kCapInterval);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

// 384 rows are 6 pages of each of 90 streams, 540 pages in all: 5 extents of 128 pages.
TEST(CheckCapOfSelection, RefusesACapThatDoesNotHoldTheRowsOfAStep) {
  const auto check = [](uint64_t cap_bytes, size_t num_rows) {
    return CheckCapOfSelection({.t0_cap_bytes = cap_bytes}, kSmallShape, kSmallPageBytes, num_rows);
  };
  const Status status = check(5 * kCapExtent - 1, 384);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "tiers.t0_cap_bytes");
  EXPECT_EQ(
      status.message(),
      "10485759 bytes are too few: where selected rows are read, T0 holds the first 64 and "
      "the newest 193 to 256 rows and those of a step, 384 in all, so it needs 10485760 bytes");
  EXPECT_TRUE(check(5 * kCapExtent, 384).ok());
  EXPECT_EQ(check(5 * kCapExtent, 449).code(), StatusCode::kInvalidArgument);
  // With a short context the step has fewer rows.
  EXPECT_TRUE(check(kCapExtent, 64).ok());
  EXPECT_TRUE(check(0, 384).ok());
}

}  // namespace
}  // namespace ebb
