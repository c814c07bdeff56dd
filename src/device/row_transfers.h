// RowTransfers reads, writes and copies rows of a device between steps, by small graphs of ggml.
// Rows are named by their index in one tensor, F16 [n, rows]. The graphs' device memory is kept
// between calls.
#ifndef EBB_DEVICE_ROW_TRANSFERS_H_
#define EBB_DEVICE_ROW_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "src/base/ggml_deleter.h"
#include "src/base/sanitizers.h"

namespace ebb {

// Returns a view of F16 rows as integers, each with the bits of two halves. Every backend copies
// integers bit for bit, and only half as many elements move. rows: F16 [n, ...], n even.
[[nodiscard]] ggml_tensor* AsIntegers(ggml_context* context, ggml_tensor* rows);
// Returns a view as F16 of integers that AsIntegers() returned.
[[nodiscard]] ggml_tensor* AsHalves(ggml_context* context, ggml_tensor* integers);

class RowTransfers {
 public:
  // kMostRows is the most rows of one graph, and so of one call.
  static constexpr size_t kMostRows = size_t{1} << 14;

  explicit RowTransfers(ggml_backend_t backend) : backend_(backend) {}

  // Copies the rows `numbers` of `rows` to `to`, packed. This function and those below pad their
  // lists of rows, so that graphs have few sizes: padding reads the row `spare`, whose values are
  // finite, and writes to the row `unread`. Errors: OutOfMemory if the device has no memory, with
  // nothing changed; Internal, and exceptions of ggml, if the device failed.
  Status Read(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t spare, std::byte* to);
  // Contents declares whether rows are F16 numbers, or arbitrary bits, which some backends change
  // when they copy them as floats.
  enum class Contents { kHalves, kBits };
  Status Write(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t unread,
               Contents contents, const std::byte* from);
  // Copies rows within the tensor; all are read before any is written. REQUIRES: `to` has no row
  // twice.
  Status Copy(ggml_tensor* rows, std::span<const int32_t> from, std::span<const int32_t> to,
              int32_t spare, Contents contents);
  // Returns whether the backend gathers rows of `row_size` integers correctly. ggml's Vulkan
  // backend copied only half of each row of more than 512 integers.
  [[nodiscard]] Result<bool> GathersIntegers(int64_t row_size);

  [[nodiscard]] size_t device_bytes() const;
  // Frees the device's memory; the next transfer allocates it again.
  void Release() { buffers_.reset(); }
  // Leaks the device's memory, because freeing memory of a lost device would end the process.
  void Abandon() { Leak(&buffers_); }

 private:
  struct Graph;
  [[nodiscard]] static Result<Graph> Begin();
  // Allocates memory for all tensors that `result` depends on.
  [[nodiscard]] Status Allocate(const Graph& graph, ggml_tensor* result);
  void Set(ggml_tensor* list, std::span<const int32_t> numbers, int32_t padding);

  ggml_backend_t const backend_;
  std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers_;
  std::vector<int32_t> padded_;
};

}  // namespace ebb

#endif  // EBB_DEVICE_ROW_TRANSFERS_H_
