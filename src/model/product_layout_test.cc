#include "src/model/product_layout.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/ggml_deleter.h"
#include "src/base/llama_runtime.h"

namespace ebb {
namespace {

struct Weight {
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer;
  ggml_tensor* tensor = nullptr;
};

// In the layout that a model's weight of this shape gets, or in the plain one.
Weight MakeWeight(ggml_type type, int64_t columns, int64_t rows, bool is_packed) {
  Weight weight;
  weight.context.reset(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  weight.tensor = ggml_new_tensor_2d(weight.context.get(), type, columns, rows);
  ggml_backend_buffer_type_t layout =
      is_packed ? PackedTypeOf(PackedBufferTypes(), type, columns, rows) : nullptr;
  if (layout == nullptr) layout = ggml_backend_cpu_buffer_type();
  weight.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(weight.context.get(), layout));
  return weight;
}

class SameBitsTest : public ::testing::Test {
 protected:
  void SetUp() override { InitLlamaRuntime(); }
};

#if defined(EBB_GGML_IS_PATCHED) && defined(__x86_64__)
TEST_F(SameBitsTest, QuantizedTypesAndF32HaveThem) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q6_K, GGML_TYPE_Q5_K,
                               GGML_TYPE_Q5_0, GGML_TYPE_Q4_K, GGML_TYPE_Q4_0, GGML_TYPE_IQ4_XS,
                               GGML_TYPE_IQ4_NL, GGML_TYPE_Q3_K, GGML_TYPE_Q2_K}) {
    for (const auto& [columns, rows] :
         {std::pair(256, 8), std::pair(1536, 8960), std::pair(8960, 67)}) {
      for (const bool is_packed : {false, true}) {
        const Weight weight = MakeWeight(type, columns, rows, is_packed);
        EXPECT_TRUE(HasSameBitsInBatches(*weight.tensor))
            << ggml_type_name(type) << " " << rows << " x " << columns
            << (is_packed ? " packed" : "");
      }
    }
  }
}

// One column of 16 bits is multiplied by another kernel than several.
TEST_F(SameBitsTest, F16HasNot) {
  const Weight weight = MakeWeight(GGML_TYPE_F16, 1536, 96, false);
  EXPECT_FALSE(HasSameBitsInBatches(*weight.tensor));
  EXPECT_FALSE(HasSameBitsInBatches(*weight.tensor)) << "the second time";
}
#endif

TEST_F(SameBitsTest, AWeightWithoutMemoryHasNot) {
  Weight weight = MakeWeight(GGML_TYPE_F32, 64, 64, false);
  weight.tensor->buffer = nullptr;
  EXPECT_FALSE(HasSameBitsInBatches(*weight.tensor));
}

}  // namespace
}  // namespace ebb
