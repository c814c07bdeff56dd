#include "src/step/device/ggml_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "ggml-alloc.h"
#include "src/attention/compressed.h"
#include "src/attention/ggml_records.h"
#include "src/base/ggml_deleter.h"
#include "src/base/page_units.h"
#include "src/rows/compressed_pages.h"

namespace ebb {
namespace {

// Returns a view of the bytes of `of` as elements of another type.
ggml_tensor* ViewAs(ggml_context* context, ggml_tensor* of, ggml_type type,
                    const std::array<int64_t, 4>& ne, const std::array<size_t, 4>& nb) {
  ggml_tensor* view = ggml_view_1d(context, of, 0, 0);
  view->type = type;
  std::ranges::copy(ne, view->ne);
  std::ranges::copy(nb, view->nb);
  return view;
}

// Returns the T2 pages of all kv heads that the list names, one after another, I32 [page, num_pages
// * kv_heads]. A page may begin at any row, so that the view of all pages has overlapping pages.
ggml_tensor* GatherPagesOfRecords(ggml_context* context, const GgmlRowInputs& in) {
  const size_t page_bytes = CompressedPageBytesOnDevice(in.format);
  const size_t row_bytes = in.rows->nb[1];
  const auto num_begins = in.rows->ne[1] - static_cast<int64_t>(page_bytes / row_bytes) + 1;
  const auto page = static_cast<int64_t>(page_bytes / sizeof(int32_t));
  ggml_tensor* all =
      ViewAs(context, in.rows, GGML_TYPE_I32, {page, num_begins, 1, 1},
             {sizeof(int32_t), row_bytes, num_begins * row_bytes, num_begins * row_bytes});
  return ggml_get_rows(context, all, in.pages);
}

// Returns the rows of `first`, then those of `second`, in F16.
ggml_tensor* Concatenated(ggml_context* context, ggml_tensor* first, ggml_tensor* second) {
  second =
      ggml_reshape_4d(context, second, first->ne[0], second->ne[1], first->ne[2], first->ne[3]);
  return AsHalves(context,
                  ggml_concat(context, AsIntegers(context, first), AsIntegers(context, second), 1));
}

// Returns the dequantised rows in order of position, F32 [head_dim, sides, num_rows, kv_heads]:
// side 0 are keys less their centre, side 1 are values.
ggml_tensor* Dequantised(ggml_context* context, const GgmlRowInputs& in) {
  const int64_t head_dim = in.format.head_dim, heads = in.kv_heads, num_rows = in.num_rows;
  const int64_t sides = in.format.has_values ? 2 : 1;
  const size_t record = in.format.RowStride();
  // A page has no padding after its 64 records, whose size is a multiple of a row's in the buffer.
  const size_t of_head = size_t(in.num_pages) * CompressedPageBytesOnDevice(in.format);
  const ggml_type type = GgmlTypeOf(in.format.type);
  ggml_tensor* records =
      ViewAs(context, GatherPagesOfRecords(context, in), type,
             {sides * head_dim, static_cast<int64_t>(of_head / record), heads, 1},
             {ggml_type_size(type), record, of_head, heads * of_head});
  const size_t slot_stride = size_t(in.slot_stride) * sizeof(int32_t);
  ggml_tensor* slots =
      ViewAs(context, in.slots, GGML_TYPE_I32, {num_rows, heads, 1, 1},
             {sizeof(int32_t), slot_stride, heads * slot_stride, heads * slot_stride});
  ggml_tensor* all = ggml_get_rows(context, records, slots);
  if (IsRotated(in.format.type)) {
    all = ggml_mul_mat(context, in.rotation,
                       ggml_reshape_3d(context, all, head_dim, sides * num_rows, heads));
    ggml_prec_set_acc(all, GGML_PREC_F32);
  }
  return ggml_reshape_4d(context, all, head_dim, sides, num_rows, heads);
}

}  // namespace

GatheredRows AppendGgmlRows(ggml_context* context, const GatheredRows& full,
                            const GgmlRowInputs& in) {
  const int64_t head_dim = in.format.head_dim, heads = in.kv_heads;
  ggml_tensor* both = Dequantised(context, in);
  const auto side = [&](int64_t number) {
    return ggml_view_3d(context, both, head_dim, in.num_rows, heads, both->nb[2], both->nb[3],
                        number * both->nb[1]);
  };
  ggml_tensor* keys = side(0);
  if (in.format.IsCentred()) {
    keys = ggml_add(context, keys, ggml_reshape_3d(context, in.centres, head_dim, 1, heads));
  }
  keys = Concatenated(context, full.keys, ggml_cast(context, keys, GGML_TYPE_F16));
  if (!in.format.has_values) return {.keys = keys, .values = keys};
  ggml_tensor* values = ggml_cast(context, side(1), GGML_TYPE_F16);
  return {.keys = keys, .values = Concatenated(context, full.values, values)};
}

size_t GgmlRowBytes(const CompressedFormat& format, size_t kv_heads, size_t num_rows) {
  constexpr size_t kOfNumber = 2 * sizeof(float) + sizeof(uint16_t);
  return num_rows * kv_heads * (format.RowStride() + 2 * kOfNumber * format.head_dim);
}

std::vector<float> RotationMatrix(int head_dim) {
  std::vector<float> matrix(size_t(head_dim) * head_dim, 0.0f);
  for (int i = 0; i < head_dim; ++i) {
    float* const row = matrix.data() + size_t(i) * head_dim;
    row[i] = 1;
    Rotate(row, head_dim);
  }
  return matrix;
}

namespace {

// SampleRecords holds test data for the device: records of two kv heads, in pages at odd places of
// a small buffer, and their rows as the processor decompresses them.
class SampleRecords {
 public:
  explicit SampleRecords(const CompressedFormat& format)
      : format_(format),
        rows_of_page_(CompressedPageBytesOnDevice(format) / (format.head_dim * sizeof(uint16_t))),
        buffer_((kHeads * rows_of_page_ + 2) * format.head_dim),
        centres_(size_t(kHeads) * format.head_dim) {
    for (size_t i = 0; i < centres_.size(); ++i) centres_[i] = 3 * std::sin(static_cast<float>(i));
    std::vector<float> key(format.head_dim), value(format.head_dim);
    std::vector<float> found_key(format.head_dim), found_value(format.head_dim);
    for (int head = 0; head < kHeads; ++head) {
      pages_.push_back(static_cast<int32_t>(1 + head * rows_of_page_));
      const float* const centre =
          format.IsCentred() ? centres_.data() + size_t(head) * format.head_dim : nullptr;
      auto* const page =
          reinterpret_cast<std::byte*>(buffer_.data() + size_t(pages_.back()) * format.head_dim);
      for (int slot = 0; slot < kRowsPerPage; ++slot) {
        for (int i = 0; i < format.head_dim; ++i) {
          key[i] = 2 * std::cos(static_cast<float>(slot * 7 + i * i + head));
          value[i] = std::sin(static_cast<float>(slot * i + head + 1));
        }
        std::byte* const record = page + slot * format.RowStride();
        CompressRow(format, {.centre = centre}, key.data(), value.data(), record);
        DecompressRow(format, centre, record, found_key.data(), found_value.data());
        keys_.insert(keys_.end(), found_key.begin(), found_key.end());
        values_.insert(values_.end(), found_value.begin(), found_value.end());
      }
    }
    // The list names slots in descending order.
    for (int row = 0; row < kRowsPerPage; ++row) slots_.push_back(kRowsPerPage - 1 - row);
  }

  [[nodiscard]] GgmlRowInputs MakeInputs(ggml_context* context) const {
    const auto input = [&](ggml_type type, int64_t columns, int64_t rows) {
      ggml_tensor* tensor = ggml_new_tensor_2d(context, type, columns, rows);
      ggml_set_input(tensor);
      return tensor;
    };
    const int64_t head_dim = format_.head_dim;
    return {.format = format_,
            .kv_heads = kHeads,
            .num_pages = 1,
            .num_rows = kRowsPerPage,
            .rows = input(GGML_TYPE_F16, head_dim, static_cast<int64_t>(buffer_.size()) / head_dim),
            .pages = input(GGML_TYPE_I32, kHeads, 1),
            .slots = input(GGML_TYPE_I32, kRowsPerPage, 1),
            .centres = input(GGML_TYPE_F32, head_dim, kHeads),
            .rotation = input(GGML_TYPE_F32, head_dim, head_dim)};
  }
  // Returns the first rows of the buffer as the full-precision rows of two heads.
  [[nodiscard]] GatheredRows MakeFull(ggml_context* context, const GgmlRowInputs& inputs) const {
    ggml_tensor* rows = ggml_view_3d(context, inputs.rows, format_.head_dim, kFullRows, kHeads,
                                     inputs.rows->nb[1], inputs.rows->nb[1], 0);
    return {.keys = rows, .values = rows};
  }
  void Set(const GgmlRowInputs& inputs) const {
    const auto set = [](ggml_tensor* to, const auto& from) {
      if (to->buffer == nullptr) return;  // no node reads the tensor
      ggml_backend_tensor_set(to, from.data(), 0, ggml_nbytes(to));
    };
    set(inputs.rows, buffer_);
    set(inputs.pages, pages_);
    set(inputs.slots, slots_);
    set(inputs.centres, centres_);
    set(inputs.rotation, RotationMatrix(format_.head_dim));
  }
  [[nodiscard]] bool Are(const GatheredRows& found) const {
    return Are(keys_, found.keys) && (!format_.has_values || Are(values_, found.values));
  }

 private:
  static constexpr int kHeads = 2, kFullRows = 3;
  // Allows for backends that round factors to 11 bits before they multiply.
  static constexpr float kMostError = 0.02f;

  [[nodiscard]] bool Are(const std::vector<float>& expected, const ggml_tensor* found) const {
    constexpr size_t kRows = kFullRows + kRowsPerPage;
    const size_t head_dim = format_.head_dim;
    std::vector<ggml_fp16_t> halves(kHeads * kRows * head_dim);
    ggml_backend_tensor_get(found->view_src, halves.data(), 0, halves.size() * sizeof(halves[0]));
    for (size_t i = 0; i < halves.size(); ++i) {
      const size_t head = i / (kRows * head_dim), row = i / head_dim % kRows;
      if (row < kFullRows) {
        // The full rows are bytes of records, read as F16; they must not change.
        if (halves[i] != buffer_[(head + row) * head_dim + i % head_dim]) return false;
        continue;
      }
      const size_t slot = slots_[row - kFullRows];
      const float right = expected[(head * kRowsPerPage + slot) * head_dim + i % head_dim];
      if (!(std::abs(ggml_fp16_to_fp32(halves[i]) - right) <= kMostError)) return false;
    }
    return true;
  }

  const CompressedFormat format_;
  const size_t rows_of_page_;
  std::vector<ggml_fp16_t> buffer_;
  std::vector<float> centres_;
  std::vector<int32_t> pages_, slots_;
  std::vector<float> keys_, values_;  // [heads, slots, head_dim]
};

// Returns whether the backend copies all bits of rows that travel like records
// (RowTransfers::Contents::kBits). Some backends change denormal numbers and signalling NaNs.
Result<bool> KeepsBits(ggml_backend_t backend, const CompressedFormat& format) {
  constexpr int kRows = 4;
  const std::unique_ptr<ggml_context, GgmlDeleter> context(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  if (context == nullptr) return OutOfMemory("no memory for a graph");
  ggml_tensor* rows =
      ggml_new_tensor_2d(context.get(), GGML_TYPE_F16, format.head_dim, 2 * kRows + 1);
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
      ggml_backend_alloc_ctx_tensors(context.get(), backend));
  if (buffer == nullptr) return OutOfMemory("the device has no memory for a few rows");
  constexpr std::array<uint32_t, 8> kBits = {0x00000001, 0x807fffff, 0x7f800001, 0xffc12345,
                                             0x7f800000, 0x00345600, 0x80000000, 0x3f812345};
  std::vector<uint32_t> words(size_t(kRows) * format.head_dim / 2), found(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = kBits[i % kBits.size()] ^ static_cast<uint32_t>(i / kBits.size());
  }
  const auto numbers = std::to_array<int32_t>({0, 1, 2, 3});
  const auto others = std::to_array<int32_t>({7, 5, 6, 4});
  constexpr int32_t kSpare = 2 * kRows;
  using Contents = RowTransfers::Contents;
  RowTransfers transfers(backend);
  EBB_RETURN_IF_ERROR(transfers.Write(rows, numbers, kSpare, Contents::kBits,
                                      reinterpret_cast<const std::byte*>(words.data())));
  EBB_RETURN_IF_ERROR(transfers.Copy(rows, numbers, others, kSpare, Contents::kBits));
  EBB_RETURN_IF_ERROR(
      transfers.Read(rows, others, kSpare, reinterpret_cast<std::byte*>(found.data())));
  return found == words;
}

bool Supports(ggml_backend_t backend, ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    if (!ggml_backend_supports_op(backend, ggml_graph_node(graph, i))) return false;
  }
  return true;
}

}  // namespace

Result<bool> ReadsGgmlRecords(BackendDevice* device, const CompressedFormat& format) {
  constexpr size_t kTensors = 48;
  const std::unique_ptr<ggml_context, GgmlDeleter> context(ggml_init(
      {.mem_size = kTensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(kTensors, false),
       .mem_buffer = nullptr,
       .no_alloc = true}));
  if (context == nullptr) return OutOfMemory("no memory for a graph");
  const SampleRecords samples(format);
  const GgmlRowInputs inputs = samples.MakeInputs(context.get());
  const GatheredRows found =
      AppendGgmlRows(context.get(), samples.MakeFull(context.get(), inputs), inputs);
  ggml_cgraph* const graph = ggml_new_graph_custom(context.get(), kTensors, false);
  for (ggml_tensor* rows : {found.keys, found.values}) {
    ggml_set_output(rows->view_src);
    ggml_build_forward_expand(graph, rows);
  }
  bool reads = false;
  EBB_RETURN_IF_ERROR(device->Call([&]() -> Status {
    ggml_backend_t backend = device->backend();
    if (!Supports(backend, graph)) return OkStatus();
    const std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers(
        ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
    if (buffers == nullptr || !ggml_gallocr_alloc_graph(buffers.get(), graph)) {
      return OutOfMemory(fmt::format("device {} has no memory for a graph", device->name()));
    }
    samples.Set(inputs);
    const ggml_status status = ggml_backend_graph_compute(backend, graph);
    if (status != GGML_STATUS_SUCCESS) return OkStatus();
    EBB_ASSIGN_OR_RETURN(const bool keeps, KeepsBits(backend, format));
    reads = keeps && samples.Are(found);
    return OkStatus();
  }));
  return reads;
}

}  // namespace ebb
