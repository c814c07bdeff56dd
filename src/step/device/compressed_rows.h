// CompressedFold and UnpackRows are nodes of ggml's graph that read rows of T2 in a device's
// memory. CompressedFold attends to them in place, for single tokens; row_attention.h merges its
// result with that of full-precision rows. UnpackRows gathers full rows and decompressed rows of T2
// in F16, for steps of several tokens. Records lie in the same buffer as full rows, in pages that
// begin where a row begins.
//
// The fold multiplies stored keys by F32 queries; the processor's kernels round the queries first.
#ifndef EBB_STEP_DEVICE_COMPRESSED_ROWS_H_
#define EBB_STEP_DEVICE_COMPRESSED_ROWS_H_

#include "src/step/device/record_elements.h"
#include "src/step/device/row_attention.h"

namespace ebb {

struct CompressedFormat;

[[nodiscard]] RecordFormat RecordFormatOf(const CompressedFormat& format);

// CompressedFold is the user data of the fold's node, whose result has the layout of RowFold.
struct CompressedFold : RowFold {
  RecordFormat format;
};

// CompressedInputs holds the tensors that locate a layer's rows of T2.
struct CompressedInputs {
  // Holds the device's buffer, F16 [head_dim, rows], contiguous.
  ggml_tensor* rows = nullptr;
  // Lists the pages, I32 [num_pages, kv heads], each by the index in `rows` at which it begins.
  ggml_tensor* pages = nullptr;
  ggml_tensor* slots = nullptr;    // I32: by position; heads RowFold::slot_stride apart
  ggml_tensor* counts = nullptr;   // I32 [kv heads]: rows of T2
  ggml_tensor* centres = nullptr;  // F32 [head_dim, kv heads]; zeros if the format has none
};

// Adds the node that attends to rows of T2, and returns it. `q` is as in RowAttentionInputs.
// REQUIRES: `fold` outlives the graph.
[[nodiscard]] ggml_tensor* AddCompressedFold(ggml_context* context, const CompressedFold* fold,
                                             ggml_tensor* q, const CompressedInputs& inputs);

// UnpackRows is the user data of the node that unpacks rows.
struct UnpackRows : DeviceOp {
  int kv_heads = 0;
  // Are the lengths of the lists of full rows and of their pages, as in RowFold; rows lie in slot
  // order.
  int num_rows = 0;
  int num_pages = 0;
  // Are the lengths of the lists of T2 rows and of their pages.
  int num_compressed = 0;
  int num_compressed_pages = 0;
  int slot_stride = 0;
  RecordFormat format;  // must have values
};

// Adds the node that unpacks rows. Its result is F16 [head_dim, num_rows + num_compressed, kv
// heads, 2]: keys, then values, with zeros after the end of a list of T2. `list` is as in
// RowAttentionInputs, `after` and `after_too` as in AddRowAttention(). REQUIRES: `unpack` outlives
// the graph.
[[nodiscard]] ggml_tensor* AddUnpackRows(ggml_context* context, const UnpackRows* unpack,
                                         ggml_tensor* list, const CompressedInputs& inputs,
                                         ggml_tensor* after, ggml_tensor* after_too);

// Return the functions that launch ebb's CUDA kernels; null in a program without them. The kernels
// support the heads that CudaRowAttentionTakes() accepts, and no soft cap.
[[nodiscard]] decltype(DeviceOp::launch) CudaCompressedFold();
[[nodiscard]] decltype(DeviceOp::launch) CudaUnpackRows();

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_COMPRESSED_ROWS_H_
