#include "src/step/device/row_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "src/base/ggml_deleter.h"
#include "src/base/page_units.h"
#include "src/step/device/own_nodes_for_test.h"

namespace ebb {
namespace {

constexpr float kBound = 2e-5f;

struct Case {
  int head_dim = 64, kv_heads = 2, group = 3, num_rows = 512;
  enum { kByRow, kInOrder, kBySlot } way = kByRow;
  bool slots_by_head = true;  // kBySlot only: each head has its own slots
  RowAttention::Mass mass = RowAttention::Mass::kNone;
  bool adds_host = false;
  enum { kAllSeen, kOneMask, kMaskByHead } mask = kAllSeen;
  std::vector<int> counts = {300, 300};
  unsigned seed = 1;
  bool has_sinks = false;
  float soft_cap = 0;
};

// Inputs has rows by kv head and index, and the place of each; `order` permutes the places.
class Inputs {
 public:
  Inputs(const Case& c, unsigned order) : case_(c) {
    std::mt19937 random(c.seed);
    std::normal_distribution<float> normal;
    const size_t of_row = c.head_dim, num = size_t(c.kv_heads) * c.num_rows;
    q.resize(size_t(c.kv_heads) * c.group * of_row);
    for (float& x : q) x = normal(random);
    keys.resize(num * of_row);
    values.resize(num * of_row);
    for (auto* side : {&keys, &values}) {
      for (ggml_fp16_t& x : *side) x = ggml_fp32_to_fp16(normal(random));
    }
    mask.resize(c.mask == Case::kOneMask ? c.num_rows : num, 0.0f);
    for (float& x : mask) x = random() % 3 == 0 ? -60000.0f : 0.0f;
    if (c.mask == Case::kAllSeen) std::ranges::fill(mask, 0.0f);
    // The last head has no rows on the host.
    for (int i = 0; i < c.kv_heads * c.group * (c.head_dim + 1); ++i)
      host.push_back(normal(random));
    host.back() = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < c.kv_heads * c.group; ++i) sinks.push_back(4 * normal(random));
    const int num_pages = c.kv_heads * c.num_rows / kRowsPerPage;
    std::vector<int> places(num_pages);
    std::iota(places.begin(), places.end(), 0);
    std::mt19937 shuffle(order);
    std::ranges::shuffle(places, shuffle);
    // A page has all keys, then all values. Memory that no list names is NaN, so that a stray read
    // fails the test.
    rows.assign(size_t(2) * num_pages * kRowsPerPage * of_row, ggml_fp32_to_fp16(NAN));
    for (const int place : places) pages.push_back(2 * place);
    for (int head = 0; head < c.kv_heads; ++head) {
      std::vector<int> slots(c.num_rows);
      std::iota(slots.begin(), slots.end(), 0);
      if (c.way != Case::kInOrder && (head == 0 || c.slots_by_head)) {
        std::ranges::shuffle(slots, shuffle);
      } else if (c.way == Case::kBySlot) {
        slots = slots_of_heads.front();
      }
      slots_of_heads.push_back(slots);
      for (int row = 0; row < c.num_rows; ++row) {
        const int page = places[(head * c.num_rows + slots[row]) / kRowsPerPage];
        const int number = 2 * page * kRowsPerPage + slots[row] % kRowsPerPage;
        numbers.push_back(number);
        if (row >= c.counts[head]) continue;
        const size_t from = (size_t(head) * c.num_rows + row) * of_row;
        std::copy_n(keys.begin() + from, of_row, rows.begin() + number * of_row);
        std::copy_n(values.begin() + from, of_row, rows.begin() + (number + kRowsPerPage) * of_row);
      }
    }
  }

  [[nodiscard]] std::vector<int32_t> List() const {
    std::vector<int32_t> list;
    if (case_.way != Case::kByRow) return pages;
    for (int row = 0; row < case_.num_rows; ++row) {
      for (int head = 0; head < case_.kv_heads; ++head) {
        list.push_back(numbers[size_t(head) * case_.num_rows + row]);
      }
    }
    return list;
  }

  std::vector<float> q, mask, host, sinks;
  std::vector<ggml_fp16_t> keys, values, rows;
  std::vector<int32_t> numbers;  // [kv heads, num_rows]
  std::vector<int32_t> pages;    // [kv heads, pages]
  std::vector<std::vector<int>> slots_of_heads;

 private:
  const Case& case_;
};

constexpr float kScale = 0.1f;

RowAttention AttentionOf(const Case& c) {
  RowAttention attention;
  attention.head_dim = c.head_dim;
  attention.kv_heads = c.kv_heads;
  attention.group = c.group;
  attention.num_rows = c.num_rows;
  attention.num_pages = c.way == Case::kByRow ? 0 : c.num_rows / kRowsPerPage;
  attention.has_slots = c.way == Case::kBySlot;
  attention.slot_stride = c.slots_by_head ? c.num_rows : 0;
  attention.adds_host = c.adds_host;
  attention.mass = c.mass;
  attention.scale = kScale;
  attention.soft_cap = c.soft_cap;
  attention.has_sinks = c.has_sinks;
  return attention;
}

MergeOutcome Compute(const NodeRunner& runner, const Case& c, const Inputs& inputs) {
  RowAttention attention = AttentionOf(c);
  static_cast<DeviceOp&>(attention) = runner.attention;
  std::unique_ptr<ggml_context, GgmlDeleter> context(
      ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  const auto tensor = [&](ggml_type type, int64_t columns, int64_t rows, int64_t planes = 1) {
    return ggml_new_tensor_4d(context.get(), type, columns, rows, 1, planes);
  };
  const std::vector<int32_t> list = inputs.List();
  RowAttentionInputs tensors = {
      .q = tensor(GGML_TYPE_F32, c.head_dim, c.kv_heads * c.group),
      .rows =
          tensor(GGML_TYPE_F16, c.head_dim, static_cast<int64_t>(inputs.rows.size()) / c.head_dim),
      .list = tensor(GGML_TYPE_I32, static_cast<int64_t>(list.size()), 1),
      .counts = tensor(GGML_TYPE_I32, c.kv_heads, 1)};
  if (c.mask != Case::kAllSeen) {
    tensors.mask = tensor(GGML_TYPE_F16, c.num_rows, 1, c.mask == Case::kOneMask ? 1 : c.kv_heads);
  }
  std::vector<int32_t> slots;
  if (c.way == Case::kBySlot) {
    for (int head = 0; head < (c.slots_by_head ? c.kv_heads : 1); ++head) {
      const std::vector<int>& of_head = inputs.slots_of_heads[head];
      slots.insert(slots.end(), of_head.begin(), of_head.end());
    }
    tensors.slots = tensor(GGML_TYPE_I32, static_cast<int64_t>(slots.size()), 1);
  }
  if (c.adds_host) {
    tensors.host = tensor(GGML_TYPE_F32, static_cast<int64_t>(inputs.host.size()), 1);
  }
  if (c.has_sinks) {
    tensors.sinks = tensor(GGML_TYPE_F32, static_cast<int64_t>(inputs.sinks.size()), 1);
  }
  const RowAttentionNodes nodes =
      AddRowAttention(context.get(), &attention, tensors, nullptr, nullptr);
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, nodes.merge);
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
      ggml_backend_alloc_ctx_tensors(context.get(), runner.backend.get()));
  const auto set = [](ggml_tensor* to, const auto& from) {
    ggml_backend_tensor_set(to, from.data(), 0, ggml_nbytes(to));
  };
  set(tensors.q, inputs.q);
  set(tensors.rows, inputs.rows);
  set(tensors.list, list);
  set(tensors.counts, c.counts);
  if (tensors.mask != nullptr) {
    std::vector<ggml_fp16_t> mask(inputs.mask.size());
    ggml_fp32_to_fp16_row(inputs.mask.data(), mask.data(), static_cast<int64_t>(mask.size()));
    set(tensors.mask, mask);
  }
  if (tensors.host != nullptr) set(tensors.host, inputs.host);
  if (tensors.sinks != nullptr) set(tensors.sinks, inputs.sinks);
  if (tensors.slots != nullptr) set(tensors.slots, slots);
  EXPECT_TRUE(ggml_backend_supports_op(runner.backend.get(), nodes.fold));
  EXPECT_EQ(ggml_backend_graph_compute(runner.backend.get(), graph), GGML_STATUS_SUCCESS);
  return OutcomeOf(attention, nodes.merge);
}

// Returns the result by the definition of attention, in double.
MergeOutcome Expected(const Case& c, const Inputs& inputs) {
  MergeOutcome expected;
  const RowAttention attention = AttentionOf(c);
  expected.mass.resize(size_t(attention.MassArrays()) * c.num_rows);
  for (int head = 0; head < c.kv_heads * c.group; ++head) {
    const int kv_head = head / c.group;
    const auto row_of = [&](const std::vector<ggml_fp16_t>& side, int row) {
      std::vector<float> numbers(c.head_dim);
      ggml_fp16_to_fp32_row(side.data() + (size_t(kv_head) * c.num_rows + row) * c.head_dim,
                            numbers.data(), c.head_dim);
      return numbers;
    };
    const auto is_seen = [&](int row) {
      return inputs.mask[(c.mask == Case::kOneMask ? 0 : kv_head * c.num_rows) + row] >= 0;
    };
    std::vector<double> weights(c.num_rows, 0.0), out(c.head_dim, 0.0);
    double sum = c.has_sinks ? std::exp(double{inputs.sinks[head]}) : 0;
    for (int row = 0; row < c.counts[kv_head]; ++row) {
      if (!is_seen(row)) continue;
      const std::vector<float> key = row_of(inputs.keys, row);
      double dot = 0;
      for (int d = 0; d < c.head_dim; ++d) {
        dot += double{inputs.q[size_t(head) * c.head_dim + d]} * key[d];
      }
      double logit = dot * kScale;
      if (c.soft_cap != 0) logit = c.soft_cap * std::tanh(logit / c.soft_cap);
      sum += weights[row] = std::exp(logit);
    }
    const size_t size = c.head_dim, num_q = size_t(c.kv_heads) * c.group;
    if (c.adds_host) {
      const double of_host = std::exp2(inputs.host[num_q * size + head]);
      sum += of_host;
      for (size_t d = 0; d < size; ++d) out[d] = of_host / sum * inputs.host[head * size + d];
    }
    for (int row = 0; row < c.counts[kv_head]; ++row) {
      const std::vector<float> value = row_of(inputs.values, row);
      for (int d = 0; d < c.head_dim; ++d) out[d] += weights[row] / sum * value[d];
      const int array =
          expected.mass.empty() ? 0 : head * attention.MassArrays() / attention.q_heads();
      if (!expected.mass.empty()) {
        expected.mass[size_t(array) * c.num_rows + row] += static_cast<float>(weights[row] / sum);
      }
    }
    for (const double x : out) expected.out.push_back(static_cast<float>(x));
    expected.log_sums.push_back(static_cast<float>(std::log2(sum)));
  }
  return expected;
}

std::vector<Case> Cases() {
  using Mass = RowAttention::Mass;
  std::vector<Case> cases;
  for (const int head_dim : {16, 32, 64, 80, 96, 128, 256}) {
    for (const int group : {1, 2, 4, 7, 8, 16}) {
      Case c = {.head_dim = head_dim, .group = group, .mass = Mass::kPerKvHead};
      cases.push_back(c);
    }
  }
  for (const Mass mass : {Mass::kNone, Mass::kPerKvHead}) {
    cases.push_back({.head_dim = 128, .group = 4, .mass = mass, .adds_host = true});
  }
  for (const auto way : {Case::kByRow, Case::kInOrder, Case::kBySlot}) {
    for (const auto mask : {Case::kAllSeen, Case::kOneMask, Case::kMaskByHead}) {
      for (const Mass mass :
           {Mass::kNone, Mass::kPerLayer, Mass::kPerKvHead, Mass::kPerQueryHead}) {
        Case c = {.head_dim = 128,
                  .kv_heads = 3,
                  .group = 4,
                  .num_rows = 768,
                  .mass = mass,
                  .counts = {700, 1, 65}};
        c.mask = mask;
        c.way = way;
        c.slots_by_head = mass != Mass::kNone;
        // Searches a seed with which a list of one row has its row visible.
        for (; mask != Case::kAllSeen && c.seed < 50; ++c.seed) {
          const Inputs inputs(c, 1);
          if (inputs.mask[mask == Case::kOneMask ? 0 : c.num_rows] >= 0) break;
        }
        cases.push_back(c);
      }
    }
  }
  for (const bool adds_host : {false, true}) {
    for (const float soft_cap : {0.0f, 1.5f}) {
      cases.push_back({.mass = Mass::kPerQueryHead,
                       .adds_host = adds_host,
                       .has_sinks = true,
                       .soft_cap = soft_cap});
    }
  }
  cases.push_back({.mass = Mass::kPerKvHead, .soft_cap = 1.5f});
  // These sizes give several splits, each of several tiles.
  cases.push_back({.head_dim = 128,
                   .kv_heads = 8,
                   .group = 4,
                   .num_rows = 12800,
                   .mass = Mass::kPerKvHead,
                   .counts = {12700, 12700, 1, 12800, 6400, 200, 201, 203}});
  return cases;
}

std::string Name(const NodeRunner& runner, const Case& c) {
  return runner.name + ", head size " + std::to_string(c.head_dim) + ", group " +
         std::to_string(c.group) + ", way " + std::to_string(c.way) +
         (c.adds_host ? ", with the host's" : "") + (c.has_sinks ? ", with sinks" : "") + ", cap " +
         std::to_string(c.soft_cap) + ", mask " + std::to_string(c.mask) + ", mass " +
         std::to_string(static_cast<int>(c.mass));
}

bool Takes(const NodeRunner& runner, const Case& c) {
  return runner.attention.launch == nullptr || (!c.has_sinks && c.soft_cap == 0);
}

TEST(RowAttentionTest, IsAttentionWithItsMass) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const Case& c : Cases()) {
      if (!Takes(runner, c)) continue;
      SCOPED_TRACE(Name(runner, c));
      const Inputs inputs(c, 1);
      const MergeOutcome expected = Expected(c, inputs), actual = Compute(runner, c, inputs);
      ExpectNear(expected, actual, kBound);
    }
  }
}

TEST(RowAttentionTest, PlacesOfRowsChangeNoBit) {
  for (const NodeRunner& runner : NodeRunners()) {
    for (const Case& c : Cases()) {
      if (!Takes(runner, c)) continue;
      SCOPED_TRACE(Name(runner, c));
      ExpectSameBits(Compute(runner, c, Inputs(c, 1)), Compute(runner, c, Inputs(c, 2)));
    }
  }
}

TEST(RowAttentionTest, WhatIsNoNumberIsNotHidden) {
  for (const NodeRunner& runner : NodeRunners()) {
    Case c;
    c.adds_host = true;
    const size_t of_head = size_t(c.group) * c.head_dim;
    Inputs key(c, 1), query(c, 1), host(c, 1);
    key.rows[size_t(key.numbers[5]) * c.head_dim] = ggml_fp32_to_fp16(NAN);
    query.q[3] = NAN;
    host.host[3] = NAN;
    for (const Inputs* inputs : {&key, &query, &host}) {
      const MergeOutcome outcome = Compute(runner, c, *inputs);
      const auto is_number = [](float x) { return std::isfinite(x); };
      EXPECT_FALSE(std::all_of(outcome.out.begin(), outcome.out.begin() + of_head, is_number));
      EXPECT_TRUE(std::all_of(outcome.out.begin() + of_head, outcome.out.end(), is_number));
    }
  }
}

}  // namespace
}  // namespace ebb
