// RowTransfers reads, writes and copies rows between steps by small graphs of ggml. Rows are named
// by their numbers in one tensor, F16 [n, rows]. The device memory of these graphs is kept from one
// call to the next.
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

// Returns a view of rows of F16 as integers, each of which is a pair of halves. Every backend
// copies integers bit for bit, and only half as many elements move. rows: F16 [n, ...], n even.
[[nodiscard]] ggml_tensor* AsIntegers(ggml_context* context, ggml_tensor* rows);
// Returns a view of integers from AsIntegers() as F16.
[[nodiscard]] ggml_tensor* AsHalves(ggml_context* context, ggml_tensor* integers);

class RowTransfers {
 public:
  // kMostRows is the most rows of one graph, and so of one call.
  static constexpr size_t kMostRows = size_t{1} << 14;

  explicit RowTransfers(ggml_backend_t backend) : backend_(backend) {}

  // Reads the rows `numbers` of `rows` into `to`, packed. This and the functions below pad their
  // lists of rows, so that graphs have few sizes: padding reads the row `spare`, whose values are
  // finite, and writes the row `unread`. Errors: OutOfMemory if the device has no memory, after
  // which nothing has changed; Internal, and exceptions of ggml, if the device failed.
  Status Read(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t spare, std::byte* to);
  // Contents says whether rows are numbers or arbitrary bits, which floats do not keep on every
  // backend.
  enum class Contents { kHalves, kBits };
  Status Write(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t unread,
               Contents contents, const std::byte* from);
  // Copies rows; all rows are read before any is written. REQUIRES: `to` names no row twice.
  Status Copy(ggml_tensor* rows, std::span<const int32_t> from, std::span<const int32_t> to,
              int32_t spare, Contents contents);
  // Returns whether the backend gathers rows of `row_size` integers correctly. Not all backends do:
  // ggml's for Vulkan copied only half of each row of more than 512 integers.
  [[nodiscard]] Result<bool> GathersIntegers(int64_t row_size);

  [[nodiscard]] size_t device_bytes() const;
  // Frees the device's memory; the next call allocates it again.
  void Release() { buffers_.reset(); }
  // Abandons the device's memory without freeing it, which would end the process if the device is
  // lost.
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
