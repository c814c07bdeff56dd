// Weights in memory. A matrix stays where the file is mapped unless ggml has a faster layout for
// it on this processor (then it is repacked), it is to be widened, rows of several tensors are
// joined, or the model is of a size that runs faster from huge pages; what was copied leaves the
// mapping.
#ifndef EBB_MODEL_WEIGHTS_H_
#define EBB_MODEL_WEIGHTS_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ebb/model.h"
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

// Whether weights of this size are faster to read from huge pages, which the system has.
[[nodiscard]] bool RunsFasterFromHugePages(const GgufFile& file);

// Gives tensors memory in one new buffer of this type, and huge pages where the system has them.
// Returns its bytes; 0: there are no tensors. OutOfMemory.
Result<uint64_t> AllocateWeights(ggml_backend_buffer_type_t type,
                                 std::span<ggml_tensor* const> tensors, WeightBuffers* buffers);

// Calls fill(0, ...) ... fill(count - 1, ...) on several threads, each of which gives its calls a
// buffer of its own. Passes an exception of a call on.
void FillWeights(size_t count,
                 const std::function<void(size_t index, std::vector<std::byte>& scratch)>& fill);

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

// Declares weights, checking them against the file, then loads all of them at once. Declared
// tensors have no data before Load().
class WeightLoader {
 public:
  // How a matrix is read, which decides where it may lie: by products, or a few rows at a time.
  enum class Use { kMatmul, kRows };

  // REQUIRES: file outlives the loader; at most max_tensors declarations.
  // for_device: none is laid out for the processor, nor read before it is asked for.
  WeightLoader(const GgufFile& file, WeightMode mode, size_t max_tensors, bool for_device = false);

  // A matrix [columns, rows]. Corrupt when the file has none of this name and shape; Unsupported
  // for a type that ggml cannot multiply.
  Result<ggml_tensor*> Matrix(std::string_view name, int64_t columns, int64_t rows, Use use);
  struct Piece {
    std::string name;
    int64_t size;  // rows of a matrix, elements of a vector
  };
  // The rows of several matrices in one. Null when they differ in type, or lie apart and are too
  // large to copy.
  Result<ggml_tensor*> JoinedMatrix(const std::vector<Piece>& pieces, int64_t columns);

  // A vector of F32.
  Result<ggml_tensor*> Vector(std::string_view name, int64_t size);
  // Several, one after the other, as a matrix of `columns`. A piece that is missing is zero.
  Result<ggml_tensor*> JoinedVector(const std::vector<Piece>& pieces, int64_t columns);

  // A matrix of F32 that no file holds, for the caller to fill after Load(); zeros until then.
  ggml_tensor* Zeros(int64_t columns, int64_t rows);

  // Every tensor of the file must have been declared: one that is left over belongs to a model
  // that computes something else.
  Status CheckAllDeclared() const;

  // Reads, repacks and widens. The tensors have data afterwards, as long as the buffers live;
  // `buffers` still lacks the mapping, which the file holds.
  Status Load(WeightBuffers* buffers);
  // See FitsMemory(): weights that do not fit are neither copied nor read ahead.
  [[nodiscard]] bool fits_memory() const { return fits_memory_; }
  // What is held in memory, without tables in the mapped file whose rows are looked up.
  [[nodiscard]] uint64_t weight_bytes() const { return weight_bytes_; }
  // The bytes of those tables.
  [[nodiscard]] uint64_t lookup_bytes() const { return lookup_bytes_; }

 private:
  enum class Place { kMapped, kOwned, kRepacked };
  struct Part {
    const GgufTensor* source;  // null: zeros
    size_t bytes;              // in the file
  };
  struct Weight {
    ggml_tensor* tensor = nullptr;
    std::vector<Part> parts;
    Place place = Place::kMapped;
    ggml_backend_buffer_type_t repack_type = nullptr;  // of kRepacked
    Use use = Use::kMatmul;
  };

  Result<const GgufTensor*> Find(std::string_view name, int64_t columns, int64_t rows) const;
  // Chooses the place; nothing when the parts lie apart and are too large to copy.
  std::optional<Weight> Plan(std::vector<Part> parts, ggml_type type, int64_t columns, int64_t rows,
                             Use use) const;
  ggml_tensor* Declare(Weight weight, ggml_type type, int64_t columns, int64_t rows);
  Status LoadMapped(WeightBuffers* buffers);
  Status LoadCopies(WeightBuffers* buffers);
  void Fill(const Weight& weight, std::vector<std::byte>& scratch) const;

  const GgufFile& file_;
  WeightMode mode_;
  std::unique_ptr<ggml_context, GgmlDeleter> context_;
  std::vector<ggml_backend_buffer_type_t> repack_types_;
  const bool for_device_;
  const bool fits_memory_;
  bool use_huge_pages_ = false;  // for all matrices that are multiplied
  std::vector<Weight> weights_;
  std::unordered_set<std::string_view> declared_;
  uint64_t weight_bytes_ = 0;
  uint64_t lookup_bytes_ = 0;
};

}  // namespace ebb

#endif  // EBB_MODEL_WEIGHTS_H_
