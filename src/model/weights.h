// Memory for weights: buffers of ggml, and the mapped file.
#ifndef EBB_MODEL_WEIGHTS_H_
#define EBB_MODEL_WEIGHTS_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/base/ggml_deleter.h"
#include "src/model/gguf_file.h"
#include "src/model/mapped_file.h"

namespace ebb {

// Owns every byte of the weights and the ggml objects that describe them.
struct WeightBuffers {
  std::vector<MappedFile> mappings;  // of the parts of the file
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  std::vector<std::unique_ptr<ggml_backend_buffer, GgmlDeleter>> buffers;
};

// Whether weights of this size are faster to read from a copy: small ones, and those that lie in
// huge pages then.
[[nodiscard]] bool RunsFasterFromCopy(const GgufFile& file);

// Gives tensors memory in one new buffer of this type, and huge pages where the system has them.
// Returns its bytes; 0: there are no tensors. OutOfMemory.
Result<uint64_t> AllocateWeights(ggml_backend_buffer_type_t type,
                                 std::span<ggml_tensor* const> tensors, WeightBuffers* buffers);

// Calls fill(0) ... fill(count - 1) on several threads. Passes an exception of a call on.
void FillWeights(size_t count, const std::function<void(size_t index)>& fill);

// ggml's buffers over the mapped parts of a file, for weights that stay there.
class MappedBuffers {
 public:
  // `buffers` owns them. REQUIRES: the file outlives this object.
  MappedBuffers(const GgufFile& file, WeightBuffers* buffers);
  // REQUIRES: `data` is in the file; the tensor has no memory yet.
  void Place(ggml_tensor* tensor, std::span<const std::byte> data) const;

 private:
  const GgufFile& file_;
  std::vector<ggml_backend_buffer_t> buffers_;  // [parts]
};

// Whether the memory that is available now holds the weights of a file once more.
[[nodiscard]] bool FitsMemory(const GgufFile& file);

}  // namespace ebb

#endif  // EBB_MODEL_WEIGHTS_H_
