// Rows of T2 in a device's memory, read by operations that ggml's backends have, where ebb's own
// nodes (compressed_rows.h) do not run. Records are rows of ggml's quantised types
// (src/attention/ggml_records.h). For each layer, one get_rows() gathers the pages of its kv heads,
// a second one dequantises their records in order of position, a product with a Hadamard matrix
// rotates keys and values back, keys get their centre, and concat() puts both behind full rows.
#ifndef EBB_STEP_DEVICE_GGML_ROWS_H_
#define EBB_STEP_DEVICE_GGML_ROWS_H_

#include <vector>

#include "ggml.h"
#include "src/attention/rows.h"
#include "src/device/backend_device.h"

namespace ebb {

// GgmlRowInputs names the rows of T2 of a layer.
struct GgmlRowInputs {
  CompressedFormat format;  // in ggml's blocks
  int kv_heads = 0;
  int num_pages = 0;  // of a kv head
  int num_rows = 0;   // of a kv head
  // The slots of a kv head begin this many elements behind the slots of the head before; 0: all
  // heads share them.
  int slot_stride = 0;
  ggml_tensor* rows = nullptr;      // F16 [head_dim, rows]: the device's buffer
  ggml_tensor* pages = nullptr;     // I32 [num_pages, kv_heads]: numbers of their first rows
  ggml_tensor* slots = nullptr;     // I32
  ggml_tensor* centres = nullptr;   // F32 [head_dim, kv_heads]
  ggml_tensor* rotation = nullptr;  // F32 [head_dim, head_dim], see RotationMatrix()
};

// GatheredRows has keys and values, F16. Both are the same tensor if rows have no values.
struct GatheredRows {
  ggml_tensor* keys = nullptr;
  ggml_tensor* values = nullptr;
};
// Puts rows of T2 behind `full`, [head_dim, rows, kv_heads, 1] or [head_dim, rows, 1, kv_heads].
[[nodiscard]] GatheredRows AppendGgmlRows(ggml_context* context, const GatheredRows& full,
                                          const GgmlRowInputs& inputs);

// Returns the bytes of their tensors: records, keys and values in F32 before and after their
// rotation, and in F16 before they are put behind the other rows. num_rows: of a kv head.
[[nodiscard]] size_t GgmlRowBytes(const CompressedFormat& format, size_t kv_heads, size_t num_rows);

// Returns the matrix that Rotate() multiplies by, which is its own transpose and inverse.
[[nodiscard]] std::vector<float> RotationMatrix(int head_dim);

// Computes AppendGgmlRows() of a few records on the device's backend. Returns whether the backend
// has the operations, its rows are those of DecompressRow() up to rounding, and records keep their
// bits on their way. Errors: OutOfMemory, and those of a device that was lost.
[[nodiscard]] Result<bool> ReadsGgmlRecords(BackendDevice* device, const CompressedFormat& format);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_GGML_ROWS_H_
