// Provides memory for weights: buffers of ggml, and the mapped file.
#ifndef EBB_MODEL_LOADED_WEIGHTS_H_
#define EBB_MODEL_LOADED_WEIGHTS_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/base/ggml_deleter.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/mapped_file.h"

namespace ebb {

// WeightBuffers owns all memory of the weights, and the ggml objects that describe them.
struct WeightBuffers {
  std::vector<MappedFile> mappings;  // of the parts of the file
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  std::vector<std::unique_ptr<ggml_backend_buffer, GgmlDeleter>> buffers;
};

// Returns whether weights of this size are read faster from a copy: small ones, and those that a
// copy puts into huge pages.
[[nodiscard]] bool RunsFasterFromCopy(const GgufFile& file);

// Allocates one new buffer of this type for the tensors, in huge pages if the system has them.
// Returns its bytes; 0: there are no tensors. Errors: OutOfMemory.
Result<uint64_t> AllocateWeights(ggml_backend_buffer_type_t type,
                                 std::span<ggml_tensor* const> tensors, WeightBuffers* buffers);

// Calls fill(0) ... fill(count - 1) on several threads. Rethrows an exception of a call.
void FillWeights(size_t count, const std::function<void(size_t index)>& fill);

// MappedBuffers makes ggml buffers of the mapped parts of a file, for weights that stay there.
class MappedBuffers {
 public:
  // Makes the buffers, which `buffers` then owns. REQUIRES: the file outlives this object.
  MappedBuffers(const GgufFile& file, WeightBuffers* buffers);
  // Gives the tensor `data` as its memory. REQUIRES: `data` is in the file; the tensor has no
  // memory yet.
  void Place(ggml_tensor* tensor, std::span<const std::byte> data) const;

 private:
  const GgufFile& file_;
  std::vector<ggml_backend_buffer_t> buffers_;  // [parts]
};

// Returns whether the available memory can hold a second copy of a file's weights.
[[nodiscard]] bool FitsMemory(const GgufFile& file);

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_WEIGHTS_H_
