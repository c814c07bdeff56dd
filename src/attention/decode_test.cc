#include "src/attention/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

enum class Targets {
  kPerQueryHead,
  kPerKvHead,  // each kv head has its own mass array
  kOne,        // one mass array for all heads
};

// Step holds the inputs and outputs of one token's attention, except the rows.
struct Step {
  Step(const AttentionShape& shape, std::span<const RowsView> views, uint32_t seed,
       Targets targets = Targets::kPerQueryHead)
      : shape(shape), rows(views) {
    const size_t floats = size_t(shape.num_q_heads) * shape.format.head_dim;
    // Use memory one float off any alignment that a vector may need.
    q = RandomNormal(floats + 1, seed);
    out.resize(floats + 1);
    size_t max_rows = 0;
    for (const RowsView& view : views) max_rows = std::max(max_rows, view.size());
    const int heads = shape.QueryHeadsPerKvHead();
    const int num_arrays = targets == Targets::kOne         ? 1
                           : targets == Targets::kPerKvHead ? shape.num_kv_heads
                                                            : shape.num_q_heads;
    mass.assign(num_arrays, std::vector<float>(max_rows, 0.0f));
    for (int head = 0; head < shape.num_q_heads; ++head) {
      const int array = targets == Targets::kOne         ? 0
                        : targets == Targets::kPerKvHead ? head / heads
                                                         : head;
      mass_of_head.push_back(mass[array].data());
    }
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  [[nodiscard]] DecodeQuery Query() {
    return {.rows = rows,
            .mass_elements = mass_elements,
            .q = q.data() + 1,
            .out = out.data() + 1,
            .mass = {.per_query_head = mass_of_head, .not_finite = &not_finite}};
  }
  [[nodiscard]] std::span<const float> Out() const { return std::span(out).subspan(1); }
  [[nodiscard]] float TotalMass() const {
    double sum = 0;
    for (const auto& array : mass) sum = std::accumulate(array.begin(), array.end(), sum);
    return static_cast<float>(sum);
  }

  AttentionShape shape;
  std::span<const RowsView> rows;
  std::vector<std::span<const uint32_t>> mass_elements;
  std::vector<float> q, out;
  std::vector<std::vector<float>> mass;
  std::vector<float*> mass_of_head;
  bool not_finite = false;
};

void Attend(const AttentionKernel& kernel, std::span<Step* const> steps, int num_threads = 1) {
  std::vector<DecodeQuery> queries;
  size_t max_rows = 0;
  for (Step* step : steps) {
    queries.push_back(step->Query());
    for (const RowsView& view : step->rows) max_rows = std::max(max_rows, view.size());
  }
  DecodeAttention attention(kernel, steps[0]->shape);
  attention.Reserve(static_cast<int>(steps.size()), max_rows, num_threads);
  attention.Plan(queries);
  const auto fold = [&](int thread) { attention.Fold(thread, num_threads); };
  const auto merge = [&](int thread) { attention.Merge(thread, num_threads); };
  if (num_threads <= 3) {
    RunOnThreads(num_threads, fold, merge);
    return;
  }
  // A test cannot start so many threads, so run the parts one after another, the last first.
  for (int thread = num_threads; thread-- > 0;) fold(thread);
  for (int thread = num_threads; thread-- > 0;) merge(thread);
}

void Attend(const AttentionKernel& kernel, Step* step, int num_threads = 1) {
  Attend(kernel, std::span(&step, 1), num_threads);
}

void ExpectSameBits(const Step& a, const Step& b, const std::string& what) {
  EXPECT_TRUE(std::ranges::equal(a.Out(), b.Out())) << what << ": outputs differ";
  EXPECT_EQ(a.mass, b.mass) << what << ": mass differs";
}

class DecodeTest : public ::testing::TestWithParam<std::string> {
 protected:
  void ExpectReference(const AttentionShape& shape, const std::vector<size_t>& num_rows) {
    const TestRows rows({.format = shape.format, .num_rows = num_rows});
    Step step(shape, rows.views(), 3);
    Attend(kernel_, &step);
    const Position last = std::numeric_limits<Position>::max();
    const Expected want = Expect(shape, rows.views(), step.q.data() + 1, std::span(&last, 1));
    const std::string what = std::string(RowTypeName(shape.format.type)) + " dim " +
                             std::to_string(shape.format.head_dim) + " heads " +
                             std::to_string(shape.QueryHeadsPerKvHead()) + " rows " +
                             std::to_string(num_rows[0]);
    ExpectNear(step.Out(), want.out, RelativeTolerance(want) * want.max_value, what + " out");
    for (int head = 0; head < shape.num_q_heads; ++head) {
      const auto got = std::span(step.mass[head]).first(want.mass[head].size());
      ExpectNear(got, want.mass[head], RelativeTolerance(want), what + " mass");
    }
    EXPECT_NEAR(step.TotalMass(), shape.num_q_heads, 1e-5 * shape.num_q_heads) << what;
    EXPECT_FALSE(step.not_finite);
    if (num_rows[0] >= 32) ExpectNonTrivial(want, 1);
  }

  const AttentionKernel& kernel_ = KernelByName(GetParam());
};

TEST_P(DecodeTest, AgreesWithTheReferenceForEveryTypeAndHeadSize) {
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    for (const int head_dim : {16, 48, 64, 80, 96, 112, 128, 256, 512, 576}) {
      ExpectReference(ShapeOf(type, head_dim, 2, 3), {300, 300});
    }
  }
}

TEST_P(DecodeTest, AgreesWithTheReferenceUnderASoftCap) {
  for (const float cap : {4.0f, 10.0f, 50.0f}) {
    for (const int head_dim : {16, 64, 256, 512}) {
      AttentionShape shape = ShapeOf(RowType::kF16, head_dim, 2, 3);
      shape.soft_cap = cap;
      ExpectReference(shape, {300, 270});
    }
  }
}

TEST_P(DecodeTest, MassIsItsOwnBesideQueriesThatWantNone) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows rows({.format = shape.format, .num_rows = {300, 300}});
  const TestRows others({.format = shape.format, .num_rows = {200, 200}});
  Step alone(shape, rows.views(), 3);
  Attend(kernel_, &alone);
  for (const int threads : {1, 2, 3}) {
    for (const bool first : {true, false}) {
      Step step(shape, rows.views(), 3), other(shape, others.views(), 4);
      other.mass_of_head.clear();
      Step* const both[] = {first ? &step : &other, first ? &other : &step};
      Attend(kernel_, both, threads);
      ExpectSameBits(alone, step, std::to_string(threads) + (first ? " first" : " second"));
    }
  }
}

TEST_P(DecodeTest, AgreesWithTheReferenceForEveryRatioOfHeads) {
  for (const int heads : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 33}) {
    for (const int head_dim : {64, 112}) {
      ExpectReference(ShapeOf(RowType::kF16, head_dim, 2, heads), {150, 150});
    }
  }
}

TEST_P(DecodeTest, AgreesWithTheReferenceAroundVectorsAndChunks) {
  for (const size_t rows :
       {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 257, 300}) {
    ExpectReference(ShapeOf(RowType::kF16, 64, 1, 3), {rows});
    ExpectReference(ShapeOf(RowType::kBf16, 48, 1, 2), {rows});
  }
}

TEST_P(DecodeTest, AgreesWithTheReferenceForRaggedKvHeads) {
  ExpectReference(ShapeOf(RowType::kF16, 64, 4, 3), {300, 1, 128, 17});
}

TEST_P(DecodeTest, AgreesWithTheReferenceOverManyChunks) {
  ExpectReference(ShapeOf(RowType::kF16, 64, 1, 3), {5000});
}

TEST_P(DecodeTest, IsTheSameBitForBitForAnyNumberOfThreads) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 3, 3);
  const TestRows rows({.format = shape.format, .num_rows = {1000, 700, 129}});
  for (const Targets targets : {Targets::kPerQueryHead, Targets::kPerKvHead, Targets::kOne}) {
    Step one(shape, rows.views(), 3, targets);
    Attend(kernel_, &one);
    for (const int num_threads : {2, 3, 5, 64}) {
      Step several(shape, rows.views(), 3, targets);
      Attend(kernel_, &several, num_threads);
      ExpectSameBits(one, several, std::to_string(num_threads) + " threads");
    }
  }
}

TEST_P(DecodeTest, IsTheSameBitForBitWhereverRowsLie) {
  for (const int head_dim : {64, 112}) {
    const AttentionShape shape = ShapeOf(RowType::kF16, head_dim, 2, 3);
    const TestRows dense(
        {.format = shape.format, .num_rows = {517, 517}, .layout = Layout::kDense});
    Step in_order(shape, dense.views(), 3);
    Attend(kernel_, &in_order);
    for (const uint32_t layout_seed : {1, 2, 3}) {
      const TestRows scattered({.format = shape.format,
                                .num_rows = {517, 517},
                                .layout = Layout::kScattered,
                                .layout_seed = layout_seed});
      Step elsewhere(shape, scattered.views(), 3);
      Attend(kernel_, &elsewhere, 2);
      ExpectSameBits(in_order, elsewhere, "layout " + std::to_string(layout_seed));
    }
  }
}

TEST_P(DecodeTest, QueriesOfABatchAreTheSameBitForBitAsEachAlone) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows a({.format = shape.format, .num_rows = {300, 300}, .seed = 1});
  const TestRows b({.format = shape.format, .num_rows = {1, 77}, .seed = 2});
  Step in_batch[] = {{shape, a.views(), 1}, {shape, b.views(), 2}, {shape, a.views(), 3}};
  Step* const batch[] = {&in_batch[0], &in_batch[1], &in_batch[2]};
  Attend(kernel_, batch, 2);
  const TestRows* const rows[] = {&a, &b, &a};
  for (uint32_t i = 0; i < 3; ++i) {
    Step alone(shape, rows[i]->views(), i + 1);
    Attend(kernel_, &alone);
    ExpectSameBits(alone, in_batch[i], "query " + std::to_string(i));
  }
}

// The queries are the tokens of a verifying step and a token of another sequence. Each token of the
// verifying step sees one row more than the one before.
TEST_P(DecodeTest, TokensOfASequenceAreTheSameBitForBitAsEachAlone) {
  constexpr size_t kTokens = 7;
  for (const int heads : {1, 2, 3, 5}) {
    const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, heads);
    const TestRows rows({.format = shape.format, .num_rows = {1218, 130}, .seed = 1});
    const TestRows others({.format = shape.format, .num_rows = {1210, 200}, .seed = 2});
    std::vector<std::vector<RowsView>> views;
    for (size_t token = 0; token < kTokens; ++token) {
      views.emplace_back(rows.views().begin(), rows.views().end());
      for (RowsView& view : views.back()) {
        view.slots = view.slots.first(view.slots.size() - (kTokens - 1 - token));
        view.positions = view.positions.first(view.slots.size());
      }
    }
    views.emplace_back(others.views().begin(), others.views().end());
    for (const int threads : {1, 2, 3}) {
      for (const bool wants_mass : {true, false}) {
        std::vector<std::unique_ptr<Step>> steps;
        std::vector<Step*> batch;
        for (uint32_t i = 0; i < views.size(); ++i) {
          steps.push_back(std::make_unique<Step>(shape, views[i], i));
          if (!wants_mass) steps.back()->mass_of_head.clear();
          batch.push_back(steps.back().get());
        }
        Attend(kernel_, batch, threads);
        for (uint32_t i = 0; i < views.size(); ++i) {
          Step alone(shape, views[i], i);
          if (!wants_mass) alone.mass_of_head.clear();
          Attend(kernel_, &alone);
          ExpectSameBits(alone, *steps[i],
                         std::to_string(heads) + " heads, query " + std::to_string(i));
        }
      }
    }
  }
}

// A plan is kept while the numbers of rows stay the same, but which sequence owns the rows must be
// checked again.
TEST_P(DecodeTest, SequencesAreNotFoldedAsTokensOfOneWere) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 1);
  const TestRows a({.format = shape.format, .num_rows = {300, 300}, .seed = 1});
  const TestRows b({.format = shape.format, .num_rows = {300, 300}, .seed = 2});
  DecodeAttention attention(kernel_, shape);
  attention.Reserve(2, 300, 1);
  for (const TestRows* other : {&a, &b}) {
    Step first(shape, a.views(), 1), second(shape, other->views(), 2);
    const DecodeQuery queries[] = {first.Query(), second.Query()};
    attention.Plan(queries);
    attention.Fold(0, 1);
    attention.Merge(0, 1);
    Step alone(shape, other->views(), 2);
    Attend(kernel_, &alone);
    ExpectSameBits(alone, second, other == &a ? "of one sequence" : "of another");
  }
}

// Two queries with one kv head have as many lists of rows as one query with two kv heads.
TEST_P(DecodeTest, OneOfThemServesLayersOfDifferentNumbersOfKvHeads) {
  const AttentionShape two = ShapeOf(RowType::kF16, 64, 2, 1),
                       one = ShapeOf(RowType::kF16, 64, 1, 2);
  const TestRows of_two({.format = two.format, .num_rows = {300, 300}, .seed = 1});
  const TestRows of_one({.format = one.format, .num_rows = {300}, .seed = 2});
  DecodeAttention attention(kernel_, two);
  attention.Reserve(2, 300, 1);
  for (int round = 0; round < 2; ++round) {
    Step wide(two, of_two.views(), 1), first(one, of_one.views(), 2),
        second(one, of_one.views(), 3);
    const DecodeQuery of_wide[] = {wide.Query()};
    const DecodeQuery of_narrow[] = {first.Query(), second.Query()};
    for (const std::span<const DecodeQuery> queries :
         {std::span<const DecodeQuery>(of_wide), std::span<const DecodeQuery>(of_narrow)}) {
      attention.Plan(queries);
      attention.Fold(0, 1);
      attention.Merge(0, 1);
    }
    Step wide_alone(two, of_two.views(), 1), second_alone(one, of_one.views(), 3);
    Attend(kernel_, &wide_alone);
    Attend(kernel_, &second_alone);
    ExpectSameBits(wide, wide_alone, "two kv heads");
    ExpectSameBits(second, second_alone, "one kv head");
  }
}

TEST_P(DecodeTest, StateOfAnEarlierStepLeavesNoTrace) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 3);
  const TestRows many({.format = shape.format, .num_rows = {400}, .seed = 5});
  const TestRows few({.format = shape.format, .num_rows = {130}, .seed = 6});
  DecodeAttention attention(kernel_, shape);
  attention.Reserve(1, 400, 1);
  Step first(shape, few.views(), 1), second(shape, many.views(), 2), third(shape, few.views(), 3);
  for (Step* step : {&first, &second, &third}) {
    const DecodeQuery query = step->Query();
    attention.Plan(std::span(&query, 1));
    attention.Fold(0, 1);
    attention.Merge(0, 1);
  }
  Step many_alone(shape, many.views(), 2), few_alone(shape, few.views(), 3);
  for (Step* step : {&many_alone, &few_alone}) Attend(kernel_, step);
  ExpectSameBits(second, many_alone, "more rows after few");
  ExpectSameBits(third, few_alone, "fewer rows after many");
}

// The row's logit is so far above the others that exp() of its difference to any other maximum
// overflows.
TEST_P(DecodeTest, ARowFarAboveTheOthersTakesEverything) {
  const AttentionShape shape = ShapeOf(RowType::kF32, 64, 1, 1);
  for (const size_t row : {0, 15, 16, 77, 99, 128, 140}) {
    TestRows rows({.format = shape.format, .num_rows = {141}, .layout = Layout::kDense});
    Step step(shape, rows.views(), 1);
    float* key = reinterpret_cast<float*>(rows.Key(0, row));
    for (int i = 0; i < 64; ++i) key[i] = 100 * step.Query().q[i];
    Attend(kernel_, &step);
    const float* value = reinterpret_cast<const float*>(rows.Value(0, row));
    for (int i = 0; i < 64; ++i) ASSERT_NEAR(step.Out()[i], value[i], 1e-5f) << row;
  }
}

TEST_P(DecodeTest, HeadsThatShareATargetSumTheirMassInIt) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 18);
  const TestRows rows({.format = shape.format, .num_rows = {200, 200}});
  Step apart(shape, rows.views(), 3, Targets::kPerQueryHead);
  Step per_kv_head(shape, rows.views(), 3, Targets::kPerKvHead);
  Step together(shape, rows.views(), 3, Targets::kOne);
  for (Step* step : {&apart, &per_kv_head, &together}) Attend(kernel_, step, 2);
  for (size_t r = 0; r < 200; ++r) {
    float all = 0;
    for (int h = 0; h < 2; ++h) {
      float sum = 0;
      for (int g = 0; g < 18; ++g) sum += apart.mass[h * 18 + g][r];
      EXPECT_NEAR(per_kv_head.mass[h][r], sum, 1e-5f);
      all += sum;
    }
    EXPECT_NEAR(together.mass[0][r], all, 1e-5f);
  }
  EXPECT_NEAR(together.TotalMass(), shape.num_q_heads, 1e-4);
}

TEST_P(DecodeTest, MassIsAddedToWhatIsThere) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 3);
  const TestRows rows({.format = shape.format, .num_rows = {150}});
  Step once(shape, rows.views(), 3), twice(shape, rows.views(), 3);
  Attend(kernel_, &once);
  Attend(kernel_, &twice);
  Attend(kernel_, &twice);
  for (size_t r = 0; r < 150; ++r) {
    EXPECT_NEAR(twice.mass[0][r], 2 * once.mass[0][r], 1e-6f) << r;
  }
}

TEST_P(DecodeTest, WithoutTargetsTheOutputIsTheSame) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 3);
  const TestRows rows({.format = shape.format, .num_rows = {150}});
  Step with(shape, rows.views(), 3), without(shape, rows.views(), 3);
  without.mass_of_head.clear();
  Attend(kernel_, &with);
  Attend(kernel_, &without);
  EXPECT_TRUE(std::ranges::equal(with.Out(), without.Out()));
  EXPECT_EQ(without.TotalMass(), 0);
}

// Every kv head selects rows of its own, the last one all rows, and all heads share one target.
TEST_P(DecodeTest, MassOfSelectedRowsGoesToTheirOwnIndices) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 4, 3);
  const TestRows rows({.format = shape.format, .num_rows = {600, 600, 600, 600}});
  std::vector<uint32_t> index[4];
  std::vector<Slot> slots[4];
  std::vector<RowsView> views(rows.views().begin(), rows.views().end());
  std::vector<std::span<const uint32_t>> mass_elements(4);
  for (uint32_t h = 0; h < 3; ++h) {
    for (uint32_t r = h; r < 600; r += h + 2) {
      index[h].push_back(r);
      slots[h].push_back(views[h].slots[r]);
    }
    views[h].slots = slots[h];
    views[h].positions = {};
    mass_elements[h] = index[h];
  }
  Step plain(shape, views, 3, Targets::kPerKvHead);
  Attend(kernel_, &plain);
  std::vector<float> want(600, 0.1f);
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < views[h].size(); ++i) {
      want[mass_elements[h].empty() ? i : index[h][i]] += plain.mass[h][i];
    }
  }
  std::vector<float> first;
  for (const int num_threads : {1, 2, 3, 5}) {
    Step step(shape, views, 3, Targets::kOne);
    step.mass_elements = mass_elements;
    // Begin with a mass other than 0, so that a wrong order of several sums would show.
    step.mass[0].assign(600, 0.1f);
    Attend(kernel_, &step, num_threads);
    EXPECT_TRUE(std::ranges::equal(step.Out(), plain.Out()));
    for (size_t r = 0; r < 600; ++r) EXPECT_NEAR(step.mass[0][r], want[r], 1e-6f) << r;
    if (first.empty()) first = step.mass[0];
    EXPECT_EQ(step.mass[0], first) << num_threads << " threads";
  }
}

// The ranges have one row, many rows and all rows; chunks begin in the middle of some ranges.
TEST_P(DecodeTest, ChosenRowsAreTheSameBitForBitAsAListOfThem) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 4, 3);
  const TestRows rows({.format = shape.format, .num_rows = {600, 600, 600, 600}});
  const std::vector<RowRange> ranges[4] = {
      {{3, 4}}, {{0, 64}, {80, 96}, {99, 100}, {101, 170}, {300, 470}}, {{5, 600}}, {}};
  std::vector<RowsView> chosen(rows.views().begin(), rows.views().end()), listed = chosen;
  std::vector<uint32_t> index[4];
  std::vector<Slot> slots[4];
  std::vector<ChosenRows::Start> chunks[4];
  std::vector<std::span<const uint32_t>> mass_elements(4);
  for (size_t h = 0; h < 3; ++h) {
    for (const RowRange& range : ranges[h]) {
      for (size_t r = range.begin; r < range.end; ++r) {
        index[h].push_back(static_cast<uint32_t>(r));
        slots[h].push_back(listed[h].slots[r]);
      }
    }
    listed[h].slots = slots[h];
    mass_elements[h] = index[h];
    const size_t num_rows = CutIntoChunks(ranges[h], &chunks[h]);
    ASSERT_EQ(num_rows, index[h].size());
    ASSERT_EQ(chunks[h].size(), (num_rows + kChunkRows - 1) / kChunkRows);
    chosen[h].chosen = {.ranges = ranges[h], .chunks = chunks[h], .num_rows = num_rows};
  }
  for (const bool wants_mass : {true, false}) {
    Step list(shape, listed, 3);
    list.mass_elements = mass_elements;
    if (!wants_mass) list.mass_of_head.clear();
    Attend(kernel_, &list);
    for (const int num_threads : {1, 2, 3, 5}) {
      Step step(shape, chosen, 3);
      step.mass_elements = mass_elements;
      if (!wants_mass) step.mass_of_head.clear();
      Attend(kernel_, &step, num_threads);
      ExpectSameBits(list, step, std::to_string(num_threads) + " threads");
    }
  }
}

// Queries of the same rows that chose different ranges must not be folded together.
TEST_P(DecodeTest, QueriesThatChoseOtherRowsAreNotFoldedTogether) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 1);
  const TestRows rows({.format = shape.format, .num_rows = {300}});
  const std::vector<RowRange> ranges[2] = {{{0, 100}}, {{200, 300}}};
  std::vector<ChosenRows::Start> chunks[2];
  std::vector<RowsView> views[2];
  for (size_t i = 0; i < 2; ++i) {
    views[i].assign(rows.views().begin(), rows.views().end());
    views[i][0].chosen = {.ranges = ranges[i], .chunks = {}, .num_rows = 100};
    CutIntoChunks(ranges[i], &chunks[i]);
    views[i][0].chosen.chunks = chunks[i];
  }
  Step first(shape, views[0], 1), second(shape, views[1], 2), alone(shape, views[1], 2);
  Step* const both[] = {&first, &second};
  Attend(kernel_, both, 1);
  Attend(kernel_, &alone);
  ExpectSameBits(alone, second, "the second");
}

// The queries share a target as the tokens of a verifying step do.
TEST_P(DecodeTest, QueriesThatShareATargetAreTheSameBitForBitForAnyNumberOfThreads) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  const TestRows longer({.format = shape.format, .num_rows = {513, 513}});
  const TestRows shorter({.format = shape.format, .num_rows = {512, 384}});
  std::vector<float> first;
  for (const int num_threads : {1, 2, 3, 5}) {
    Step a(shape, longer.views(), 1, Targets::kOne), b(shape, shorter.views(), 2, Targets::kOne);
    b.mass_of_head = a.mass_of_head;
    Step* const batch[] = {&a, &b};
    Attend(kernel_, batch, num_threads);
    EXPECT_NEAR(a.TotalMass(), 2 * shape.num_q_heads, 1e-4);
    if (first.empty()) first = a.mass[0];
    EXPECT_EQ(a.mass[0], first) << num_threads << " threads";
  }
}

// A NaN or infinity in any place of a chunk must show in the output and must not reach the scores.
TEST_P(DecodeTest, WhatIsNotFiniteFailsAndLeavesMassAlone) {
  AttentionShape shape = ShapeOf(RowType::kF16, 64, 2, 3);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNaN, kInf, -kInf}) {
    for (const size_t row : {0, 5, 127, 128, 140, 149}) {
      for (const bool in_value : {false, true}) {
        TestRows rows({.format = shape.format, .num_rows = {150, 150}});
        std::vector<float> values(64, bad);
        // The terms have both signs, so that the logit is NaN even where each term is infinite.
        kernel_.store_row(RowType::kF16, values.data(),
                          in_value ? rows.Value(1, row) : rows.Key(1, row), 64);
        // A cap must not turn an infinite logit into a number.
        shape.soft_cap = row % 2 == 0 ? 5 : 0;
        Step step(shape, rows.views(), 3);
        Attend(kernel_, &step, 2);
        EXPECT_TRUE(step.not_finite) << bad << " in row " << row;
        EXPECT_EQ(step.TotalMass(), 0) << bad << " in row " << row;
        // The other kv head's output must be finite, and this one's must not be.
        EXPECT_TRUE(std::ranges::all_of(step.Out().first(3 * 64),
                                        [](float x) { return std::isfinite(x); }));
        for (int g = 3; g < 6; ++g) EXPECT_FALSE(std::isfinite(step.Out()[g * 64])) << g;
      }
    }
  }
}

TEST_P(DecodeTest, AQueryThatIsNotFiniteDoesNotSpoilItsNeighboursInABatch) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, 1, 3);
  const TestRows rows({.format = shape.format, .num_rows = {150}});
  Step good(shape, rows.views(), 1), bad(shape, rows.views(), 2), alone(shape, rows.views(), 1);
  bad.q[1 + 70] = std::numeric_limits<float>::quiet_NaN();
  Step* const batch[] = {&bad, &good};
  Attend(kernel_, batch, 2);
  Attend(kernel_, &alone);
  EXPECT_TRUE(bad.not_finite);
  EXPECT_EQ(bad.TotalMass(), 0);
  EXPECT_FALSE(good.not_finite);
  ExpectSameBits(good, alone, "the query beside it");
}

INSTANTIATE_TEST_SUITE_P(Kernels, DecodeTest, ::testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb
