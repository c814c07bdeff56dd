// Opens a GGUF file: ggml parses the metadata, and the tensors are checked to lie inside the file.
//
// ggml's own accessors abort on a key of another type; the functions here return errors instead.
// Strings end at their first zero byte, as they do for libllama.
//
// Thread safety: immutable after Open().
#ifndef EBB_MODEL_LOADED_GGUF_FILE_H_
#define EBB_MODEL_LOADED_GGUF_FILE_H_

#include <ggml.h>
#include <gguf.h>

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ebb/status.h"
#include "src/model/loaded/mapped_file.h"

namespace ebb {

struct GgufTensor {
  std::string_view name;
  ggml_type type = GGML_TYPE_F32;
  std::array<int64_t, GGML_MAX_DIMS> dims = {};  // unused ones are 1
  std::span<const std::byte> data;               // in the mapping

  [[nodiscard]] std::string ShapeString() const;  // "[576, 192]"
};

class GgufFile {
 public:
  enum class Need { kRequired, kOptional };

  // Opens a file. A model in several parts is opened by the name of its first part,
  // NAME-00001-of-00003.gguf; metadata is that of the first part, tensors come from all parts.
  // Errors, which name the path: those of MappedFile::Open(); Corrupt (also for parts that do not
  // belong together); Unsupported (alignment; `path` is another part than the first).
  // ErrorOfLoading() replaces them if the file changed during loading.
  static Result<GgufFile> Open(const std::string& path);
  // Parses a file that is in memory already; `name` is for messages. REQUIRES: the bytes are
  // aligned to 64 and outlive the object.
  static Result<GgufFile> Of(std::span<const std::byte> contents, const std::string& name);

  // Reads the value of `key`, a uint16_t, uint32_t, float, bool or string. A missing optional key
  // leaves *value unchanged. Errors: Corrupt (missing and required, or of another type).
  template <typename T>
  Status Read(std::string_view key, Need need, T* value) const;
  // Reads the strings of an array. Errors: Corrupt if it is missing or holds something else.
  Status ReadStrings(std::string_view key, std::vector<std::string_view>* values) const;

  [[nodiscard]] bool IsArray(std::string_view key) const;
  // Reads the numbers of an array of 32-bit integers or of bools. Errors: Corrupt if it holds
  // something else or a number below 0. REQUIRES: IsArray(key).
  Status ReadNumbers(std::string_view key, std::vector<uint32_t>* values) const;

  // Returns general.name without control characters and cut to a short line, for terminals and
  // logs.
  [[nodiscard]] Result<std::string> ReadName() const;

  // Returns the tensor of this name; null: there is none.
  [[nodiscard]] const GgufTensor* FindTensor(std::string_view name) const;
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  // Returns the bytes of all tensors.
  [[nodiscard]] uint64_t TensorBytes() const;

  // Returns a hash of the metadata, the tensor table and a few elements of every tensor. Trained
  // models differ in all of these, and reading the rest would take as long as loading it.
  [[nodiscard]] uint64_t Fingerprint() const;
  // Returns ggml's context, for libllama, which does not change it.
  [[nodiscard]] gguf_context* context() const { return context_.get(); }
  // Returns the mappings of the model's parts; mostly one.
  [[nodiscard]] std::span<const MappedFile> mappings() const { return mappings_; }
  [[nodiscard]] std::span<const std::string> paths() const { return paths_; }
  // Returns the index of the part that contains a range. REQUIRES: one does.
  [[nodiscard]] size_t PartOf(std::span<const std::byte> range) const;
  // Begins to read all parts into the page cache on another thread. The future's destructor waits
  // for that thread, and must run before the file is destroyed.
  [[nodiscard]] std::future<void> Prefetch() const;
  // Populate() and Drop() call the functions of MappedFile with these names. REQUIRES: one part
  // contains the range.
  void Populate(std::span<const std::byte> range) const;
  void Drop(std::span<const std::byte> range) const;
  // Checks all parts as MappedFile::CheckUnchanged() does.
  [[nodiscard]] Status CheckUnchanged() const;
  // Returns the reason why loading from this file failed: that the file changed during loading, if
  // it did; otherwise `status`.
  [[nodiscard]] Status ErrorOfLoading(const Status& status) const;
  // Moves the mappings out of the file. The tensors' data stays valid; the parsed metadata is
  // destroyed.
  static std::vector<MappedFile> TakeMappings(GgufFile file) { return std::move(file.mappings_); }

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
  };
  using ContextPtr = std::unique_ptr<gguf_context, Free>;

  GgufFile(MappedFile mapping, ContextPtr context);
  static Result<GgufFile> Parse(MappedFile mapping, const std::string& name);
  static Result<ContextPtr> ParseContext(const MappedFile& mapping, const std::string& name);
  // Adds the tensors of the part that `context` describes.
  Status IndexTensors(const gguf_context* context, const MappedFile& mapping);
  Status OpenOtherParts(const std::string& path);
  Status AddPart(const std::string& path, uint16_t number, uint16_t num_parts);
  // Checks by its metadata that this file is the given part.
  Status CheckPart(const std::string& path, uint16_t number, uint16_t num_parts) const;

  std::vector<MappedFile> mappings_;
  std::vector<std::string> paths_;
  ContextPtr context_;                      // of the first part
  std::vector<ContextPtr> other_contexts_;  // of the others, which hold the names of their tensors
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_GGUF_FILE_H_
