// Rows that are read, written and copied between steps by small graphs of ggml: they name rows of
// one tensor, F16 [n, rows], by their numbers. What these graphs need of the device stays from one
// to the next.
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

// Returns a view of rows of F16 as integers, each of which is a pair of halves: every backend
// copies those with their bits, and half as many elements move. rows: F16 [n, ...], n even.
[[nodiscard]] ggml_tensor* AsIntegers(ggml_context* context, ggml_tensor* rows);
// Returns a view of such integers as F16.
[[nodiscard]] ggml_tensor* AsHalves(ggml_context* context, ggml_tensor* integers);

class RowTransfers {
 public:
  // Rows that one graph reads or writes, and so those of one call at the most.
  static constexpr size_t kMostRows = size_t{1} << 14;

  explicit RowTransfers(ggml_backend_t backend) : backend_(backend) {}

  // Graphs are of few sizes: what is missing reads and copies the row `spare`, which holds numbers
  // whenever it is read, and writes the row `unread`. Errors: OutOfMemory where the device
  // has no memory, after which nothing has changed; Internal, and whatever ggml throws, where it
  // failed.
  Status Read(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t spare, std::byte* to);
  // Rows are numbers, or any bits, which not every backend's floats keep.
  enum class Contents { kHalves, kBits };
  Status Write(ggml_tensor* rows, std::span<const int32_t> numbers, int32_t unread,
               Contents contents, const std::byte* from);
  // All rows are read before any is written. REQUIRES: `to` names no row twice.
  Status Copy(ggml_tensor* rows, std::span<const int32_t> from, std::span<const int32_t> to,
              int32_t spare, Contents contents);
  // Whether the backend gathers rows of so many integers each: not all do (ggml's for Vulkan copied
  // only half of those wider than 512).
  [[nodiscard]] Result<bool> GathersIntegers(int64_t row_size);

  [[nodiscard]] size_t device_bytes() const;
  // Gives the device's memory back until the next call.
  void Release() { buffers_.reset(); }
  // Leaves the device's memory alone from now on, since freeing what a lost device has would end
  // the process.
  void Abandon() { Leak(&buffers_); }

 private:
  struct Graph;
  [[nodiscard]] static Result<Graph> Begin();
  // Everything behind `result`, with the memory that it needs.
  [[nodiscard]] Status Allocate(const Graph& graph, ggml_tensor* result);
  void Set(ggml_tensor* list, std::span<const int32_t> numbers, int32_t padding);

  ggml_backend_t const backend_;
  std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers_;
  std::vector<int32_t> padded_;
};

}  // namespace ebb

#endif  // EBB_DEVICE_ROW_TRANSFERS_H_
