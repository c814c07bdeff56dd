// The memory layouts that ggml has for matrices that are multiplied on this CPU: the plain one of
// the file, and packed ones (AMX tiles, interleaved rows) that its kernels read faster.
#ifndef EBB_MODEL_PRODUCT_LAYOUT_H_
#define EBB_MODEL_PRODUCT_LAYOUT_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

[[nodiscard]] ggml_backend_dev_t GgmlCpuDevice();

// Whether ggml's CPU backend multiplies matrices of this type.
[[nodiscard]] bool CanMultiply(ggml_type type);

// The packed layouts that this CPU supports, in the order in which libllama prefers them.
[[nodiscard]] std::vector<ggml_backend_buffer_type_t> PackedBufferTypes();

// Returns the first of `packed` that holds a matrix of this type and shape; null if none does, and
// the plain layout is used.
[[nodiscard]] ggml_backend_buffer_type_t PackedTypeOf(
    std::span<const ggml_backend_buffer_type_t> packed, ggml_type type, int64_t columns,
    int64_t rows);

// Whether a column of a product with this weight has the same bits in products of 1 to 64 columns.
// False for weights on a device. Found by products of random numbers, once for each type, layout
// and kind of shape of the process: which kernels ggml takes depends on the processor. Thread-safe;
// takes about a millisecond.
[[nodiscard]] bool HasSameBitsInBatches(const ggml_tensor& weight);

// Asks the system for huge pages in a buffer whose every byte is read at each step.
void AdviseHugePages(ggml_backend_buffer_t buffer);

}  // namespace ebb

#endif  // EBB_MODEL_PRODUCT_LAYOUT_H_
