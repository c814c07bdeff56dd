// Tests decode attention over kv heads that have full-precision rows and compressed rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/compressed_for_test.h"
#include "src/attention/decode.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

struct Rows {
  AttentionShape shape;
  std::vector<size_t> full;        // [num_kv_heads]
  std::vector<size_t> compressed;  // [num_kv_heads]
  Layout layout = Layout::kScattered;
};

AttentionShape Shape(CompressedType type, int head_dim, int num_kv_heads, int heads_per_kv) {
  AttentionShape shape = ShapeOf(RowType::kF16, head_dim, num_kv_heads, heads_per_kv);
  shape.compressed = {.type = type, .head_dim = head_dim};
  return shape;
}

// CompressedStep is one token's attention. Every third element of the mass targets belongs to a
// compressed row, as long as there are any; the others belong to full rows.
struct CompressedStep {
  explicit CompressedStep(const Rows& of, uint32_t seed = 3)
      : shape(of.shape),
        full({.format = shape.format, .num_rows = of.full, .layout = of.layout}),
        compressed({.format = shape.compressed, .num_rows = of.compressed, .layout = of.layout}),
        views(full.views().begin(), full.views().end()) {
    const size_t floats = size_t(shape.num_q_heads) * shape.format.head_dim;
    q = RandomNormal(floats, seed);
    out.resize(floats);
    size_t elements = 0;
    for (int h = 0; h < shape.num_kv_heads; ++h) {
      full_elements.emplace_back();
      compressed_elements.emplace_back();
      for (uint32_t i = 0; i < of.full[h] + of.compressed[h]; ++i) {
        const bool full_left = full_elements[h].size() < of.full[h];
        const bool compressed_left = compressed_elements[h].size() < of.compressed[h];
        const bool is_full = full_left && (i % 3 != 1 || !compressed_left);
        (is_full ? full_elements : compressed_elements)[h].push_back(i);
      }
      elements = std::max(elements, of.full[h] + of.compressed[h]);
    }
    for (int h = 0; h < shape.num_kv_heads; ++h) {
      mass_elements.emplace_back(full_elements[h]);
      compressed_mass_elements.emplace_back(compressed_elements[h]);
    }
    mass.assign(shape.num_q_heads, std::vector<float>(elements, 0.0f));
    for (auto& array : mass) targets.push_back(array.data());
  }
  CompressedStep(const CompressedStep&) = delete;
  CompressedStep& operator=(const CompressedStep&) = delete;

  [[nodiscard]] DecodeQuery Query() {
    return {.rows = views,
            .mass_elements = mass_elements,
            .compressed = compressed.views(),
            .compressed_mass_elements = compressed_mass_elements,
            .q = q.data(),
            .out = out.data(),
            .mass = {.per_query_head = targets, .not_finite = &not_finite}};
  }

  AttentionShape shape;
  TestRows full;
  TestCompressed compressed;
  std::vector<RowsView> views;
  std::vector<std::vector<uint32_t>> full_elements, compressed_elements;
  std::vector<std::span<const uint32_t>> mass_elements, compressed_mass_elements;
  std::vector<float> q, out;
  std::vector<std::vector<float>> mass;
  std::vector<float*> targets;
  bool not_finite = false;
};

void AttendWith(DecodeAttention* attention, const DecodeQuery& query, int num_threads) {
  attention->Plan(std::span(&query, 1));
  for (int thread = num_threads; thread-- > 0;) attention->Fold(thread, num_threads);
  for (int thread = num_threads; thread-- > 0;) attention->Merge(thread, num_threads);
}

void Attend(const AttentionKernel& kernel, CompressedStep* step, int num_threads = 1) {
  DecodeAttention attention(kernel, step->shape);
  size_t max_rows = 0;
  for (int h = 0; h < step->shape.num_kv_heads; ++h) {
    max_rows =
        std::max(max_rows, step->full_elements[h].size() + step->compressed_elements[h].size());
  }
  attention.Reserve(1, max_rows, num_threads);
  AttendWith(&attention, step->Query(), num_threads);
}

// Returns the query as compressed rows see it: rotated, rounded, and rotated back.
std::vector<float> AsRounded(const CompressedFormat& format, const float* q) {
  std::vector<float> x(q, q + format.head_dim);
  if (IsRotated(format.type)) Rotate(x.data(), format.head_dim);
  RoundedQuery rounded;
  RoundQuery(format.type, x.data(), format.head_dim, &rounded);
  for (int i = 0; i < format.head_dim; ++i) x[i] = static_cast<float>(rounded.n[i]) * rounded.scale;
  if (IsRotated(format.type)) Rotate(x.data(), format.head_dim);
  return x;
}

// Softmax is the expected result: the softmax over all rows of a kv head, as stored, in double.
struct Softmax {
  std::vector<double> out;   // [num_q_heads, head_dim]
  std::vector<double> mass;  // [num_q_heads, elements]
};

Softmax ExpectedOf(CompressedStep* step) {
  const int dim = step->shape.format.head_dim;
  const int heads = step->shape.QueryHeadsPerKvHead();
  const size_t elements = step->mass[0].size();
  Softmax want = {.out = std::vector<double>(step->out.size()),
                  .mass = std::vector<double>(step->shape.num_q_heads * elements)};
  const AttentionKernel& reference = ReferenceAttention();
  for (int head = 0; head < step->shape.num_q_heads; ++head) {
    const int h = head / heads;
    const float* const exact = step->q.data() + size_t(head) * dim;
    const std::vector<float> rounded = AsRounded(step->shape.compressed, exact);
    std::vector<const float*> queries(elements, exact);
    std::vector<double> centre_dots(elements, 0.0);
    std::vector<std::vector<float>> keys(elements), values(elements);
    for (size_t i = 0; i < step->full_elements[h].size(); ++i) {
      const uint32_t at = step->full_elements[h][i];
      keys[at].resize(dim);
      values[at].resize(dim);
      reference.load_row(RowType::kF16, step->full.Key(h, i), keys[at].data(), dim);
      reference.load_row(RowType::kF16, step->full.Value(h, i), values[at].data(), dim);
    }
    for (size_t i = 0; i < step->compressed_elements[h].size(); ++i) {
      const uint32_t at = step->compressed_elements[h][i];
      queries[at] = rounded.data();
      keys[at].resize(dim);
      values[at].resize(dim);
      // Decompress without the centre, since the centre is multiplied with the query before
      // rounding.
      reference.decompress_row(step->shape.compressed, nullptr, step->compressed.Row(h, i),
                               keys[at].data(), values[at].data());
      const float* const centre = step->compressed.CentreOf(h);
      if (centre == nullptr) continue;
      for (int c = 0; c < dim && !step->shape.format.has_values; ++c) values[at][c] += centre[c];
      centre_dots[at] = std::inner_product(exact, exact + dim, centre, 0.0);
    }
    double sum = 0;
    double* const mass = want.mass.data() + head * elements;
    double* const out = want.out.data() + size_t(head) * dim;
    for (size_t e = 0; e < elements; ++e) {
      if (keys[e].empty()) continue;
      const double dot =
          std::inner_product(keys[e].begin(), keys[e].end(), queries[e], centre_dots[e]);
      const float cap = step->shape.soft_cap;
      const double logit = dot * step->shape.scale;
      mass[e] = std::exp(cap == 0 ? logit : cap * std::tanh(logit / cap));
      sum += mass[e];
      for (int i = 0; i < dim; ++i) out[i] += mass[e] * values[e][i];
    }
    for (size_t e = 0; e < elements; ++e) mass[e] /= sum;
    for (int i = 0; i < dim; ++i) out[i] /= sum;
  }
  return want;
}

class DecodeCompressedTest : public ::testing::TestWithParam<std::string> {
 protected:
  void ExpectSoftmax(const Rows& rows) {
    CompressedStep step(rows);
    Attend(kernel_, &step);
    const Softmax want = ExpectedOf(&step);
    const std::string what = std::string(CompressedTypeName(rows.shape.compressed.type)) + " dim " +
                             std::to_string(rows.shape.format.head_dim) + " rows " +
                             std::to_string(rows.full[0]) + " + " +
                             std::to_string(rows.compressed[0]);
    // The tolerance covers roundings of logits, which the centre makes larger, and weights of 16
    // bits (compressed_test.cc).
    const std::vector<float> want_out(want.out.begin(), want.out.end());
    ExpectNear(step.out, want_out, 2e-4f, what);
    for (int head = 0; head < rows.shape.num_q_heads; ++head) {
      const size_t elements = step.mass[head].size();
      const std::vector<float> mass(want.mass.begin() + head * elements,
                                    want.mass.begin() + (head + 1) * elements);
      const float largest = *std::ranges::max_element(mass);
      ExpectNear(step.mass[head], mass, 3e-5f * largest, what + " mass");
      EXPECT_NEAR(std::accumulate(step.mass[head].begin(), step.mass[head].end(), 0.0), 1, 1e-5)
          << what;
    }
    EXPECT_FALSE(step.not_finite);
  }

  const AttentionKernel& kernel_ = KernelByName(GetParam());
};

constexpr CompressedType kDecodedTypes[] = {CompressedType::kInt8, CompressedType::kInt4,
                                            CompressedType::kInt3, CompressedType::kInt2,
                                            CompressedType::kInt8Naive};

TEST_P(DecodeCompressedTest, IsTheSoftmaxOverTheRowsAsStoredForEveryHeadSize) {
  for (const CompressedType type : kDecodedTypes) {
    for (const int head_dim : {16, 64, 80, 96, 128, 256}) {
      if (!HoldsHeads(type, head_dim)) continue;
      ExpectSoftmax(
          {.shape = Shape(type, head_dim, 2, 3), .full = {150, 40}, .compressed = {90, 300}});
    }
  }
}

TEST_P(DecodeCompressedTest, IsTheSoftmaxWhereKeysAreValues) {
  for (const CompressedType type : kDecodedTypes) {
    for (const int head_dim : {48, 64, 80, 128, 576}) {
      if (!HoldsHeads(type, head_dim)) continue;
      for (const int heads : {3, 20}) {
        AttentionShape shape = Shape(type, head_dim, 1, heads);
        shape.format.has_values = shape.compressed.has_values = false;
        ExpectSoftmax({.shape = shape, .full = {150}, .compressed = {300}});
        ExpectSoftmax({.shape = shape, .full = {0}, .compressed = {70}});
      }
    }
  }
}

TEST_P(DecodeCompressedTest, IsTheSoftmaxUnderASoftCap) {
  for (const CompressedType type : kDecodedTypes) {
    for (const int head_dim : {64, 80}) {
      if (!HoldsHeads(type, head_dim)) continue;
      AttentionShape shape = Shape(type, head_dim, 2, 3);
      shape.soft_cap = 1.5f;
      ExpectSoftmax({.shape = shape, .full = {150, 40}, .compressed = {90, 300}});
    }
  }
}

TEST_P(DecodeCompressedTest, IsTheSoftmaxForEveryRatioOfHeads) {
  for (const int heads : {1, 2, 4, 5, 8}) {
    ExpectSoftmax({.shape = Shape(CompressedType::kInt8, 64, 2, heads),
                   .full = {70, 140},
                   .compressed = {65, 129}});
  }
}

// The mean of the stream's keys is several times their deviation, as in some models. Without a
// centre the 6 bits of int4's keys and the 8 bits of its queries would be spent on the mean.
TEST_P(DecodeCompressedTest, ALargeMeanOfKeysCostsNoPrecisionAroundACentre) {
  constexpr int kDim = 128, kRows = 200;
  const AttentionShape shape = Shape(CompressedType::kInt4, kDim, 1, 4);
  std::vector<float> mean = RandomNormal(kDim, 1), q = RandomNormal(4 * kDim, 2);
  for (float& x : mean) x *= 8;
  std::vector<float> numbers = RandomNormal(size_t{kRows} * 2 * kDim, 3);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % (2 * kDim) < kDim) numbers[i] += mean[i % kDim];
  }
  std::vector<double> want;
  for (int head = 0; head < 4; ++head) {
    std::vector<double> p;
    double sum = 0;
    const float* const of_head = q.data() + size_t(head) * kDim;
    for (size_t r = 0; r < kRows; ++r) {
      const float* const key = numbers.data() + r * 2 * kDim;
      // Omits the mean's part of the logits, which is the same for all rows, so that they stay in
      // the range of floats.
      double dot = 0;
      for (int i = 0; i < kDim; ++i) dot += of_head[i] * (double{key[i]} - mean[i]);
      sum += p.emplace_back(std::exp(dot * shape.scale));
    }
    for (int i = 0; i < kDim; ++i) {
      double out = 0;
      for (size_t r = 0; r < kRows; ++r) out += p[r] / sum * numbers[r * 2 * kDim + kDim + i];
      want.push_back(out);
    }
  }
  const auto error = [&](const float* centre) {
    std::vector<std::byte> page((kRows + kRowsPerPage - 1) / kRowsPerPage *
                                shape.compressed.PageBytes());
    std::vector<const std::byte*> pages;
    std::vector<Slot> slots;
    for (uint32_t r = 0; r < kRows; ++r) {
      slots.emplace_back(r);
      if (slots.back().row() == 0)
        pages.push_back(page.data() + r / kRowsPerPage * shape.compressed.PageBytes());
      const float* const key = numbers.data() + size_t{r} * 2 * kDim;
      CompressRow(shape.compressed, {.centre = centre}, key, key + kDim,
                  page.data() + r / kRowsPerPage * shape.compressed.PageBytes() +
                      r % kRowsPerPage * shape.compressed.RowStride());
    }
    const RowsView none;
    const CompressedRows rows = {.pages = pages.data(), .slots = slots, .key_centre = centre};
    std::vector<float> out(want.size());
    DecodeAttention attention(kernel_, shape);
    attention.Reserve(1, kRows, 1);
    AttendWith(&attention,
               {.rows = {&none, 1}, .compressed = {&rows, 1}, .q = q.data(), .out = out.data()}, 1);
    double sum = 0, all = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      sum += std::pow(out[i] - want[i], 2);
      all += std::pow(want[i], 2);
    }
    return std::sqrt(sum / all);
  };
  EXPECT_LT(error(mean.data()), 0.1);  // the error of 4-bit values
  EXPECT_GT(error(nullptr), 2 * error(mean.data()));
}

TEST_P(DecodeCompressedTest, AKvHeadMayLackEitherKindOfRows) {
  for (const CompressedType type : kDecodedTypes) {
    ExpectSoftmax(
        {.shape = Shape(type, 64, 3, 3), .full = {100, 0, 77}, .compressed = {0, 130, 1}});
    ExpectSoftmax({.shape = Shape(type, 64, 2, 3), .full = {0, 0}, .compressed = {200, 7}});
    ExpectSoftmax({.shape = Shape(type, 64, 2, 3), .full = {64, 65}, .compressed = {0, 0}});
  }
}

TEST_P(DecodeCompressedTest, IsTheSameBitForBitForAnyNumberOfThreads) {
  for (const CompressedType type : kDecodedTypes) {
    const Rows rows = {
        .shape = Shape(type, 64, 3, 3), .full = {900, 1, 129}, .compressed = {500, 1300, 0}};
    CompressedStep one(rows);
    Attend(kernel_, &one);
    for (const int num_threads : {2, 3, 5, 64}) {
      CompressedStep several(rows);
      Attend(kernel_, &several, num_threads);
      EXPECT_EQ(one.out, several.out) << num_threads << " threads";
      EXPECT_EQ(one.mass, several.mass) << num_threads << " threads";
    }
  }
}

// Several tokens of a step share the compressed rows, and with few heads also the passes over them.
TEST_P(DecodeCompressedTest, TokensOfASequenceAreTheSameBitForBitAsEachAlone) {
  constexpr size_t kTokens = 5;
  for (const int heads_per_kv : {1, 2, 3, 4, 7}) {
    const CompressedType type = kDecodedTypes[heads_per_kv % std::size(kDecodedTypes)];
    SCOPED_TRACE(heads_per_kv);
    CompressedStep step(
        {.shape = Shape(type, 64, 2, heads_per_kv), .full = {70, 3}, .compressed = {1100, 130}});
    std::vector<std::vector<float>> q, alone, together;
    std::vector<std::vector<std::vector<float>>> mass_alone, mass_together;
    for (size_t t = 0; t < kTokens; ++t) {
      q.push_back(RandomNormal(step.q.size(), static_cast<uint32_t>(10 + t)));
      step.q = q.back();
      for (auto& array : step.mass) std::ranges::fill(array, 0.0f);
      Attend(kernel_, &step);
      alone.push_back(step.out);
      mass_alone.push_back(step.mass);
    }
    mass_together.assign(kTokens, step.mass);
    together.assign(kTokens, std::vector<float>(step.out.size()));
    for (const int num_threads : {1, 3}) {
      std::vector<DecodeQuery> queries;
      std::vector<std::vector<float*>> targets(kTokens);
      for (size_t t = 0; t < kTokens; ++t) {
        for (auto& array : mass_together[t]) {
          std::ranges::fill(array, 0.0f);
          targets[t].push_back(array.data());
        }
        queries.push_back(step.Query());
        queries.back().q = q[t].data();
        queries.back().out = together[t].data();
        queries.back().mass.per_query_head = targets[t];
      }
      DecodeAttention attention(kernel_, step.shape);
      attention.Reserve(kTokens, 1200, num_threads);
      attention.Plan(queries);
      for (int thread = num_threads; thread-- > 0;) attention.Fold(thread, num_threads);
      for (int thread = num_threads; thread-- > 0;) attention.Merge(thread, num_threads);
      EXPECT_TRUE(std::ranges::all_of(together[0], [](float x) { return std::isfinite(x); }));
      EXPECT_EQ(together, alone) << num_threads << " threads";
      EXPECT_EQ(mass_together, mass_alone) << num_threads << " threads";
    }
  }
}

TEST_P(DecodeCompressedTest, ThreadsThatRunAtOnceAgree) {
  const Rows rows = {.shape = Shape(CompressedType::kInt8, 64, 2, 3),
                     .full = {300, 300},
                     .compressed = {500, 700}};
  CompressedStep one(rows), three(rows);
  Attend(kernel_, &one);
  DecodeAttention attention(kernel_, rows.shape);
  attention.Reserve(1, 1000, 3);
  const DecodeQuery query = three.Query();
  attention.Plan(std::span(&query, 1));
  RunOnThreads(
      3, [&](int thread) { attention.Fold(thread, 3); },
      [&](int thread) { attention.Merge(thread, 3); });
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(one.mass, three.mass);
}

TEST_P(DecodeCompressedTest, IsTheSameBitForBitWhereverRowsLie) {
  for (const CompressedType type : kDecodedTypes) {
    const int dim = HoldsHeads(type, 80) ? 80 : 192;
    Rows rows = {.shape = Shape(type, dim, 2, 3), .full = {200, 10}, .compressed = {300, 170}};
    CompressedStep scattered(rows);
    rows.layout = Layout::kDense;
    CompressedStep dense(rows);
    Attend(kernel_, &scattered);
    Attend(kernel_, &dense, 2);
    EXPECT_EQ(dense.out, scattered.out);
    EXPECT_EQ(dense.mass, scattered.mass);
  }
}

TEST_P(DecodeCompressedTest, WithoutCompressedRowsNothingChanges) {
  Rows rows = {
      .shape = Shape(CompressedType::kInt8, 64, 2, 3), .full = {300, 70}, .compressed = {0, 0}};
  CompressedStep with(rows), without(rows);
  without.shape.compressed = {};
  Attend(kernel_, &with, 2);
  DecodeAttention attention(kernel_, without.shape);
  attention.Reserve(1, 300, 2);
  DecodeQuery query = without.Query();
  query.compressed = {};
  query.compressed_mass_elements = {};
  query.mass_elements = {};
  AttendWith(&attention, query, 2);
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.mass, without.mass);
}

// Plans follow each other as the layers of a step do: first similar ones, then different ones.
TEST_P(DecodeCompressedTest, APlanOfOtherRowsLeavesNoTrace) {
  const AttentionShape shape = Shape(CompressedType::kInt4, 64, 1, 3);
  const Rows sequence[] = {{.shape = shape, .full = {300}, .compressed = {200}},
                           {.shape = shape, .full = {300}, .compressed = {200}},
                           {.shape = shape, .full = {300}, .compressed = {120}},
                           {.shape = shape, .full = {220}, .compressed = {200}},
                           {.shape = shape, .full = {500}, .compressed = {0}}};
  DecodeAttention attention(kernel_, shape);
  attention.Reserve(1, 500, 1);
  uint32_t seed = 0;
  for (const Rows& rows : sequence) {
    CompressedStep step(rows, ++seed), alone(rows, seed);
    AttendWith(&attention, step.Query(), 1);
    Attend(kernel_, &alone);
    EXPECT_EQ(step.out, alone.out) << seed;
    EXPECT_EQ(step.mass, alone.mass) << seed;
  }
}

TEST_P(DecodeCompressedTest, OneThreadFoldsTheNewestFullRowsAndNoneWhereThereAreNone) {
  const Rows rows = {
      .shape = Shape(CompressedType::kInt8, 64, 2, 3), .full = {300, 0}, .compressed = {500, 90}};
  CompressedStep step(rows);
  DecodeAttention attention(kernel_, rows.shape);
  attention.Reserve(1, 800, 3);
  const DecodeQuery query = step.Query();
  attention.Plan(std::span(&query, 1));
  int first = 0, second = 0;
  for (int thread = 0; thread < 3; ++thread) {
    first += attention.FoldsLastChunk(0, 0, thread, 3) ? 1 : 0;
    second += attention.FoldsLastChunk(0, 1, thread, 3) ? 1 : 0;
  }
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

TEST_P(DecodeCompressedTest, WhatIsNotFiniteFailsAndLeavesMassAlone) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const CompressedType type : kDecodedTypes) {
    for (const bool in_value : {false, true}) {
      CompressedStep step(
          {.shape = Shape(type, 64, 2, 3), .full = {70, 70}, .compressed = {70, 70}});
      std::vector<float> key = RandomNormal(64, 1), value = key;
      (in_value ? value : key)[63] = kNaN;
      CompressRow(step.shape.compressed, {.centre = step.compressed.CentreOf(1)}, key.data(),
                  value.data(), step.compressed.Row(1, 66));
      Attend(kernel_, &step, 2);
      EXPECT_TRUE(step.not_finite);
      for (const auto& mass : step.mass) {
        EXPECT_EQ(std::accumulate(mass.begin(), mass.end(), 0.0), 0);
      }
      // The other kv head's output must be finite, and this one's must not be.
      for (int i = 0; i < 6 * 64; ++i) {
        EXPECT_EQ(std::isfinite(step.out[i]), i < 3 * 64) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, DecodeCompressedTest, ::testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb
