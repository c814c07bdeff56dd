#include "src/step/device/compressed_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "src/attention/compressed.h"
#include "src/base/ggml_deleter.h"
#include "src/base/page_units.h"
#include "src/step/device/own_nodes_for_test.h"

// Test programs are compiled in one piece, and row_attention_test.cc has the same names.
namespace ebb::compressed_rows_test {
namespace {

constexpr float kBound = 5e-5f;

struct Case {
  CompressedType type = CompressedType::kInt4;
  int head_dim = 64, kv_heads = 2, group = 3;
  int num_rows = 256, num_compressed = 512;  // lengths of the lists
  std::vector<int> counts = {100, 30}, compressed_counts = {300, 7};
  bool has_values = true;
  bool slots_by_head = true;
  bool adds_host = false;
  float soft_cap = 0;
  RowAttention::Mass mass = RowAttention::Mass::kNone;

  [[nodiscard]] CompressedFormat Format() const {
    return {.type = type, .head_dim = head_dim, .has_values = has_values};
  }
};

// Inputs places the full rows of a kv head side by side, in pages, and rows of T2 at random in
// pages after them.
struct Inputs {
  Inputs(const Case& c, unsigned order) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const CompressedFormat format = c.Format();
    const size_t size = c.head_dim, heads = c.kv_heads;
    for (size_t i = 0; i < heads * c.group * size; ++i) q.push_back(normal(random));
    for (size_t i = 0; i < heads * c.group * (size + 1); ++i) host.push_back(normal(random));
    host.back() = -std::numeric_limits<float>::infinity();
    // A page has all keys, then all values. Memory that no list names is NaN, so that a stray read
    // fails the test.
    const size_t full_rows = heads * c.num_rows * 2;
    const size_t page_bytes = (kRowsPerPage * format.RowStride() + 2 * size - 1) / (2 * size);
    const size_t pages_of_head = c.num_compressed / kRowsPerPage;
    rows.assign((full_rows + heads * pages_of_head * page_bytes) * size, ggml_fp32_to_fp16(NAN));
    std::mt19937 shuffle(order);
    std::vector<int> places(heads * pages_of_head);
    std::iota(places.begin(), places.end(), 0);
    std::ranges::shuffle(places, shuffle);
    for (const int place : places) {
      pages.push_back(static_cast<int32_t>(full_rows + place * page_bytes));
    }
    std::vector<int32_t> slots_of_head(c.num_compressed);
    std::iota(slots_of_head.begin(), slots_of_head.end(), 0);
    std::ranges::shuffle(slots_of_head, shuffle);
    list.resize(heads * c.num_rows);
    for (size_t head = 0; head < heads; ++head) {
      for (size_t i = 0; i < size; ++i) {
        centres.push_back(format.IsCentred() ? 3 * normal(random) : 0.0f);
      }
      const float* const centre = centres.data() + head * size;
      for (int row = 0; row < c.num_rows; ++row) {
        const size_t page = (head * c.num_rows + row) / kRowsPerPage;
        const size_t number = 2 * page * kRowsPerPage + row % kRowsPerPage;
        list[row * heads + head] = static_cast<int32_t>(number);
        for (size_t i = 0; i < size; ++i) {
          rows[number * size + i] = ggml_fp32_to_fp16(normal(random));
          rows[(number + kRowsPerPage) * size + i] = ggml_fp32_to_fp16(normal(random));
        }
      }
      if (c.slots_by_head || head == 0) {
        if (head > 0) std::ranges::shuffle(slots_of_head, shuffle);
        slots.insert(slots.end(), slots_of_head.begin(), slots_of_head.end());
      }
      const CompressedFormat& records = format;
      std::vector<float> key(size), value(size);
      for (int row = 0; row < c.compressed_counts[head]; ++row) {
        for (size_t i = 0; i < size; ++i) {
          key[i] = centre[i] + normal(random);
          value[i] = normal(random);
        }
        const int32_t slot = slots_of_head[row];
        const int32_t page = pages[head * pages_of_head + slot / kRowsPerPage];
        auto* const record = reinterpret_cast<std::byte*>(rows.data() + size_t(page) * size) +
                             slot % kRowsPerPage * records.RowStride();
        CompressRow(records, {.centre = format.IsCentred() ? centre : nullptr}, key.data(),
                    value.data(), record);
        ReferenceDecompressRow(records, format.IsCentred() ? centre : nullptr, record, key.data(),
                               value.data());
        keys.push_back(key);
        values.push_back(value);
      }
    }
  }

  std::vector<float> q, host, centres;
  std::vector<ggml_fp16_t> rows;
  std::vector<int32_t> list, pages, slots;
  std::vector<std::vector<float>> keys, values;  // of T2, decompressed, head by head
};

constexpr float kScale = 0.1f;

template <typename T>
void Fill(RowFold* fold, const Case& c, const T& num_rows) {
  fold->head_dim = c.head_dim;
  fold->kv_heads = c.kv_heads;
  fold->group = c.group;
  fold->num_rows = num_rows;
  fold->scale = kScale;
  fold->soft_cap = c.soft_cap;
  fold->mass = c.mass;
}

// Graph holds a graph's tensors, and sets their contents once they have memory.
class Graph {
 public:
  explicit Graph(const NodeRunner& runner) : runner_(runner) {}

  template <typename T>
  ggml_tensor* Input(ggml_type type, int64_t columns, const std::vector<T>& contents) {
    ggml_tensor* tensor = ggml_new_tensor_2d(context.get(), type, columns,
                                             static_cast<int64_t>(contents.size()) / columns);
    inputs_.push_back({tensor, contents.data()});
    return tensor;
  }
  void Compute(ggml_tensor* result) {
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, result);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context.get(), runner_.backend.get()));
    for (const auto& [tensor, contents] : inputs_) {
      ggml_backend_tensor_set(tensor, contents, 0, ggml_nbytes(tensor));
    }
    ASSERT_TRUE(ggml_backend_supports_op(runner_.backend.get(), result));
    ASSERT_EQ(ggml_backend_graph_compute(runner_.backend.get(), graph), GGML_STATUS_SUCCESS);
  }

  const std::unique_ptr<ggml_context, GgmlDeleter> context{
      ggml_init({.mem_size = 24 * ggml_tensor_overhead() + ggml_graph_overhead(),
                 .mem_buffer = nullptr,
                 .no_alloc = true})};

 private:
  const NodeRunner& runner_;
  std::vector<std::pair<ggml_tensor*, const void*>> inputs_;
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer_;
};

CompressedInputs InputsOfT2(Graph* graph, const Case& c, const Inputs& inputs) {
  return {.rows = graph->Input(GGML_TYPE_F16, c.head_dim, inputs.rows),
          .pages = graph->Input(GGML_TYPE_I32, inputs.pages.size(), inputs.pages),
          .slots = graph->Input(GGML_TYPE_I32, inputs.slots.size(), inputs.slots),
          .counts = graph->Input(GGML_TYPE_I32, c.kv_heads, c.compressed_counts),
          .centres = graph->Input(GGML_TYPE_F32, c.head_dim, inputs.centres)};
}

MergeOutcome Compute(const NodeRunner& runner, const Case& c, const Inputs& inputs) {
  Graph graph(runner);
  RowAttention attention;
  Fill(&attention, c, c.num_rows);
  attention.adds_host = c.adds_host;
  CompressedFold fold;
  Fill(&fold, c, c.num_compressed);
  fold.num_pages = c.num_compressed / kRowsPerPage;
  fold.slot_stride = c.slots_by_head ? c.num_compressed : 0;
  fold.format = RecordFormatOf(c.Format());
  attention.compressed = &fold;
  static_cast<DeviceOp&>(attention) = runner.attention;
  static_cast<DeviceOp&>(fold) = runner.fold;
  const CompressedInputs of_t2 = InputsOfT2(&graph, c, inputs);
  RowAttentionInputs of_others = {
      .q = graph.Input(GGML_TYPE_F32, c.head_dim, inputs.q),
      .rows = of_t2.rows,
      .list = graph.Input(GGML_TYPE_I32, inputs.list.size(), inputs.list),
      .counts = graph.Input(GGML_TYPE_I32, c.kv_heads, c.counts),
      .compressed_counts = of_t2.counts};
  if (c.adds_host) {
    of_others.host = graph.Input(GGML_TYPE_F32, inputs.host.size(), inputs.host);
  }
  of_others.compressed_fold = AddCompressedFold(graph.context.get(), &fold, of_others.q, of_t2);
  const RowAttentionNodes nodes =
      AddRowAttention(graph.context.get(), &attention, of_others, nullptr, nullptr);
  graph.Compute(nodes.merge);
  return OutcomeOf(attention, nodes.merge);
}

// Returns the result by the definition of attention, in double, over rows decompressed in double.
MergeOutcome Expected(const Case& c, const Inputs& inputs) {
  MergeOutcome expected;
  RowAttention attention;
  Fill(&attention, c, c.num_rows);
  const size_t size = c.head_dim, num_q = size_t(c.kv_heads) * c.group;
  const size_t rows_of_mass = c.num_rows + c.num_compressed;
  expected.mass.resize(attention.MassArrays() * rows_of_mass);
  for (size_t head = 0; head < num_q; ++head) {
    const size_t kv_head = head / c.group;
    const float* const q = inputs.q.data() + head * size;
    double sum = 0;
    std::vector<double> out(size, 0.0), weights(rows_of_mass, 0.0);
    const auto add = [&](size_t place, const float* key, const float* value) {
      double logit = 0;
      for (size_t d = 0; d < size; ++d) logit += double{q[d]} * key[d];
      logit *= kScale;
      if (c.soft_cap != 0) logit = c.soft_cap * std::tanh(logit / c.soft_cap);
      sum += weights[place] = std::exp(logit);
      for (size_t d = 0; d < size; ++d) out[d] += weights[place] * value[d];
    };
    std::vector<float> key(size), value(size);
    for (int row = 0; row < c.counts[kv_head]; ++row) {
      const size_t number = inputs.list[row * c.kv_heads + kv_head];
      ggml_fp16_to_fp32_row(inputs.rows.data() + number * size, key.data(), size);
      ggml_fp16_to_fp32_row(inputs.rows.data() + (number + kRowsPerPage) * size, value.data(),
                            size);
      add(row, key.data(), value.data());
    }
    const size_t before =
        std::accumulate(c.compressed_counts.begin(), c.compressed_counts.begin() + kv_head, 0);
    for (int row = 0; row < c.compressed_counts[kv_head]; ++row) {
      add(c.num_rows + row, inputs.keys[before + row].data(), inputs.values[before + row].data());
    }
    if (c.adds_host) {
      const double of_host = std::exp2(inputs.host[num_q * size + head]);
      sum += of_host;
      for (size_t d = 0; d < size; ++d) out[d] += of_host * inputs.host[head * size + d];
    }
    for (const double x : out) expected.out.push_back(static_cast<float>(x / sum));
    expected.log_sums.push_back(static_cast<float>(std::log2(sum)));
    for (size_t row = 0; row < rows_of_mass && !expected.mass.empty(); ++row) {
      const size_t array = head * attention.MassArrays() / num_q;
      expected.mass[array * rows_of_mass + row] += static_cast<float>(weights[row] / sum);
    }
  }
  return expected;
}

constexpr CompressedType kTypes[] = {CompressedType::kInt8, CompressedType::kInt8Naive,
                                     CompressedType::kInt4, CompressedType::kInt3};

std::vector<Case> Cases() {
  using Mass = RowAttention::Mass;
  std::vector<Case> cases;
  for (const CompressedType type : kTypes) {
    for (const int head_dim : {16, 32, 48, 64, 80, 96, 112, 128, 192, 256}) {
      cases.push_back({.type = type, .head_dim = head_dim});
      cases.push_back({.type = type, .head_dim = head_dim, .has_values = false});
    }
    for (const int group : {1, 2, 4, 7, 8, 12}) {
      cases.push_back({.type = type, .group = group, .mass = Mass::kPerKvHead});
    }
    for (const Mass mass : {Mass::kPerLayer, Mass::kPerKvHead, Mass::kPerQueryHead}) {
      cases.push_back({.type = type, .head_dim = 128, .adds_host = true, .mass = mass});
    }
    cases.push_back({.type = type, .slots_by_head = false, .soft_cap = 1.5f});
    cases.push_back({.type = type, .counts = {1, 256}, .compressed_counts = {512, 0}});
    // These sizes give several splits, each of several tiles.
    cases.push_back({.type = type,
                     .head_dim = 128,
                     .kv_heads = 8,
                     .group = 4,
                     .num_compressed = 6400,
                     .counts = {1, 2, 3, 4, 5, 6, 7, 8},
                     .compressed_counts = {6400, 6399, 1, 0, 3200, 64, 65, 127},
                     .mass = Mass::kPerKvHead});
  }
  return cases;
}

std::string Name(const NodeRunner& runner, const Case& c) {
  return runner.name + ", " + std::string(CompressedTypeName(c.type)) + ", head size " +
         std::to_string(c.head_dim) + ", group " + std::to_string(c.group) +
         (c.has_values ? "" : ", without values") + (c.adds_host ? ", with the host's" : "") +
         ", mass " + std::to_string(static_cast<int>(c.mass));
}

TEST(CompressedRowsTest, FoldsRowsAsTheyAreDecompressed) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const Case& c : Cases()) {
      if (runner.fold.launch != nullptr && c.soft_cap != 0) continue;
      SCOPED_TRACE(Name(runner, c));
      const Inputs inputs(c, 1);
      const MergeOutcome expected = Expected(c, inputs), actual = Compute(runner, c, inputs);
      ExpectNear(expected, actual, kBound);
    }
  }
}

TEST(CompressedRowsTest, PlacesOfRowsChangeNoBit) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const CompressedType type : kTypes) {
      const Case c = {.type = type, .mass = RowAttention::Mass::kPerQueryHead};
      ExpectSameBits(Compute(runner, c, Inputs(c, 1)), Compute(runner, c, Inputs(c, 2)));
    }
  }
}

// Compressing a key that is not finite gives a NaN scale; the result must be NaN too.
TEST(CompressedRowsTest, WhatIsNoNumberIsNotHidden) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const CompressedType type : kTypes) {
      const Case c = {.type = type};
      Inputs inputs(c, 1);
      const CompressedFormat format = c.Format();
      std::vector<float> key(c.head_dim, NAN);
      auto* const record = reinterpret_cast<std::byte*>(
                               inputs.rows.data() +
                               size_t(inputs.pages[inputs.slots[5] / kRowsPerPage]) * c.head_dim) +
                           inputs.slots[5] % kRowsPerPage * format.RowStride();
      CompressRow(format, {}, key.data(), key.data(), record);
      const MergeOutcome outcome = Compute(runner, c, inputs);
      const auto is_number = [](float x) { return std::isfinite(x); };
      const auto of_head = outcome.out.begin() + std::ptrdiff_t{c.group} * c.head_dim;
      EXPECT_TRUE(std::none_of(outcome.out.begin(), of_head, is_number));
      EXPECT_TRUE(std::all_of(of_head, outcome.out.end(), is_number));
    }
  }
}

TEST(CompressedRowsTest, UnpacksRowsBehindTheOthers) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const Case& c : Cases()) {
      if (!c.has_values || c.kv_heads > 2) continue;
      SCOPED_TRACE(Name(runner, c));
      const Inputs inputs(c, 1);
      Graph graph(runner);
      UnpackRows unpack;
      static_cast<DeviceOp&>(unpack) = runner.unpack;
      unpack.kv_heads = c.kv_heads;
      unpack.num_rows = c.num_rows;
      unpack.num_compressed = c.num_compressed;
      unpack.num_compressed_pages = c.num_compressed / kRowsPerPage;
      unpack.slot_stride = c.slots_by_head ? c.num_compressed : 0;
      unpack.format = RecordFormatOf(c.Format());
      ggml_tensor* list = graph.Input(GGML_TYPE_I32, inputs.list.size(), inputs.list);
      ggml_tensor* all = AddUnpackRows(graph.context.get(), &unpack, list,
                                       InputsOfT2(&graph, c, inputs), nullptr, nullptr);
      graph.Compute(all);
      std::vector<ggml_fp16_t> halves(ggml_nelements(all));
      ggml_backend_tensor_get(all, halves.data(), 0, ggml_nbytes(all));
      const size_t size = c.head_dim, of_head = (c.num_rows + c.num_compressed) * size;
      const size_t of_side = c.kv_heads * of_head;
      size_t before = 0;
      for (int head = 0; head < c.kv_heads; ++head) {
        const ggml_fp16_t* const keys = halves.data() + head * of_head;
        const ggml_fp16_t* const values = keys + of_side;
        for (int row = 0; row < c.num_rows; ++row) {
          const size_t from = inputs.list[row * c.kv_heads + head] * size;
          EXPECT_TRUE(
              std::equal(keys + row * size, keys + (row + 1) * size, inputs.rows.begin() + from));
          EXPECT_TRUE(std::equal(values + row * size, values + (row + 1) * size,
                                 inputs.rows.begin() + from + kRowsPerPage * size));
        }
        for (int row = 0; row < c.num_compressed; ++row) {
          const size_t at = (c.num_rows + row) * size;
          const bool is_there = row < c.compressed_counts[head];
          for (size_t d = 0; d < size; ++d) {
            const float key = is_there ? inputs.keys[before + row][d] : 0.0f;
            const float value = is_there ? inputs.values[before + row][d] : 0.0f;
            ASSERT_NEAR(ggml_fp16_to_fp32(keys[at + d]), key, 1e-5f + std::abs(key) * 1e-3f);
            ASSERT_NEAR(ggml_fp16_to_fp32(values[at + d]), value, 1e-5f + std::abs(value) * 1e-3f);
          }
        }
        before += c.compressed_counts[head];
      }
    }
  }
}

// Rotates with one lane, as the processor does, and with several lanes, as a warp does.
TEST(CompressedRowsTest, LanesRotateTogether) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int head_dim : {16, 48, 64, 80, 128, 192, 256}) {
    std::vector<float> x(head_dim);
    for (float& element : x) element = normal(random);
    std::vector<float> expected = x, together = x, alone = x;
    ReferenceRotate(expected.data(), head_dim);
    RotateByLanes(alone.data(), head_dim, 0, 1, [] {});
    constexpr int kLanes = 4;
    std::barrier barrier(kLanes);
    {
      std::vector<std::jthread> lanes;
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes.emplace_back([&, lane] {
          RotateByLanes(together.data(), head_dim, lane, kLanes,
                        [&] { barrier.arrive_and_wait(); });
        });
      }
    }
    EXPECT_EQ(together, alone) << head_dim;
    for (int i = 0; i < head_dim; ++i) EXPECT_NEAR(alone[i], expected[i], 1e-5f) << head_dim;
  }
}

}  // namespace
}  // namespace ebb::compressed_rows_test
