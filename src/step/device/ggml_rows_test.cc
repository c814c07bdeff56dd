#include "src/step/device/ggml_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/attention/compressed.h"
#include "src/device/sim_backend.h"

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
