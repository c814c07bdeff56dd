#include "src/step/device/ggml_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "src/attention/compressed.h"
#include "src/base/ggml_deleter.h"
#include "src/base/page_units.h"
#include "src/rows/compressed_pages.h"
#include "tests/support/device/sim_backend.h"

namespace ebb::ggml_rows_test {
namespace {

constexpr CompressedType kTypes[] = {CompressedType::kInt8, CompressedType::kInt4,
                                     CompressedType::kInt3, CompressedType::kInt8Naive};

std::unique_ptr<BackendDevice> DeviceOf(const char* name, int head_dim) {
  auto device = BackendDevice::Create({.kind = DeviceKind::kBackend, .name = name},
                                      head_dim * sizeof(uint16_t));
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return std::move(*device);
}

TEST(GgmlRowsTest, BackendsReadThemAsTheCpuDoes) {
  for (const char* name : {"ggml-cpu", "ggml-sim"}) {
    for (const int head_dim : {32, 64, 96, 128, 256, 576}) {
      const auto device = DeviceOf(name, head_dim);
      for (const CompressedType type : kTypes) {
        for (const bool has_values : {true, false}) {
          const auto reads = ReadsGgmlRecords(device.get(), {.type = type,
                                                             .head_dim = head_dim,
                                                             .has_values = has_values,
                                                             .in_ggml_blocks = true});
          ASSERT_TRUE(reads.ok()) << reads.status().ToString();
          EXPECT_TRUE(*reads) << name << ' ' << head_dim << ' ' << CompressedTypeName(type)
                              << (has_values ? "" : " without values");
        }
      }
    }
  }
}

// Records lie in several pages in any order; lists are padded with the spare page of zeros.
TEST(GgmlRowsTest, RowsAreThoseThatListsName) {
  constexpr int kHeadDim = 64, kHeads = 2, kPages = 4, kRows = 128, kFull = 5;
  for (const bool shares_slots : {false, true}) {
    for (const CompressedType type : kTypes) {
      const CompressedFormat format = {.type = type, .head_dim = kHeadDim, .in_ggml_blocks = true};
      const size_t page_rows = CompressedPageBytesOnDevice(format) / (kHeadDim * 2);
      std::mt19937 random(11);
      std::normal_distribution<float> normal;
      // The buffer has a spare page of zeros first, then pages of the two heads alternately.
      std::vector<ggml_fp16_t> buffer((1 + 2 * (kPages - 1) + 1) * page_rows * kHeadDim);
      std::vector<float> centres(kHeads * kHeadDim);
      for (float& x : centres) x = 5 * normal(random);
      std::vector<int32_t> pages, slots;
      std::vector<std::vector<float>> expected[kHeads];
      std::vector<int32_t> shuffled((kPages - 1) * kRowsPerPage);
      std::iota(shuffled.begin(), shuffled.end(), 0);
      for (int head = 0; head < kHeads; ++head) {
        if (head == 0 || !shares_slots) std::ranges::shuffle(shuffled, random);
        for (int page = 0; page + 1 < kPages; ++page) {
          pages.push_back(static_cast<int32_t>((1 + 2 * page + head) * page_rows));
        }
        pages.push_back(0);
        const float* const centre = centres.data() + head * kHeadDim;
        const int count = shares_slots ? 90 : 90 + 7 * head;
        for (int row = 0; row < kRows; ++row) {
          std::vector<float> both(2 * kHeadDim), key(kHeadDim), value(kHeadDim);
          const int32_t slot = row < count ? shuffled[row] : (kPages - 1) * kRowsPerPage;
          if (head == 0 || !shares_slots) slots.push_back(slot);
          if (row >= count) {
            if (format.IsCentred()) std::copy_n(centre, kHeadDim, both.begin());
            expected[head].push_back(both);
            continue;
          }
          for (float& x : key) x = normal(random);
          for (float& x : value) x = normal(random);
          const int32_t first = pages[head * kPages + slot / kRowsPerPage];
          auto* const record =
              reinterpret_cast<std::byte*>(buffer.data() + size_t(first) * kHeadDim) +
              slot % kRowsPerPage * format.RowStride();
          const float* const of = format.IsCentred() ? centre : nullptr;
          CompressRow(format, {.centre = of}, key.data(), value.data(), record);
          DecompressRow(format, of, record, both.data(), both.data() + kHeadDim);
          expected[head].push_back(both);
        }
      }
      const std::unique_ptr<ggml_backend, GgmlDeleter> backend(ggml_backend_cpu_init());
      const std::unique_ptr<ggml_context, GgmlDeleter> context(ggml_init(
          {.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead_custom(64, false),
           .mem_buffer = nullptr,
           .no_alloc = true}));
      ggml_context* const ctx = context.get();
      const auto input = [&](ggml_type of, int64_t columns, int64_t rows) {
        ggml_tensor* tensor = ggml_new_tensor_2d(ctx, of, columns, rows);
        ggml_set_input(tensor);
        return tensor;
      };
      const GgmlRowInputs inputs = {
          .format = format,
          .kv_heads = kHeads,
          .num_pages = kPages,
          .num_rows = kRows,
          .slot_stride = shares_slots ? 0 : kRows,
          .rows = input(GGML_TYPE_F16, kHeadDim, static_cast<int64_t>(buffer.size()) / kHeadDim),
          .pages = input(GGML_TYPE_I32, kPages * kHeads, 1),
          .slots = input(GGML_TYPE_I32, static_cast<int64_t>(slots.size()), 1),
          .centres = input(GGML_TYPE_F32, kHeadDim, kHeads),
          .rotation = input(GGML_TYPE_F32, kHeadDim, kHeadDim)};
      ggml_tensor* full_keys = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, kHeadDim, kFull, 1, kHeads);
      ggml_tensor* full_values = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, kHeadDim, kFull, 1, kHeads);
      const GatheredRows all =
          AppendGgmlRows(ctx, {.keys = full_keys, .values = full_values}, inputs);
      EXPECT_EQ(all.keys->ne[1], kFull + kRows);
      EXPECT_EQ(all.keys->ne[3], kHeads);
      ggml_cgraph* const graph = ggml_new_graph_custom(ctx, 64, false);
      ggml_build_forward_expand(graph, all.keys);
      ggml_build_forward_expand(graph, all.values);
      const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> memory(
          ggml_backend_alloc_ctx_tensors(ctx, backend.get()));
      const auto set = [](ggml_tensor* to, const auto& from) {
        ggml_backend_tensor_set(to, from.data(), 0, ggml_nbytes(to));
      };
      const std::vector<ggml_fp16_t> ones(kHeadDim * kFull * kHeads, ggml_fp32_to_fp16(1));
      const std::vector<ggml_fp16_t> twos(ones.size(), ggml_fp32_to_fp16(2));
      set(inputs.rows, buffer);
      set(inputs.pages, pages);
      set(inputs.slots, slots);
      set(inputs.centres, centres);
      set(inputs.rotation, RotationMatrix(kHeadDim));
      set(full_keys, ones);
      set(full_values, twos);
      ASSERT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
      for (const bool is_value : {false, true}) {
        std::vector<ggml_fp16_t> found(kHeads * (kFull + kRows) * kHeadDim);
        ggml_backend_tensor_get(is_value ? all.values : all.keys, found.data(), 0,
                                found.size() * sizeof(found[0]));
        for (size_t i = 0; i < found.size(); ++i) {
          const size_t head = i / ((kFull + kRows) * kHeadDim);
          const size_t row = i / kHeadDim % (kFull + kRows), at = i % kHeadDim;
          const float right = row < kFull ? (is_value ? 2.0f : 1.0f)
                                          : expected[head][row - kFull][is_value * kHeadDim + at];
          ASSERT_NEAR(ggml_fp16_to_fp32(found[i]), right, 0.01f + std::abs(right) / 500)
              << CompressedTypeName(type) << ", head " << head << ", row " << row;
        }
      }
    }
  }
}

TEST(GgmlRowsTest, ABackendWithoutAnOperationDoesNotReadThem) {
  const auto device = DeviceOf("ggml-sim", 64);
  const CompressedFormat format = {
      .type = CompressedType::kInt4, .head_dim = 64, .in_ggml_blocks = true};
  for (const ggml_op lacks : {GGML_OP_GET_ROWS, GGML_OP_CONCAT, GGML_OP_MUL_MAT}) {
    SetSimBackendLacks(lacks);
    const auto reads = ReadsGgmlRecords(device.get(), format);
    SetSimBackendLacks(GGML_OP_NONE);
    ASSERT_TRUE(reads.ok()) << reads.status().ToString();
    EXPECT_FALSE(*reads) << ggml_op_name(lacks);
  }
  const auto reads = ReadsGgmlRecords(device.get(), format);
  EXPECT_TRUE(reads.ok() && *reads);
}

TEST(GgmlRowsTest, TheMatrixRotatesAsTheRowsDo) {
  for (const int head_dim : {32, 96, 128}) {
    const std::vector<float> matrix = RotationMatrix(head_dim);
    std::vector<float> x(head_dim);
    for (int i = 0; i < head_dim; ++i) x[i] = std::sin(static_cast<float>(3 * i + 1));
    std::vector<float> rotated = x;
    Rotate(rotated.data(), head_dim);
    for (int i = 0; i < head_dim; ++i) {
      double sum = 0;
      for (int j = 0; j < head_dim; ++j) sum += double{matrix[size_t(i) * head_dim + j]} * x[j];
      EXPECT_NEAR(sum, rotated[i], 1e-5) << head_dim << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace ebb::ggml_rows_test
