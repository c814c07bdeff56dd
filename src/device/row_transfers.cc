#include "src/device/row_transfers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string>

#include "ggml-alloc.h"

namespace ebb {

namespace {

ggml_tensor* ViewOf(ggml_context* context, ggml_tensor* of) {
  return ggml_view_4d(context, of, of->ne[0], of->ne[1], of->ne[2], of->ne[3], of->nb[1], of->nb[2],
                      of->nb[3], 0);
}

}  // namespace

ggml_tensor* AsIntegers(ggml_context* context, ggml_tensor* rows) {
  ggml_tensor* view = ViewOf(context, rows);
  view->type = GGML_TYPE_I32;
  view->ne[0] /= 2;
  view->nb[0] = sizeof(int32_t);
  return view;
}

ggml_tensor* AsHalves(ggml_context* context, ggml_tensor* integers) {
  ggml_tensor* view = ViewOf(context, integers);
  view->type = GGML_TYPE_F16;
  view->ne[0] *= 2;
  view->nb[0] = sizeof(ggml_fp16_t);
  return view;
}

namespace {

// Returns a view of F16 rows as F32: each float has the bits of two halves.
ggml_tensor* AsFloats(ggml_context* context, ggml_tensor* rows) {
  ggml_tensor* view = AsIntegers(context, rows);
  view->type = GGML_TYPE_F32;
  return view;
}

}  // namespace

struct RowTransfers::Graph {
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  ggml_cgraph* graph = nullptr;

  [[nodiscard]] ggml_tensor* Input(ggml_type type, int64_t columns, size_t rows) const {
    ggml_tensor* input =
        ggml_new_tensor_2d(context.get(), type, columns, static_cast<int64_t>(rows));
    ggml_set_input(input);
    return input;
  }
  [[nodiscard]] Status Compute(ggml_backend_t backend) const {
    const ggml_status status = ggml_backend_graph_compute(backend, graph);
    if (status == GGML_STATUS_SUCCESS) return OkStatus();
    return Internal(std::string("the device failed: ") + ggml_status_to_string(status));
  }
};

namespace {

// Returns the padded length of a list of `num` rows. There are few such lengths, so that a backend
// compiles few kernels.
size_t RoundedSize(size_t num) { return std::max<size_t>(std::bit_ceil(num), 64); }

}  // namespace

size_t RowTransfers::device_bytes() const {
  return buffers_ == nullptr ? 0 : ggml_gallocr_get_buffer_size(buffers_.get(), 0);
}

Result<RowTransfers::Graph> RowTransfers::Begin() {
  constexpr size_t kTensors = 16;
  Graph made;
  made.context.reset(ggml_init(
      {.mem_size = kTensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(kTensors, false),
       .mem_buffer = nullptr,
       .no_alloc = true}));
  if (made.context == nullptr) return OutOfMemory("no memory for a graph");
  made.graph = ggml_new_graph_custom(made.context.get(), kTensors, false);
  return made;
}

Status RowTransfers::Allocate(const Graph& graph, ggml_tensor* result) {
  ggml_set_output(result);
  ggml_build_forward_expand(graph.graph, result);
  ggml_gallocr_t buffers = buffers_.release();
  if (buffers == nullptr) {
    buffers = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_));
    if (buffers == nullptr) return OutOfMemory("no memory for a graph");
  }
  // The allocator grows its buffer if this graph needs more. If that throws, buffers_ stays empty,
  // so that nothing frees an allocator in an unknown state.
  const bool allocated =
      ggml_gallocr_reserve(buffers, graph.graph) && ggml_gallocr_alloc_graph(buffers, graph.graph);
  buffers_.reset(buffers);
  if (allocated) return OkStatus();
  Release();
  return OutOfMemory("the device has no memory for rows on their way");
}

void RowTransfers::Set(ggml_tensor* list, std::span<const int32_t> numbers, int32_t padding) {
  padded_.assign(numbers.begin(), numbers.end());
  padded_.resize(static_cast<size_t>(list->ne[0]), padding);
  ggml_backend_tensor_set(list, padded_.data(), 0, padded_.size() * sizeof(int32_t));
}

Status RowTransfers::Read(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t spare,
                          std::byte* to) {
  EBB_ASSIGN_OR_RETURN(const Graph graph, Begin());
  ggml_context* const context = graph.context.get();
  ggml_tensor* list =
      graph.Input(GGML_TYPE_I32, static_cast<int64_t>(RoundedSize(numbers.size())), 1);
  ggml_tensor* result = ggml_get_rows(context, AsIntegers(context, rows), list);
  EBB_RETURN_IF_ERROR(Allocate(graph, result));
  Set(list, numbers, spare);
  EBB_RETURN_IF_ERROR(graph.Compute(backend_));
  ggml_backend_tensor_get(result, to, 0, numbers.size() * rows->nb[1]);
  return OkStatus();
}

// Writes rows. F16 numbers (kHalves) pass as F32, which every backend can convert to F16 without
// loss. Arbitrary bits (kBits) pass as F32 to a view of F32, without conversion.
Status RowTransfers::Write(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t unread,
                           Contents contents, const std::byte* from) {
  EBB_ASSIGN_OR_RETURN(const Graph graph, Begin());
  ggml_context* const context = graph.context.get();
  const size_t size = RoundedSize(numbers.size());
  ggml_tensor* list = graph.Input(GGML_TYPE_I32, static_cast<int64_t>(size), 1);
  ggml_tensor *to = rows, *values = nullptr, *floats = nullptr;
  if (contents == Contents::kBits) {
    to = AsFloats(context, rows);
    floats = values = graph.Input(GGML_TYPE_F32, to->ne[0], size);
  } else {
    values = graph.Input(GGML_TYPE_F16, rows->ne[0], size);
    floats = ggml_cast(context, values, GGML_TYPE_F32);
  }
  EBB_RETURN_IF_ERROR(Allocate(graph, ggml_set_rows(context, to, floats, list)));
  // The padded list writes leftovers of an earlier graph to the row `unread`.
  Set(list, numbers, unread);
  ggml_backend_tensor_set(values, from, 0, numbers.size() * rows->nb[1]);
  return graph.Compute(backend_);
}

Status RowTransfers::Copy(ggml_tensor* rows, std::span<const int32_t> from,
                          std::span<const int32_t> to, int32_t spare, Contents contents) {
  EBB_ASSIGN_OR_RETURN(const Graph graph, Begin());
  ggml_context* const context = graph.context.get();
  const auto size = static_cast<int64_t>(RoundedSize(from.size()));
  ggml_tensor* sources = graph.Input(GGML_TYPE_I32, size, 1);
  ggml_tensor* targets = graph.Input(GGML_TYPE_I32, size, 1);
  ggml_tensor* of = contents == Contents::kBits ? AsFloats(context, rows) : rows;
  ggml_tensor* values = ggml_get_rows(context, of, sources);
  EBB_RETURN_IF_ERROR(Allocate(graph, ggml_set_rows(context, of, values, targets)));
  Set(sources, from, spare);
  Set(targets, to, spare);
  return graph.Compute(backend_);
}

Result<bool> RowTransfers::GathersIntegers(int64_t row_size) {
  constexpr int kRows = 3;
  EBB_ASSIGN_OR_RETURN(const Graph graph, Begin());
  ggml_tensor* rows = graph.Input(GGML_TYPE_I32, row_size, kRows);
  ggml_tensor* list = graph.Input(GGML_TYPE_I32, kRows, 1);
  ggml_tensor* result = ggml_get_rows(graph.context.get(), rows, list);
  if (!ggml_backend_supports_op(backend_, result)) return false;
  EBB_RETURN_IF_ERROR(Allocate(graph, result));
  std::vector<int32_t> numbers(static_cast<size_t>(row_size) * kRows);
  std::iota(numbers.begin(), numbers.end(), 1);
  ggml_backend_tensor_set(rows, numbers.data(), 0, ggml_nbytes(rows));
  Set(list, std::to_array<int32_t>({2, 0, 1}), 0);
  EBB_RETURN_IF_ERROR(graph.Compute(backend_));
  std::vector<int32_t> found(numbers.size());
  ggml_backend_tensor_get(result, found.data(), 0, ggml_nbytes(result));
  std::rotate(numbers.begin(), numbers.end() - row_size, numbers.end());
  return found == numbers;
}

}  // namespace ebb
