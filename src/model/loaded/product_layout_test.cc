#include "src/model/loaded/product_layout.h"

#include <ggml-cpu.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
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
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q6_K, GGML_TYPE_Q5_K, GGML_TYPE_Q5_1,
        GGML_TYPE_Q5_0, GGML_TYPE_Q4_K, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0, GGML_TYPE_IQ4_XS,
        GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q3_K, GGML_TYPE_Q2_K}) {
    for (const auto& [columns, rows] :
         {std::pair(256, 8), std::pair(1536, 8960), std::pair(8960, 67), std::pair(8960, 48)}) {
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

class PackedProductTest : public ::testing::TestWithParam<ggml_type> {
 protected:
  static constexpr int64_t kColumns = 512, kRows = 48, kExperts = 3, kTokens = 11, kUsed = 2;
  static constexpr size_t kMatrix = kColumns * kRows;

  void SetUp() override {
    InitLlamaRuntime();
    layout_ = PackedTypeOf(PackedBufferTypes(), GetParam(), kColumns, kRows);
    if (layout_ == nullptr) GTEST_SKIP() << "no packed layout on this CPU";
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(kExperts * kMatrix);
    for (float& number : numbers) number = normal(random);
    quantized_.resize(ggml_row_size(GetParam(), kColumns) * kRows * kExperts);
    ggml_quantize_chunk(GetParam(), numbers.data(), quantized_.data(), 0, kExperts * kRows,
                        kColumns, nullptr);
    weights_.resize(numbers.size());
    ggml_get_type_traits(GetParam())
        ->to_float(quantized_.data(), weights_.data(), static_cast<int64_t>(weights_.size()));
    input_.resize(kColumns * kTokens);
    for (float& number : input_) number = normal(random);
  }

  // Allocates the tensors of `inputs` and of `product`, and computes it on two threads.
  std::vector<float> Compute(ggml_context* context, ggml_tensor* product,
                             const std::function<void()>& set_inputs) {
    ggml_cgraph* graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, product);
    const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type()));
    set_inputs();
    const std::unique_ptr<ggml_backend, GgmlDeleter> backend(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backend.get(), 2);
    EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
    std::vector<float> values(static_cast<size_t>(ggml_nelements(product)));
    ggml_backend_tensor_get(product, values.data(), 0, ggml_nbytes(product));
    return values;
  }

  // The sum of squared errors of products of `expert` and `token`, and of the exact products.
  void AddErrors(std::span<const float> products, int64_t expert, int64_t token) {
    for (int64_t row = 0; row < kRows; ++row) {
      const float* weight =
          weights_.data() + expert * static_cast<int64_t>(kMatrix) + row * kColumns;
      const double exact =
          std::inner_product(weight, weight + kColumns, input_.data() + token * kColumns, 0.0,
                             std::plus<>(), [](float a, float b) { return double{a} * double{b}; });
      errors_ += std::pow(products[static_cast<size_t>(row)] - exact, 2);
      squares_ += std::pow(exact, 2);
    }
  }

  static std::unique_ptr<ggml_context, GgmlDeleter> NewContext() {
    return std::unique_ptr<ggml_context, GgmlDeleter>(
        ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                   .mem_buffer = nullptr,
                   .no_alloc = true}));
  }

  ggml_backend_buffer_type_t layout_ = nullptr;
  std::vector<char> quantized_;
  std::vector<float> weights_, input_;
  double errors_ = 0, squares_ = 0;
};

// Activations have 8 bits in these kernels, which costs about 2e-5 of the squares.
constexpr double kErrorOf8Bits = 1e-4;

TEST_P(PackedProductTest, MultipliesWhatTheBlocksHold) {
  const auto weight_context = NewContext(), context = NewContext();
  ggml_tensor* weight = ggml_new_tensor_2d(weight_context.get(), GetParam(), kColumns, kRows);
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(weight_context.get(), layout_));
  ggml_backend_tensor_set(weight, quantized_.data(), 0, ggml_nbytes(weight));
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kColumns, kTokens);
  const std::vector<float> products =
      Compute(context.get(), ggml_mul_mat(context.get(), weight, input),
              [&] { ggml_backend_tensor_set(input, input_.data(), 0, ggml_nbytes(input)); });
  for (int64_t token = 0; token < kTokens; ++token) {
    AddErrors(std::span(products).subspan(static_cast<size_t>(token * kRows), kRows), 0, token);
  }
  EXPECT_LT(errors_, kErrorOf8Bits * squares_);
}

// Each token's experts: some take several tokens, and one takes none.
TEST_P(PackedProductTest, MultipliesByTheExpertsOfEachToken) {
  if (std::string_view(ggml_backend_buft_name(layout_)) == "AMX") {
    GTEST_SKIP() << "ggml's AMX layout holds no experts";
  }
  const auto weight_context = NewContext(), context = NewContext();
  ggml_tensor* experts =
      ggml_new_tensor_3d(weight_context.get(), GetParam(), kColumns, kRows, kExperts);
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(weight_context.get(), layout_));
  ggml_backend_tensor_set(experts, quantized_.data(), 0, ggml_nbytes(experts));
  ggml_tensor* input = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, kColumns, 1, kTokens);
  ggml_tensor* ids = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, kUsed, kTokens);
  std::vector<int32_t> chosen;
  for (int token = 0; token < kTokens; ++token) {
    chosen.push_back(token < 9 ? 0 : 2);
    chosen.push_back(token < 9 ? 2 : 0);
  }
  const std::vector<float> products =
      Compute(context.get(), ggml_mul_mat_id(context.get(), experts, input, ids), [&] {
        ggml_backend_tensor_set(input, input_.data(), 0, ggml_nbytes(input));
        ggml_backend_tensor_set(ids, chosen.data(), 0, ggml_nbytes(ids));
      });
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t i = 0; i < kUsed; ++i) {
      const int64_t at = token * kUsed + i;
      AddErrors(std::span(products).subspan(static_cast<size_t>(at * kRows), kRows),
                chosen[static_cast<size_t>(at)], token);
    }
  }
  EXPECT_LT(errors_, kErrorOf8Bits * squares_);
}

INSTANTIATE_TEST_SUITE_P(Types, PackedProductTest,
                         ::testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                           GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL,
                                           GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_Q4_K,
                                           GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_Q2_K),
                         [](const auto& info) { return ggml_type_name(info.param); });

TEST_F(SameBitsTest, AWeightWithoutMemoryHasNot) {
  Weight weight = MakeWeight(GGML_TYPE_F32, 64, 64, false);
  weight.tensor->buffer = nullptr;
  EXPECT_FALSE(HasSameBitsInBatches(*weight.tensor));
}

}  // namespace
}  // namespace ebb
