#include "src/attention/prefill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/decode.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

// Chunk holds the inputs and outputs of the attention of consecutive tokens, except the rows.
struct Chunk {
  Chunk(const AttentionShape& shape, std::span<const RowsView> views, std::span<const Position> at,
        std::span<const float> queries)
      : shape(shape), rows(views), positions(at.begin(), at.end()) {
    // Use memory one float off any alignment that a vector may need.
    q.assign(1, 0.0f);
    q.insert(q.end(), queries.begin(), queries.end());
    out.resize(q.size());
    for (int head = 0; head < shape.num_q_heads; ++head) {
      mass.emplace_back(views[head / shape.QueryHeadsPerKvHead()].size(), 0.0f);
    }
    for (auto& array : mass) mass_of_head.push_back(array.data());
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  [[nodiscard]] std::span<const float> Out() const { return std::span(out).subspan(1); }

  AttentionShape shape;
  std::span<const RowsView> rows;
  std::vector<Position> positions;
  std::vector<float> q, out;
  std::vector<std::vector<float>> mass;
  std::vector<float*> mass_of_head;
  bool not_finite = false;
};

void Attend(const AttentionKernel& kernel, Chunk* chunk, int num_threads = 1) {
  PrefillAttention attention(kernel, chunk->shape);
  size_t num_rows = 0;
  for (const RowsView& view : chunk->rows) num_rows = std::max(num_rows, view.size());
  attention.Reserve(chunk->shape.num_kv_heads, static_cast<int>(chunk->positions.size()), num_rows,
                    num_threads);
  attention.Plan(
      {.rows = chunk->rows,
       .positions = chunk->positions,
       .q = chunk->q.data() + 1,
       .out = chunk->out.data() + 1,
       .mass = {.per_query_head = chunk->mass_of_head, .not_finite = &chunk->not_finite}});
  if (chunk->mass_of_head.empty()) {
    RunOnThreads(num_threads, [&](int thread) { attention.Run(thread); });
  } else {
    RunOnThreads(
        num_threads, [&](int thread) { attention.Run(thread); },
        [&](int thread) { attention.Mass(thread); });
  }
}

std::vector<Position> Range(Position begin, Position end) {
  std::vector<Position> positions(end - begin);
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

// Returns the queries of the tokens [0, num_tokens).
std::vector<float> Queries(const AttentionShape& shape, size_t num_tokens) {
  return RandomNormal(num_tokens * shape.num_q_heads * shape.format.head_dim, 3);
}

class PrefillTest : public ::testing::TestWithParam<std::string> {
 protected:
  void ExpectReference(Chunk* chunk, const std::string& what, int num_threads = 1) {
    Attend(kernel_, chunk, num_threads);
    const Expected want = Expect(chunk->shape, chunk->rows, chunk->q.data() + 1, chunk->positions);
    ExpectNear(chunk->Out(), want.out, RelativeTolerance(want) * want.max_value, what + " out");
    const auto num_tokens = static_cast<float>(chunk->positions.size());
    for (int head = 0; head < chunk->shape.num_q_heads; ++head) {
      // A mass is a sum of weights over tokens, whose errors add like a random walk.
      const float tolerance = RelativeTolerance(want) * std::sqrt(num_tokens);
      ExpectNear(chunk->mass[head], want.mass[head], tolerance, what + " mass");
      const double sum = std::accumulate(chunk->mass[head].begin(), chunk->mass[head].end(), 0.0);
      EXPECT_NEAR(sum, num_tokens, 1e-5 * num_tokens) << what;
    }
    EXPECT_FALSE(chunk->not_finite);
  }

  // Expects the reference's result for num_tokens tokens after num_before others; all rows are
  // visible to later tokens.
  void ExpectReference(const AttentionShape& shape, int num_before, int num_tokens) {
    const int num_rows = num_before + num_tokens;
    const TestRows rows(
        {.format = shape.format, .num_rows = std::vector<size_t>(shape.num_kv_heads, num_rows)});
    Chunk chunk(shape, rows.views(), Range(num_before, num_rows), Queries(shape, num_tokens));
    ExpectReference(&chunk, std::string(RowTypeName(shape.format.type)) + " dim " +
                                std::to_string(shape.format.head_dim) + " heads " +
                                std::to_string(shape.QueryHeadsPerKvHead()) + " tokens " +
                                std::to_string(num_tokens) + " after " +
                                std::to_string(num_before));
  }

  const AttentionKernel& kernel_ = KernelByName(GetParam());
};

TEST_P(PrefillTest, AgreesWithTheReferenceForEveryTypeAndHeadSize) {
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    for (const int head_dim : {16, 48, 64, 80, 96, 112, 128, 256}) {
      ExpectReference(ShapeOf(type, head_dim, 2, 3), 70, 40);
    }
  }
}

TEST_P(PrefillTest, AgreesWithTheReferenceForEveryRatioOfHeads) {
  for (const int heads : {1, 2, 3, 4, 5, 7, 8, 16}) {
    ExpectReference(ShapeOf(RowType::kF16, 64, 2, heads), 70, 51);
  }
}

TEST_P(PrefillTest, AgreesWithTheReferenceAroundTilesAndChunksOfRows) {
  for (const int tokens :
       {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65}) {
    for (const int heads : {1, 3}) {
      ExpectReference(ShapeOf(RowType::kF16, 64, 1, heads), 0, tokens);
      ExpectReference(ShapeOf(RowType::kF16, 48, 1, heads), 64 - tokens % 3, tokens);
    }
  }
}

TEST_P(PrefillTest, TheReferenceIsNeitherUniformNorOneHotHere) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows rows({.format = shape.format, .num_rows = {300, 300}});
  const std::vector<Position> last = {299};
  const std::vector<float> q = Queries(shape, 1);
  ExpectNonTrivial(Expect(shape, rows.views(), q.data(), last), 1);
}

// Evicted rows leave gaps, at different positions in different heads.
TEST_P(PrefillTest, AgreesWithTheReferenceWherePositionsHaveGaps) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  TestRows rows({.format = shape.format, .num_rows = {200, 90}});
  std::vector<Position> positions;
  for (int r = 0; r < 200; ++r) positions.push_back(r < 150 ? 3 * r + r % 2 : 600 + r);
  rows.SetPositions(positions);
  // The second head holds only rows 0..89, which all queries see.
  Chunk chunk(shape, rows.views(), std::span(positions).last(50), Queries(shape, 50));
  ExpectReference(&chunk, "gaps", 2);
}

// Positions may be too large for a float to represent exactly, because a session that re-rotates
// keys may have any length.
TEST_P(PrefillTest, AgreesWithTheReferenceAtPositionsThatAFloatRounds) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  for (const Position begin : {(1 << 24) - 20, (1 << 26) + 1}) {
    TestRows rows({.format = shape.format, .num_rows = {200, 200}});
    rows.SetPositions(Range(begin, begin + 200));
    Chunk chunk(shape, rows.views(), Range(begin + 150, begin + 200), Queries(shape, 50));
    ExpectReference(&chunk, "from " + std::to_string(begin), 2);
  }
}

TEST_P(PrefillTest, AgreesWithTheReferenceUnderLastVisiblePositions) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  for (const int window : {1, 5, 64, 100}) {
    TestRows rows({.format = shape.format, .num_rows = {200, 200}});
    std::vector<Position> last_visible;
    for (int r = 0; r < 200; ++r) {
      // The rows include sinks, a window, and some rows that stay visible beyond the window.
      last_visible.push_back(r < 4 || r % 17 == 0 ? kVisibleForEver : r + window - 1);
    }
    rows.SetLastVisible(last_visible);
    Chunk chunk(shape, rows.views(), Range(0, 200), Queries(shape, 200));
    ExpectReference(&chunk, "window " + std::to_string(window), 2);
  }
}

TEST_P(PrefillTest, AgreesWithTheReferenceUnderASoftCap) {
  for (const float cap : {0.7f, 5.0f, 50.0f}) {
    AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
    shape.soft_cap = cap;
    const TestRows rows({.format = shape.format, .num_rows = {200, 200}});
    Chunk chunk(shape, rows.views(), Range(120, 200), Queries(shape, 80));
    ExpectReference(&chunk, "cap " + std::to_string(cap), 2);
  }
}

// A token must see the same rows in the same chunks of rows, in whatever tile or chunk of tokens it
// is.
TEST_P(PrefillTest, ChunksOfAPromptAreTheSameBitForBitAsTheWhole) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const size_t token_floats = size_t(shape.num_q_heads) * shape.format.head_dim;
  const TestRows all({.format = shape.format, .num_rows = {200, 200}});
  const std::vector<float> q = Queries(shape, 200);
  Chunk whole(shape, all.views(), Range(0, 200), q);
  ExpectReference(&whole, "the whole prompt");
  for (const int size : {1, 7, 16, 33, 64, 150}) {
    for (int begin = 0; begin < 200; begin += size) {
      const int end = std::min(begin + size, 200);
      std::vector<RowsView> views(all.views().begin(), all.views().end());
      for (RowsView& view : views) {
        view.slots = view.slots.first(end);
        view.positions = view.positions.first(end);
      }
      const auto part = std::span(q).subspan(begin * token_floats, (end - begin) * token_floats);
      Chunk chunk(shape, views, Range(begin, end), part);
      Attend(kernel_, &chunk);
      EXPECT_TRUE(std::ranges::equal(
          chunk.Out(), whole.Out().subspan(begin * token_floats, (end - begin) * token_floats)))
          << "tokens " << begin << " to " << end;
    }
  }
}

std::vector<RowsView> WithWindow(const TestRows& rows, int window, size_t begin, size_t end) {
  std::vector<RowsView> views(rows.views().begin(), rows.views().end());
  for (RowsView& view : views) {
    view.window = window;
    view.slots = view.slots.subspan(begin, end - begin);
    view.positions = view.positions.subspan(begin, end - begin);
  }
  return views;
}

// A window must act as a last visible position of every row, whether or not rows have other ones
// too.
TEST_P(PrefillTest, AgreesWithTheReferenceUnderWindows) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  for (const int window : {1, 5, 64, 100, 1000}) {
    TestRows rows({.format = shape.format, .num_rows = {200, 200}});
    const std::vector<float> q = Queries(shape, 90);
    const std::vector<RowsView> views = WithWindow(rows, window, 0, 200);
    Chunk chunk(shape, views, Range(110, 200), q);
    ExpectReference(&chunk, "window " + std::to_string(window), 2);
    std::vector<Position> last_visible;
    for (int r = 0; r < 200; ++r) last_visible.push_back(r + window - 1);
    const Expected want = Expect(shape, chunk.rows, q.data(), chunk.positions);
    rows.SetLastVisible(last_visible);
    const Expected same = Expect(shape, rows.views(), q.data(), chunk.positions);
    ExpectNear(want.out, same.out, 0, "as last visible positions");
  }
}

// Rows before a window may be present or evicted, and a prompt may be cut anywhere.
TEST_P(PrefillTest, UnderAWindowNoBitDependsOnRowsBeforeItOrOnHowAPromptIsCut) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const size_t token_floats = size_t(shape.num_q_heads) * shape.format.head_dim;
  const TestRows all({.format = shape.format, .num_rows = {300, 300}});
  const std::vector<float> q = Queries(shape, 300);
  const int window = 70;
  const std::vector<RowsView> views = WithWindow(all, window, 0, 300);
  Chunk whole(shape, views, Range(0, 300), q);
  ExpectReference(&whole, "the whole prompt");
  for (const int size : {1, 7, 33, 64, 150}) {
    for (int begin = 0; begin < 300; begin += size) {
      const int end = std::min(begin + size, 300);
      const auto gone = static_cast<size_t>(std::max(begin - window + 1, 0));
      const auto part = std::span(q).subspan(begin * token_floats, (end - begin) * token_floats);
      const std::vector<RowsView> left = WithWindow(all, window, gone, end);
      Chunk chunk(shape, left, Range(begin, end), part);
      Attend(kernel_, &chunk);
      EXPECT_TRUE(std::ranges::equal(
          chunk.Out(), whole.Out().subspan(begin * token_floats, (end - begin) * token_floats)))
          << "tokens " << begin << " to " << end;
    }
  }
}

// Layers may have different numbers of kv heads, and then have tiles of different numbers of
// tokens.
TEST_P(PrefillTest, OneOfThemServesLayersOfDifferentNumbersOfKvHeads) {
  const AttentionShape most = ShapeOf(RowType::kF16, 64, 4, 1);
  PrefillAttention attention(kernel_, most);
  for (const int kv_heads : {4, 1, 2}) attention.Reserve(kv_heads, 50, 120, 2);
  for (const int kv_heads : {1, 4, 2, 1}) {
    const AttentionShape shape = ShapeOf(RowType::kF16, 64, kv_heads, 4 / kv_heads);
    const TestRows rows({.format = shape.format, .num_rows = std::vector<size_t>(kv_heads, 120)});
    Chunk chunk(shape, rows.views(), Range(70, 120), Queries(shape, 50));
    attention.Plan({.rows = chunk.rows,
                    .positions = chunk.positions,
                    .q = chunk.q.data() + 1,
                    .out = chunk.out.data() + 1,
                    .mass = {.per_query_head = chunk.mass_of_head, .not_finite = nullptr}});
    RunOnThreads(
        2, [&](int thread) { attention.Run(thread); }, [&](int thread) { attention.Mass(thread); });
    Chunk alone(shape, rows.views(), Range(70, 120), Queries(shape, 50));
    Attend(kernel_, &alone);
    EXPECT_TRUE(std::ranges::equal(chunk.Out(), alone.Out())) << kv_heads << " kv heads";
    EXPECT_EQ(chunk.mass, alone.mass) << kv_heads << " kv heads";
  }
}

// The shapes include one kv head for 16 query heads of 576 channels, as in models with latent
// attention.
TEST_P(PrefillTest, ReservesAtMostWhatIsForetold) {
  const AttentionShape latent = ShapeOf(RowType::kF16, 576, 1, 16);
  for (const AttentionShape& shape :
       {latent, ShapeOf(RowType::kF16, 64, 3, 3), ShapeOf(RowType::kF16, 128, 8, 1),
        ShapeOf(RowType::kF16, 128, 2, 2), ShapeOf(RowType::kF16, 64, 32, 1)}) {
    for (const size_t num_rows : {100, 3000, 20000}) {
      PrefillAttention attention(kernel_, shape);
      for (int tokens = 13; tokens <= 512; tokens += 7) {
        attention.Reserve(shape.num_kv_heads, tokens, num_rows, 2);
        ASSERT_LE(attention.reserved_bytes(), MostPrefillBytes(shape, tokens, num_rows, 2))
            << tokens << " tokens, " << num_rows << " rows, " << shape.num_kv_heads << " kv heads";
      }
    }
  }
  // Two parts have 2 * 576 * 256 floats of queries and results, 64 * 576 of rows, 64 * 256 of
  // logits and 4 * 256 others; there are 2 * 512 * 16 states. With 2,048 rows before them, 15 tiles
  // of 16 tokens are cut into 2 slices.
  constexpr uint64_t kUncut = 2 * (294912 + 36864 + 16384 + 1024) + 16384;
  EXPECT_EQ(MostPrefillBytes(latent, 512, 2047, 2), 4 * kUncut);
  EXPECT_EQ(MostPrefillBytes(latent, 512, 2048, 2),
            4 * (kUncut + uint64_t{15} * 2 * 16 * 16 * (576 + 2)));
}

TEST_P(PrefillTest, AMaskThatHidesNothingIsTheSameBitForBitAsNone) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  TestRows rows({.format = shape.format, .num_rows = {200, 200}});
  const std::vector<float> q = Queries(shape, 30);
  Chunk plain(shape, rows.views(), Range(170, 200), q);
  Attend(kernel_, &plain);
  rows.SetLastVisible(std::vector<Position>(200, kVisibleForEver));
  Chunk masked(shape, rows.views(), Range(170, 200), q);
  Attend(kernel_, &masked);
  EXPECT_EQ(masked.out, plain.out);
  EXPECT_EQ(masked.mass, plain.mass);
}

TEST_P(PrefillTest, IsTheSameBitForBitForAnyNumberOfThreadsAndAnyPlace) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 3, 3);
  const TestRows dense(
      {.format = shape.format, .num_rows = {150, 150, 150}, .layout = Layout::kDense});
  const TestRows scattered({.format = shape.format, .num_rows = {150, 150, 150}});
  const std::vector<float> q = Queries(shape, 100);
  Chunk one(shape, dense.views(), Range(50, 150), q);
  Attend(kernel_, &one);
  for (const int num_threads : {1, 2, 3}) {
    Chunk several(shape, scattered.views(), Range(50, 150), q);
    Attend(kernel_, &several, num_threads);
    EXPECT_EQ(several.out, one.out) << num_threads << " threads";
    EXPECT_EQ(several.mass, one.mass) << num_threads << " threads";
  }
}

// Few tokens over many rows are cut into slices.
TEST_P(PrefillTest, AgreesWithTheReferenceInSlices) {
  for (const int before : {2047, 2048, 3100}) {
    for (const int tokens : {1, 9, 40}) {
      ExpectReference(ShapeOf(RowType::kF16, 64, 3, 3), before, tokens);
    }
  }
  ExpectReference(ShapeOf(RowType::kF16, 80, 1, 1), 9500, 5);
}

TEST_P(PrefillTest, SlicesAreTheSameBitForBitForAnyNumberOfThreads) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 3, 3);
  const TestRows rows({.format = shape.format, .num_rows = {2500, 5000, 90}});
  const std::vector<float> q = Queries(shape, 20);
  const std::vector<Position> last = Range(4980, 5000);
  Chunk one(shape, rows.views(), last, q);
  Attend(kernel_, &one);
  for (const int num_threads : {1, 2, 3}) {
    for (int round = 0; round < 5; ++round) {
      Chunk several(shape, rows.views(), last, q);
      Attend(kernel_, &several, num_threads);
      ASSERT_EQ(several.out, one.out) << num_threads << " threads";
      ASSERT_EQ(several.mass, one.mass) << num_threads << " threads";
    }
  }
}

TEST_P(PrefillTest, HeadsThatShareATargetSumTheirMassInIt) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows rows({.format = shape.format, .num_rows = {150, 150}});
  const std::vector<float> q = Queries(shape, 60);
  Chunk apart(shape, rows.views(), Range(90, 150), q);
  Attend(kernel_, &apart);
  std::vector<float> first;
  for (const int num_threads : {1, 2, 3}) {
    Chunk together(shape, rows.views(), Range(90, 150), q);
    for (float*& target : together.mass_of_head) target = together.mass[0].data();
    Attend(kernel_, &together, num_threads);
    for (size_t r = 0; r < 150; ++r) {
      float sum = 0;
      for (const auto& array : apart.mass) sum += array[r];
      EXPECT_NEAR(together.mass[0][r], sum, 1e-4f) << r;
    }
    if (first.empty()) first = together.mass[0];
    EXPECT_EQ(together.mass[0], first) << num_threads << " threads";
  }
}

TEST_P(PrefillTest, WithoutTargetsTheOutputIsTheSame) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 3);
  const TestRows rows({.format = shape.format, .num_rows = {100}});
  Chunk with(shape, rows.views(), Range(60, 100), Queries(shape, 40));
  Chunk without(shape, rows.views(), Range(60, 100), Queries(shape, 40));
  without.mass_of_head.clear();
  Attend(kernel_, &with);
  Attend(kernel_, &without);
  EXPECT_EQ(with.out, without.out);
}

TEST_P(PrefillTest, AgreesWithDecodingEachToken) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows rows({.format = shape.format, .num_rows = {170, 170}});
  Chunk chunk(shape, rows.views(), Range(120, 170), Queries(shape, 50));
  Attend(kernel_, &chunk);
  const Expected want = Expect(shape, rows.views(), chunk.q.data() + 1, chunk.positions);
  const size_t token_floats = size_t(shape.num_q_heads) * shape.format.head_dim;
  DecodeAttention decode(kernel_, shape);
  decode.Reserve(1, 170, 1);
  for (size_t token = 0; token < 50; ++token) {
    std::vector<RowsView> views(rows.views().begin(), rows.views().end());
    for (RowsView& view : views) view.slots = view.slots.first(121 + token);
    std::vector<float> out(token_floats);
    const DecodeQuery query = {.rows = views,
                               .mass_elements = {},
                               .q = chunk.q.data() + 1 + token * token_floats,
                               .out = out.data(),
                               .mass = {}};
    decode.Plan(std::span(&query, 1));
    decode.Fold(0, 1);
    decode.Merge(0, 1);
    ExpectNear(out, chunk.Out().subspan(token * token_floats, token_floats),
               2 * RelativeTolerance(want) * want.max_value, "token " + std::to_string(token));
  }
}

TEST_P(PrefillTest, WhatIsNotFiniteFailsAndLeavesMassAlone) {
  AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t row : {0, 15, 63, 64, 99}) {
      for (const bool in_value : {false, true}) {
        TestRows rows({.format = shape.format, .num_rows = {100, 100}});
        const std::vector<float> values(64, bad);
        kernel_.store_row(RowType::kF16, values.data(),
                          in_value ? rows.Value(1, row) : rows.Key(1, row), 64);
        shape.soft_cap = row % 2 == 0 ? 5 : 0;
        Chunk chunk(shape, rows.views(), Range(60, 100), Queries(shape, 40));
        Attend(kernel_, &chunk, 2);
        EXPECT_TRUE(chunk.not_finite) << bad << " in row " << row;
        for (const auto& array : chunk.mass) {
          EXPECT_EQ(std::accumulate(array.begin(), array.end(), 0.0f), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PrefillTest, ::testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb
