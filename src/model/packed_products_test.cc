// Products of weights in packed layouts (AMX tiles, interleaved rows) against ggml's plain product
// of the same weights, for every type and shape that a layout accepts.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "src/base/ggml_deleter.h"
#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

using Context = std::unique_ptr<ggml_context, GgmlDeleter>;
using Buffer = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;
using Backend = std::unique_ptr<ggml_backend, GgmlDeleter>;

struct Product {
  ggml_type type;
  int64_t columns, rows;  // of a plane of the weight
  int64_t planes;         // more than 1: one for each head, or the experts
  bool of_experts;
  int64_t tokens;
};

std::ostream& operator<<(std::ostream& out, const Product& p) {
  return out << ggml_type_name(p.type) << " [" << p.columns << ", " << p.rows << ", " << p.planes
             << (p.of_experts ? " experts" : "") << "] of " << p.tokens << " tokens";
}

std::vector<float> RandomNumbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = normal(random);
  return numbers;
}

std::vector<char> RandomWeight(const Product& p) {
  const int64_t num_rows = p.rows * p.planes;
  const std::vector<float> numbers = RandomNumbers(num_rows * p.columns, 1);
  std::vector<char> weight(ggml_row_size(p.type, p.columns) * static_cast<size_t>(num_rows));
  const std::vector<float> importance(static_cast<size_t>(p.columns), 1);
  ggml_quantize_chunk(p.type, numbers.data(), weight.data(), 0, num_rows, p.columns,
                      importance.data());
  return weight;
}

// Returns the product with the weight in this layout; nothing if the layout does not take it.
std::vector<float> Compute(const Product& p, const std::vector<char>& data,
                           ggml_backend_buffer_type_t layout) {
  const ggml_init_params params = {
      .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead_custom(16, false),
      .mem_buffer = nullptr,
      .no_alloc = true};
  const Context weights(ggml_init(params)), context(ggml_init(params));
  ggml_tensor* weight = ggml_new_tensor_3d(weights.get(), p.type, p.columns, p.rows, p.planes);
  const Buffer weight_buffer(ggml_backend_alloc_ctx_tensors_from_buft(weights.get(), layout));
  if (weight_buffer == nullptr) return {};
  ggml_tensor *input = nullptr, *ids = nullptr, *product = nullptr;
  if (p.of_experts) {
    input = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, p.columns, 1, p.tokens);
    ids = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 2, p.tokens);
    product = ggml_mul_mat_id(context.get(), weight, input, ids);
  } else {
    input = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, p.columns, p.tokens, p.planes);
    product = ggml_mul_mat(context.get(), weight, input);
  }
  if (!ggml_backend_dev_supports_op(GgmlCpuDevice(), product)) return {};
  ggml_backend_tensor_set(weight, data.data(), 0, data.size());
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 16, false);
  ggml_build_forward_expand(graph, product);
  const Buffer buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()));
  const std::vector<float> numbers = RandomNumbers(ggml_nelements(input), 2);
  ggml_backend_tensor_set(input, numbers.data(), 0, ggml_nbytes(input));
  if (ids != nullptr) {
    std::vector<int32_t> chosen;
    for (int64_t i = 0; i < 2 * p.tokens; ++i) {
      chosen.push_back(static_cast<int32_t>((i * 5 + i / 2) % p.planes));
      if (i % 2 == 1 && chosen[i] == chosen[i - 1]) chosen[i] = (chosen[i] + 1) % p.planes;
    }
    ggml_backend_tensor_set(ids, chosen.data(), 0, ggml_nbytes(ids));
  }
  const Backend backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), 2);
  EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
  std::vector<float> result(ggml_nelements(product));
  ggml_backend_tensor_get(product, result.data(), 0, ggml_nbytes(product));
  return result;
}

double RelativeError(const std::vector<float>& expected, const std::vector<float>& found) {
  double error = 0, power = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i]) || !std::isfinite(found[i])) {
      return std::numeric_limits<double>::infinity();
    }
    error += std::pow(double{expected[i]} - found[i], 2);
    power += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / power);
}

class PackedProductsTest : public testing::TestWithParam<ggml_backend_buffer_type_t> {};

// ggml's plain product rounds activations to 8 bits as the packed ones do, of some types in longer
// blocks. A wrong plane or row changes the product as a whole.
TEST_P(PackedProductsTest, AreThePlainOnes) {
  int num_accepted = 0;
  std::string types;
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const auto weight_type = static_cast<ggml_type>(type);
    if (!CanMultiply(weight_type) || ggml_blck_size(weight_type) == 0) continue;
    const int before = num_accepted;
    for (const bool of_experts : {false, true}) {
      for (const int64_t planes : {1, 3, 8}) {
        if (of_experts && planes < 3) continue;
        Product p = {weight_type, 256, 64, planes, of_experts, 1};
        if (PackedTypeOf({{GetParam()}}, p.type, p.columns, p.rows) == nullptr) continue;
        const std::vector<char> weight = RandomWeight(p);
        for (const int64_t tokens : {1, 2, 5, 33}) {
          p.tokens = tokens;
          const std::vector<float> found = Compute(p, weight, GetParam());
          if (found.empty()) continue;
          ++num_accepted;
          const std::vector<float> expected = Compute(p, weight, ggml_backend_cpu_buffer_type());
          ASSERT_EQ(found.size(), expected.size()) << p;
          EXPECT_LE(RelativeError(expected, found), 2e-2) << p;
        }
      }
    }
    if (num_accepted > before) types += std::string(" ") + ggml_type_name(weight_type);
  }
  EXPECT_GT(num_accepted, 0);
  std::cout << ggml_backend_buft_name(GetParam()) << ": " << num_accepted << " products of" << types
            << "\n";
}

// The name of the layout, in letters and digits.
std::string LayoutName(const testing::TestParamInfo<ggml_backend_buffer_type_t>& info) {
  std::string name = ggml_backend_buft_name(info.param);
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackedProductsTest, testing::ValuesIn(PackedBufferTypes()),
                         LayoutName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PackedProductsTest);

// Names the instruction sets whose kernels the suite could not run on this processor.
TEST(InstructionSets, ThatThisProcessorLacksAreNamed) {
  std::string missing;
  const auto name = [&](const char* set, int has) {
    if (has == 0) missing += std::string(" ") + set;
  };
  name("AMX", ggml_cpu_has_amx_int8());
  name("AVX-512", ggml_cpu_has_avx512());
  name("AVX-512-VNNI", ggml_cpu_has_avx512_vnni());
  name("AVX-VNNI", ggml_cpu_has_avx_vnni());
  name("AVX2", ggml_cpu_has_avx2());
  if (!missing.empty()) GTEST_SKIP() << "not run here:" << missing;
}

}  // namespace
}  // namespace ebb
