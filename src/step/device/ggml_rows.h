// Reads rows of T2 in a device's memory by operations that all of ggml's backends have, for
// backends that cannot run ebb's own nodes (compressed_rows.h). Records are rows of ggml's
// quantised types (src/attention/ggml_records.h). For each layer, one get_rows() gathers the pages
// of its kv heads, a second one dequantises their records in order of position, a product with a
// Hadamard matrix rotates keys and values back, an addition gives keys their centre, and concat()
// appends both to the full rows.
#ifndef EBB_STEP_DEVICE_GGML_ROWS_H_
#define EBB_STEP_DEVICE_GGML_ROWS_H_

#include <vector>

#include "ggml.h"
#include "src/attention/rows.h"
#include "src/device/backend_device.h"

namespace ebb {

// GgmlRowInputs describes the rows of T2 of one layer by the tensors that list them.
struct GgmlRowInputs {
  CompressedFormat format;  // must be in ggml's blocks
  int kv_heads = 0;
  int num_pages = 0;  // length of a kv head's list of pages
  int num_rows = 0;   // length of a kv head's list of slots
  // Holds the distance, in elements, between the slot lists of consecutive kv heads; 0: all heads
  // share one list.
  int slot_stride = 0;
  ggml_tensor* rows = nullptr;      // F16 [head_dim, rows]: the device's buffer of rows
  ggml_tensor* pages = nullptr;     // I32 [num_pages, kv_heads]: the row at which each page begins
  ggml_tensor* slots = nullptr;     // I32: slots in order of position
  ggml_tensor* centres = nullptr;   // F32 [head_dim, kv_heads]
  ggml_tensor* rotation = nullptr;  // F32 [head_dim, head_dim], see RotationMatrix()
};

// GatheredRows holds keys and values, F16. Both are the same tensor if rows have no values.
struct GatheredRows {
  ggml_tensor* keys = nullptr;
  ggml_tensor* values = nullptr;
};
// Adds the nodes that append the rows of T2 to `full`, which is [head_dim, rows, kv_heads, 1] or
// [head_dim, rows, 1, kv_heads], and returns the result.
[[nodiscard]] GatheredRows AppendGgmlRows(ggml_context* context, const GatheredRows& full,
                                          const GgmlRowInputs& inputs);

// Returns the bytes of the tensors of AppendGgmlRows(): records, keys and values in F32 before and
// after their rotation, and in F16 before they are appended. `num_rows` counts the rows of a kv
// head.
[[nodiscard]] size_t GgmlRowBytes(const CompressedFormat& format, size_t kv_heads, size_t num_rows);

// Returns the matrix that Rotate() multiplies by, which is its own transpose and inverse.
[[nodiscard]] std::vector<float> RotationMatrix(int head_dim);

// Runs AppendGgmlRows() on a few records on the device's backend. Returns whether the backend has
// the operations, computes the rows of DecompressRow() up to rounding, and keeps the bits of
// records when it copies them. Errors: OutOfMemory; those of a device that was lost.
[[nodiscard]] Result<bool> ReadsGgmlRecords(BackendDevice* device, const CompressedFormat& format);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_GGML_ROWS_H_
