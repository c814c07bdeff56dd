#include "src/model/product_layout.h"

#include <ggml-cpu.h>
#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "src/base/ggml_deleter.h"

namespace ebb {
namespace {

// Whether the layout multiplies several planes, which a step with one token in each plane needs.
bool MultipliesPlanes([[maybe_unused]] ggml_backend_buffer_type_t type) {
#ifdef EBB_GGML_IS_PATCHED
  return true;
#else
  return std::string_view(ggml_backend_buft_name(type)) != "AMX";
#endif
}

}  // namespace

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
    // libllama asks this way: by a product with a weight in an empty buffer of that type.
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
