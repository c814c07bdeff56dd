// Chooses among ggml's memory layouts for matrices that this CPU multiplies: the plain layout of
// the file, and packed ones (AMX tiles, interleaved rows), which ggml's kernels read faster.
#ifndef EBB_MODEL_LOADED_PRODUCT_LAYOUT_H_
#define EBB_MODEL_LOADED_PRODUCT_LAYOUT_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

[[nodiscard]] ggml_backend_dev_t GgmlCpuDevice();

// Returns whether ggml's CPU backend multiplies matrices of this type.
[[nodiscard]] bool CanMultiply(ggml_type type);

// Returns the packed layouts that this CPU supports, in libllama's order of preference.
[[nodiscard]] std::vector<ggml_backend_buffer_type_t> PackedBufferTypes();

// Returns the first layout of `packed` that can hold a matrix of this type and shape; null: none
// can, and the plain layout must be used.
[[nodiscard]] ggml_backend_buffer_type_t PackedTypeOf(
    std::span<const ggml_backend_buffer_type_t> packed, ggml_type type, int64_t columns,
    int64_t rows);

// Returns whether a column of a product with this weight has the same bits in products of 1 to 64
// columns. Returns false for weights on a device. Which kernels ggml uses depends on the processor,
// so this multiplies random numbers, once in a process for each type, layout and kind of shape;
// that takes about a millisecond. Thread-safe.
[[nodiscard]] bool HasSameBitsInBatches(const ggml_tensor& weight);

// Asks the system for huge pages in a buffer that every step reads entirely.
void AdviseHugePages(ggml_backend_buffer_t buffer);

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_PRODUCT_LAYOUT_H_
