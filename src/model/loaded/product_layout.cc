#include "src/model/loaded/product_layout.h"

#include <ggml-cpu.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <tuple>

#include "src/base/ggml_deleter.h"
#include "src/base/threads/mutex.h"

namespace ebb {
namespace {

// Returns whether the layout can multiply several planes, as a step with one token per plane needs.
bool MultipliesPlanes([[maybe_unused]] ggml_backend_buffer_type_t type) {
#ifdef EBB_GGML_IS_PATCHED
  return true;
#else
  return std::string_view(ggml_backend_buft_name(type)) != "AMX";
#endif
}

using ContextPtr = std::unique_ptr<ggml_context, GgmlDeleter>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;

std::vector<float> RandomNumbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random()) / 4294967296.0F - 0.5F;
  return numbers;
}

// Returns a matrix whose rows repeat two random ones, because quantizing to some types is slow.
std::vector<char> RandomMatrix(ggml_type type, int64_t columns, int64_t rows) {
  constexpr int64_t kDistinct = 2;
  const std::vector<float> numbers = RandomNumbers(kDistinct * columns, 1);
  const size_t row_bytes = ggml_row_size(type, columns);
  std::vector<char> distinct(kDistinct * row_bytes);
  const std::vector<float> importance(static_cast<size_t>(columns), 1);
  ggml_quantize_chunk(type, numbers.data(), distinct.data(), 0, kDistinct, columns,
                      importance.data());
  std::vector<char> matrix(static_cast<size_t>(rows) * row_bytes);
  for (size_t at = 0; at < matrix.size(); at += row_bytes) {
    std::memcpy(matrix.data() + at, distinct.data() + at / row_bytes % kDistinct * row_bytes,
                row_bytes);
  }
  return matrix;
}

constexpr int kMostColumns = 64;

// BatchProducts computes a product for each size in kBatches, and then one for each of kMostColumns
// columns alone.
struct BatchProducts {
  static constexpr std::array kBatches = {2, 3, 4, 5, 7, 8, 16, 17, 32, 33, kMostColumns};

  ContextPtr weight_context, context;
  BufferPtr weight_buffer, buffer;
  std::array<ggml_tensor*, kBatches.size()> together{};
  std::array<ggml_tensor*, kMostColumns> alone{};

  bool Compute(ggml_type type, ggml_backend_buffer_type_t layout, int64_t columns, int64_t rows) {
    constexpr size_t kNodes = kBatches.size() + kMostColumns;
    weight_context.reset(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    context.reset(ggml_init({.mem_size = (2 * kNodes + 4) * ggml_tensor_overhead() +
                                         ggml_graph_overhead_custom(2 * kNodes, false),
                             .mem_buffer = nullptr,
                             .no_alloc = true}));
    ggml_tensor* weight = ggml_new_tensor_2d(weight_context.get(), type, columns, rows);
    weight_buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(weight_context.get(), layout));
    if (weight_buffer == nullptr) return false;
    const std::vector<char> matrix = RandomMatrix(type, columns, rows);
    ggml_backend_tensor_set(weight, matrix.data(), 0, matrix.size());

    ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 2 * kNodes, false);
    ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, kMostColumns);
    const auto product = [&](int first, int count) {
      ggml_tensor* some = ggml_view_2d(context.get(), input, columns, count, input->nb[1],
                                       static_cast<size_t>(first) * input->nb[1]);
      ggml_tensor* result = ggml_mul_mat(context.get(), weight, some);
      ggml_build_forward_expand(graph, result);
      return result;
    };
    for (size_t i = 0; i < kBatches.size(); ++i) together[i] = product(0, kBatches[i]);
    for (int i = 0; i < kMostColumns; ++i) alone[static_cast<size_t>(i)] = product(i, 1);
    buffer.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()));
    const std::unique_ptr<ggml_backend, GgmlDeleter> backend(ggml_backend_cpu_init());
    if (buffer == nullptr || backend == nullptr) return false;
    const std::vector<float> numbers = RandomNumbers(columns * kMostColumns, 2);
    ggml_backend_tensor_set(input, numbers.data(), 0, ggml_nbytes(input));
    ggml_backend_cpu_set_n_threads(backend.get(), 1);
    return ggml_backend_graph_compute(backend.get(), graph) == GGML_STATUS_SUCCESS;
  }

  [[nodiscard]] bool AreSame() const {
    for (size_t i = 0; i < kBatches.size(); ++i) {
      for (size_t column = 0; column < static_cast<size_t>(kBatches[i]); ++column) {
        const char* of_batch =
            static_cast<const char*>(together[i]->data) + column * together[i]->nb[1];
        if (std::memcmp(of_batch, alone[column]->data, ggml_nbytes(alone[column])) != 0)
          return false;
      }
    }
    return true;
  }
};

// Returns a smaller size with the same remainder, which uses the same kernels: ggml chooses them by
// remainders of divisions by powers of two.
constexpr int64_t SmallerLike(int64_t size, int64_t divisor) {
  return size <= 2 * divisor ? size : divisor + size % divisor;
}

}  // namespace

bool HasSameBitsInBatches(const ggml_tensor& weight) {
  const ggml_backend_buffer_type_t own =
      weight.buffer == nullptr ? nullptr : ggml_backend_buffer_get_type(weight.buffer);
  if (own == nullptr) return false;
  const std::vector<ggml_backend_buffer_type_t> packed = PackedBufferTypes();
  const bool is_packed = std::ranges::find(packed, own) != packed.end();
  if (!is_packed && !ggml_backend_buft_is_host(own)) return false;
  const ggml_backend_buffer_type_t layout = is_packed ? own : ggml_backend_cpu_buffer_type();
  const int64_t columns = SmallerLike(weight.ne[0], 1024);
  const int64_t rows = SmallerLike(weight.ne[1], 32);

  static struct {
    Mutex mutex;
    std::map<std::tuple<ggml_type, ggml_backend_buffer_type_t, int64_t, int64_t>, bool> same
        EBB_GUARDED_BY(mutex);
  } known;
  const MutexLock lock(known.mutex);
  const auto [at, is_new] = known.same.try_emplace({weight.type, layout, columns, rows}, false);
  if (is_new) {
    BatchProducts products;
    at->second = products.Compute(weight.type, layout, columns, rows) && products.AreSame();
  }
  return at->second;
}

ggml_backend_dev_t GgmlCpuDevice() {
  return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

bool CanMultiply(ggml_type type) {
  if (type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) return true;
  return ggml_is_quantized(type) && ggml_get_type_traits(type)->to_float != nullptr &&
         ggml_get_type_traits_cpu(type)->vec_dot != nullptr;
}

std::vector<ggml_backend_buffer_type_t> PackedBufferTypes() {
  using GetExtraBufts = ggml_backend_buffer_type_t* (*)(ggml_backend_dev_t);
  const auto get = reinterpret_cast<GetExtraBufts>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(GgmlCpuDevice()), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> types;
  if (get == nullptr) return types;
  for (auto* type = get(GgmlCpuDevice()); type != nullptr && *type != nullptr; ++type) {
    if (MultipliesPlanes(*type)) types.push_back(*type);
  }
  return types;
}

ggml_backend_buffer_type_t PackedTypeOf(std::span<const ggml_backend_buffer_type_t> packed,
                                        ggml_type type, int64_t columns, int64_t rows) {
  for (ggml_backend_buffer_type_t buffer_type : packed) {
    // Asks as libllama does: with a product with a weight in an empty buffer of that type.
    const std::unique_ptr<ggml_context, GgmlDeleter> context(ggml_init(
        {.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
        ggml_backend_buft_alloc_buffer(buffer_type, 0));
    ggml_tensor* weight = ggml_new_tensor_2d(context.get(), type, columns, rows);
    ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, 512);
    ggml_tensor* product = ggml_mul_mat(context.get(), weight, input);
    weight->buffer = buffer.get();
    if (ggml_backend_dev_supports_op(GgmlCpuDevice(), product)) return buffer_type;
  }
  return nullptr;
}

void AdviseHugePages(ggml_backend_buffer_t buffer) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto base = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer));
  const uintptr_t begin = (base + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (base + ggml_backend_buffer_get_size(buffer)) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<std::byte*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace ebb
