// Changes a GGUF file: for tests of what a reader makes of bad ones, and for copies whose weights
// are of another type.
#ifndef EBB_TESTS_SUPPORT_GGUF_EDIT_H_
#define EBB_TESTS_SUPPORT_GGUF_EDIT_H_

#include <ggml.h>
#include <gguf.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

class GgufEdit {
 public:
  static Result<GgufEdit> Open(const std::string& path);

  // For gguf_set_val_*() and gguf_remove_key().
  [[nodiscard]] gguf_context* metadata() const { return metadata_.get(); }
  // "tokenizer.chat_template", say.
  void SetText(const std::string& key, const std::string& value);
  // REQUIRES: there is one. Its sizes may be made smaller.
  [[nodiscard]] ggml_tensor* tensor(std::string_view name) const;
  // Null: there is none.
  [[nodiscard]] ggml_tensor* Find(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> names() const;  // of the tensors
  void Remove(std::string_view name);
  // A tensor of zeros.
  void Add(const std::string& name, ggml_type type, int64_t columns, int64_t rows,
           int64_t planes = 1);
  // Widens every tensor to F32.
  void Dequantize();
  Status Save(const std::string& path) const;
  // In parts as llama-gguf-split makes them, STEM-00001-of-00003.gguf; the first one has the
  // metadata. Returns the path of the first part.
  Result<std::string> SaveInParts(const std::string& stem, int num_parts) const;

 private:
  struct Free {
    void operator()(gguf_context* context) const { gguf_free(context); }
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  GgufEdit() = default;

  std::unique_ptr<gguf_context, Free> metadata_;
  std::vector<std::unique_ptr<ggml_context, Free>> contexts_;  // own the tensors' data
  std::vector<ggml_tensor*> tensors_;
};

// Single changes, as lists of bad files name them.
using GgufChange = std::function<void(GgufEdit&)>;
[[nodiscard]] GgufChange SetU32(const std::string& key, uint32_t value);
[[nodiscard]] GgufChange SetString(const std::string& key, const std::string& value);
[[nodiscard]] GgufChange RemoveKey(const std::string& key);
[[nodiscard]] GgufChange RemoveTensor(const std::string& name);
[[nodiscard]] GgufChange AddTensor(const std::string& name, ggml_type type, int64_t columns,
                                   int64_t rows);
// One of the name is there already.
[[nodiscard]] GgufChange ReplaceTensor(const std::string& name, ggml_type type, int64_t columns,
                                       int64_t rows);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_GGUF_EDIT_H_
