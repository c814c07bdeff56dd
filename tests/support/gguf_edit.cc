#include "tests/support/gguf_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ebb {
namespace {

// A context that holds one tensor of so many bytes.
ggml_context* ContextFor(size_t bytes) {
  constexpr size_t kPadding = 256;
  return ggml_init({.mem_size = ggml_tensor_overhead() + bytes + kPadding,
                    .mem_buffer = nullptr,
                    .no_alloc = false});
}

}  // namespace

Result<GgufEdit> GgufEdit::Open(const std::string& path) {
  GgufEdit edit;
  ggml_context* context = nullptr;
  const std::unique_ptr<gguf_context, Free> file(
      gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &context}));
  if (file == nullptr) return Corrupt(fmt::format("{}: ggml cannot read it", path));
  edit.contexts_.emplace_back(context);
  edit.metadata_.reset(gguf_init_empty());
  gguf_set_kv(edit.metadata_.get(), file.get());
  for (int64_t i = 0; i < gguf_get_n_tensors(file.get()); ++i) {
    edit.tensors_.push_back(ggml_get_tensor(context, gguf_get_tensor_name(file.get(), i)));
  }
  return edit;
}

void GgufEdit::SetText(const std::string& key, const std::string& value) {
  gguf_set_val_str(metadata_.get(), key.c_str(), value.c_str());
}

ggml_tensor* GgufEdit::Find(std::string_view name) const {
  for (ggml_tensor* tensor : tensors_) {
    if (name == ggml_get_name(tensor)) return tensor;
  }
  return nullptr;
}

ggml_tensor* GgufEdit::tensor(std::string_view name) const {
  ggml_tensor* const found = Find(name);
  if (found == nullptr) std::abort();
  return found;
}

std::vector<std::string> GgufEdit::names() const {
  std::vector<std::string> names;
  for (const ggml_tensor* tensor : tensors_) names.emplace_back(ggml_get_name(tensor));
  return names;
}

void GgufEdit::Remove(std::string_view name) { std::erase(tensors_, tensor(name)); }

void GgufEdit::Add(const std::string& name, ggml_type type, int64_t columns, int64_t rows,
                   int64_t planes) {
  const int64_t rows_with_data = std::max<int64_t>(rows, 1);
  const int64_t columns_with_data = std::max(columns, ggml_blck_size(type));
  ggml_context* context =
      ContextFor(ggml_row_size(type, columns_with_data) * rows_with_data * planes);
  contexts_.emplace_back(context);
  ggml_tensor* tensor =
      ggml_new_tensor_3d(context, type, columns_with_data, rows_with_data, planes);
  ggml_set_name(tensor, name.c_str());
  std::memset(tensor->data, 0, ggml_nbytes(tensor));
  tensor->ne[0] = columns;
  tensor->ne[1] = rows;
  tensors_.push_back(tensor);
}

void GgufEdit::Dequantize() {
  for (ggml_tensor*& tensor : tensors_) {
    if (tensor->type == GGML_TYPE_F32) continue;
    const int64_t size = ggml_nelements(tensor);
    ggml_context* context = ContextFor(size * sizeof(float));
    contexts_.emplace_back(context);
    ggml_tensor* wide = ggml_new_tensor(context, GGML_TYPE_F32, GGML_MAX_DIMS, tensor->ne);
    ggml_set_name(wide, ggml_get_name(tensor));
    ggml_get_type_traits(tensor->type)->to_float(tensor->data, ggml_get_data_f32(wide), size);
    tensor = wide;
  }
}

Status GgufEdit::Save(const std::string& path) const {
  const std::unique_ptr<gguf_context, Free> file(gguf_init_empty());
  gguf_set_kv(file.get(), metadata_.get());
  for (const ggml_tensor* tensor : tensors_) gguf_add_tensor(file.get(), tensor);
  if (!gguf_write_to_file(file.get(), path.c_str(), /*only_meta=*/false)) {
    return IoError(fmt::format("cannot write {}", path));
  }
  return OkStatus();
}

Result<std::string> GgufEdit::SaveInParts(const std::string& stem, int num_parts) const {
  const auto path = [&](int part) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part + 1, num_parts);
  };
  for (int part = 0; part < num_parts; ++part) {
    const std::unique_ptr<gguf_context, Free> file(gguf_init_empty());
    if (part == 0) gguf_set_kv(file.get(), metadata_.get());
    gguf_set_val_u16(file.get(), "split.no", static_cast<uint16_t>(part));
    gguf_set_val_u16(file.get(), "split.count", static_cast<uint16_t>(num_parts));
    gguf_set_val_i32(file.get(), "split.tensors.count", static_cast<int32_t>(tensors_.size()));
    const size_t begin = tensors_.size() * part / num_parts;
    const size_t end = tensors_.size() * (part + 1) / num_parts;
    for (size_t i = begin; i < end; ++i) gguf_add_tensor(file.get(), tensors_[i]);
    if (!gguf_write_to_file(file.get(), path(part).c_str(), /*only_meta=*/false)) {
      return IoError(fmt::format("cannot write {}", path(part)));
    }
  }
  return path(0);
}

GgufChange SetU32(const std::string& key, uint32_t value) {
  return [=](GgufEdit& file) { gguf_set_val_u32(file.metadata(), key.c_str(), value); };
}

GgufChange SetString(const std::string& key, const std::string& value) {
  return [=](GgufEdit& file) { file.SetText(key, value); };
}

GgufChange RemoveKey(const std::string& key) {
  return [=](GgufEdit& file) { gguf_remove_key(file.metadata(), key.c_str()); };
}

GgufChange RemoveTensor(const std::string& name) {
  return [=](GgufEdit& file) { file.Remove(name); };
}

GgufChange AddTensor(const std::string& name, ggml_type type, int64_t columns, int64_t rows) {
  return [=](GgufEdit& file) { file.Add(name, type, columns, rows); };
}

GgufChange ReplaceTensor(const std::string& name, ggml_type type, int64_t columns, int64_t rows) {
  return [=](GgufEdit& file) {
    file.Remove(name);
    file.Add(name, type, columns, rows);
  };
}

}  // namespace ebb
