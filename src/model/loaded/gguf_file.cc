#include "src/model/loaded/gguf_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "src/base/llama_runtime.h"
#include "src/base/text/size_text.h"
#include "src/base/text/utf8.h"

namespace ebb {
namespace {

// kTensorAlignment is the alignment that ggml's kernels and buffers need; writers of files use this
// or a multiple.
constexpr size_t kTensorAlignment = 32;

// Keys of a model in several parts.
constexpr std::string_view kPartsKey = "split.count";
constexpr std::string_view kPartKey = "split.no";  // from 0

// Returns whether a tensor belongs to an encoder of pictures or sounds, a separate model that some
// files contain together with the text model.
bool IsOfEncoder(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

// GgufValue gives, for each C++ type that Read() supports, ggml's type and accessor.
template <typename T>
struct GgufValue;
template <>
struct GgufValue<uint16_t> {
  static constexpr gguf_type kType = GGUF_TYPE_UINT16;
  static constexpr auto kGet = gguf_get_val_u16;
};
template <>
struct GgufValue<uint32_t> {
  static constexpr gguf_type kType = GGUF_TYPE_UINT32;
  static constexpr auto kGet = gguf_get_val_u32;
};
template <>
struct GgufValue<float> {
  static constexpr gguf_type kType = GGUF_TYPE_FLOAT32;
  static constexpr auto kGet = gguf_get_val_f32;
};
template <>
struct GgufValue<bool> {
  static constexpr gguf_type kType = GGUF_TYPE_BOOL;
  static constexpr auto kGet = gguf_get_val_bool;
};
template <>
struct GgufValue<std::string> {
  static constexpr gguf_type kType = GGUF_TYPE_STRING;
  static constexpr auto kGet = gguf_get_val_str;
};

}  // namespace

std::string GgufTensor::ShapeString() const {
  int num_dims = GGML_MAX_DIMS;
  while (num_dims > 1 && dims[num_dims - 1] == 1) --num_dims;
  std::string text = fmt::format("[{}", dims[0]);
  for (int i = 1; i < num_dims; ++i) text += fmt::format(", {}", dims[i]);
  return text + "]";
}

GgufFile::GgufFile(MappedFile mapping, ContextPtr context) : context_(std::move(context)) {
  mappings_.push_back(std::move(mapping));
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  EBB_ASSIGN_OR_RETURN(GgufFile file, Parse(std::move(mapping), path));
  file.paths_.push_back(path);
  if (Status status = file.OpenOtherParts(path); !status.ok()) {
    return file.ErrorOfLoading(status.WithPrefix(path));
  }
  return file;
}

Result<GgufFile> GgufFile::Of(std::span<const std::byte> contents, const std::string& name) {
  EBB_ASSIGN_OR_RETURN(GgufFile file, Parse(MappedFile::Of(contents), name));
  uint16_t num_parts = 1;
  EBB_RETURN_IF_ERROR(file.Read(kPartsKey, Need::kOptional, &num_parts));
  if (num_parts <= 1) return file;
  return Unsupported(
      fmt::format("{}: expected a whole model in memory, found a part of {}", name, num_parts));
}

Result<GgufFile> GgufFile::Parse(MappedFile mapping, const std::string& name) {
  Result<ContextPtr> context = ParseContext(mapping, name);
  if (!context.ok()) {
    EBB_RETURN_IF_ERROR(mapping.CheckUnchanged());
    return context.status();
  }
  GgufFile file(std::move(mapping), *std::move(context));
  if (Status status = file.IndexTensors(file.context_.get(), file.mappings_.front());
      !status.ok()) {
    return file.ErrorOfLoading(status.WithPrefix(name));
  }
  return file;
}

Result<GgufFile::ContextPtr> GgufFile::ParseContext(const MappedFile& mapping,
                                                    const std::string& name) {
  const LlamaErrorScope errors;
  const std::span<const std::byte> bytes = mapping.bytes();
  constexpr std::string_view kMagic = "GGUF";
  if (bytes.size() < kMagic.size() ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Corrupt(
        fmt::format("{}: expected a GGUF file; this one does not begin with \"{}\"", name, kMagic));
  }
  ContextPtr context(
      gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr}));
  if (context != nullptr) return context;
  return Corrupt(fmt::format("{}: expected a GGUF file: {}", name, errors.FirstError()));
}

// Opens the other parts by the names that llama-gguf-split gives them.
Status GgufFile::OpenOtherParts(const std::string& path) {
  uint16_t num_parts = 1, number = 0;
  EBB_RETURN_IF_ERROR(Read(kPartsKey, Need::kOptional, &num_parts));
  EBB_RETURN_IF_ERROR(Read(kPartKey, Need::kOptional, &number));
  if (num_parts <= 1) return OkStatus();
  const std::string extension = std::filesystem::path(path).extension();
  const auto ending = [&](int part) {
    return fmt::format("-{:05}-of-{:05}{}", part + 1, num_parts, extension);
  };
  if (number != 0) {
    return Unsupported(
        fmt::format("expected the first part of a model, found part {} of {}; give "
                    "the file whose name ends in {}",
                    number + 1, num_parts, ending(0)));
  }
  if (!path.ends_with(ending(0))) {
    return Unsupported(
        fmt::format("the first part of a model in {} parts is expected to have a "
                    "name that ends in {}, by which the others are found",
                    num_parts, ending(0)));
  }
  const std::string stem = path.substr(0, path.size() - ending(0).size());
  for (uint16_t part = 1; part < num_parts; ++part) {
    EBB_RETURN_IF_ERROR(AddPart(stem + ending(part), part, num_parts));
  }
  return OkStatus();
}

Status GgufFile::AddPart(const std::string& path, uint16_t number, uint16_t num_parts) {
  EBB_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  EBB_ASSIGN_OR_RETURN(GgufFile part, Parse(std::move(mapping), path));
  if (Status status = part.CheckPart(path, number, num_parts); !status.ok()) {
    return part.ErrorOfLoading(status);
  }
  other_contexts_.push_back(std::move(part.context_));
  mappings_.push_back(std::move(part.mappings_.front()));
  paths_.push_back(path);
  for (const GgufTensor& tensor : part.tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return Corrupt(fmt::format("{}: tensor {} is in another part too", path, tensor.name));
    }
    tensors_.push_back(tensor);
  }
  return OkStatus();
}

Status GgufFile::CheckPart(const std::string& path, uint16_t number, uint16_t num_parts) const {
  uint16_t found_parts = 0, found_number = 0;
  EBB_RETURN_IF_ERROR(Read(kPartsKey, Need::kRequired, &found_parts));
  EBB_RETURN_IF_ERROR(Read(kPartKey, Need::kRequired, &found_number));
  if (found_parts == num_parts && found_number == number) return OkStatus();
  return Corrupt(fmt::format("{} is part {} of {}, expected part {} of {}", path, found_number + 1,
                             found_parts, number + 1, num_parts));
}

Status GgufFile::CheckUnchanged() const {
  for (const MappedFile& part : mappings_) EBB_RETURN_IF_ERROR(part.CheckUnchanged());
  return OkStatus();
}

Status GgufFile::ErrorOfLoading(const Status& status) const {
  const Status unchanged = CheckUnchanged();
  return unchanged.ok() ? status : unchanged;
}

Status GgufFile::IndexTensors(const gguf_context* gguf, const MappedFile& mapping) {
  if (gguf_get_alignment(gguf) % kTensorAlignment != 0) {
    return Unsupported(fmt::format("tensors are aligned to {} bytes; expected a multiple of {}",
                                   gguf_get_alignment(gguf), kTensorAlignment));
  }
  const size_t num_tensors = gguf_get_n_tensors(gguf);
  const std::span<const std::byte> bytes = mapping.bytes();
  const size_t data_offset = gguf_get_data_offset(gguf);
  tensors_.reserve(num_tensors);
  for (size_t i = 0; i < num_tensors; ++i) {
    if (IsOfEncoder(gguf_get_tensor_name(gguf, i))) continue;
    tensor_index_.emplace(gguf_get_tensor_name(gguf, i), tensors_.size());
    GgufTensor& tensor = tensors_.emplace_back();
    tensor.name = gguf_get_tensor_name(gguf, i);
    tensor.type = gguf_get_tensor_type(gguf, i);
    const int64_t* dims = gguf_get_tensor_ne(gguf, i);
    std::copy_n(dims, GGML_MAX_DIMS, tensor.dims.begin());
    const size_t offset = gguf_get_tensor_offset(gguf, i);
    const size_t size = gguf_get_tensor_size(gguf, i);
    if (data_offset > bytes.size() || offset > bytes.size() - data_offset ||
        size > bytes.size() - data_offset - offset) {
      return Corrupt(fmt::format(
          "tensor {} of {} begins at {}, but the file ends at {}; is it truncated?", tensor.name,
          SizeText(size), SizeText(data_offset + offset), SizeText(bytes.size())));
    }
    tensor.data = bytes.subspan(data_offset + offset, size);
  }
  return OkStatus();
}

uint64_t GgufFile::TensorBytes() const {
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : tensors_) bytes += tensor.data.size();
  return bytes;
}

size_t GgufFile::PartOf(std::span<const std::byte> range) const {
  const auto holds = [&](const MappedFile& mapping) {
    const std::span<const std::byte> bytes = mapping.bytes();
    return std::less_equal<>()(bytes.data(), range.data()) &&
           std::less_equal<>()(range.data() + range.size(), bytes.data() + bytes.size());
  };
  return std::ranges::find_if(mappings_, holds) - mappings_.begin();
}

std::future<void> GgufFile::Prefetch() const {
  return std::async(std::launch::async, [this] {
    for (const MappedFile& mapping : mappings_) mapping.Prefetch();
  });
}

void GgufFile::Populate(std::span<const std::byte> range) const {
  mappings_[PartOf(range)].Populate(range);
}

void GgufFile::Drop(std::span<const std::byte> range) const {
  mappings_[PartOf(range)].Drop(range);
}

template <typename T>
Status GgufFile::Read(std::string_view key, Need need, T* value) const {
  const int64_t id = gguf_find_key(context_.get(), std::string(key).c_str());
  if (id < 0) {
    if (need == Need::kOptional) return OkStatus();
    return Corrupt(fmt::format("the metadata lacks {}", key));
  }
  const gguf_type type = gguf_get_kv_type(context_.get(), id);
  if (type != GgufValue<T>::kType) {
    return Corrupt(fmt::format("{} is of type {}, expected {}", key, gguf_type_name(type),
                               gguf_type_name(GgufValue<T>::kType)));
  }
  *value = GgufValue<T>::kGet(context_.get(), id);
  return OkStatus();
}
template Status GgufFile::Read(std::string_view, Need, uint16_t*) const;
template Status GgufFile::Read(std::string_view, Need, uint32_t*) const;
template Status GgufFile::Read(std::string_view, Need, float*) const;
template Status GgufFile::Read(std::string_view, Need, bool*) const;
template Status GgufFile::Read(std::string_view, Need, std::string*) const;

Status GgufFile::ReadStrings(std::string_view key, std::vector<std::string_view>* values) const {
  const int64_t id = gguf_find_key(context_.get(), std::string(key).c_str());
  if (id < 0) return Corrupt(fmt::format("the metadata lacks {}", key));
  if (gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(context_.get(), id) != GGUF_TYPE_STRING) {
    return Corrupt(fmt::format("{} is no array of strings", key));
  }
  const size_t size = gguf_get_arr_n(context_.get(), id);
  values->resize(size);
  for (size_t i = 0; i < size; ++i) (*values)[i] = gguf_get_arr_str(context_.get(), id, i);
  return OkStatus();
}

bool GgufFile::IsArray(std::string_view key) const {
  const int64_t id = gguf_find_key(context_.get(), std::string(key).c_str());
  return id >= 0 && gguf_get_kv_type(context_.get(), id) == GGUF_TYPE_ARRAY;
}

Status GgufFile::ReadNumbers(std::string_view key, std::vector<uint32_t>* values) const {
  const int64_t id = gguf_find_key(context_.get(), std::string(key).c_str());
  const gguf_type type = gguf_get_arr_type(context_.get(), id);
  if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32 && type != GGUF_TYPE_BOOL) {
    return Corrupt(fmt::format("{} is an array of {}, expected integers of 32 bits", key,
                               gguf_type_name(type)));
  }
  const void* const data = gguf_get_arr_data(context_.get(), id);
  values->resize(gguf_get_arr_n(context_.get(), id));
  for (size_t i = 0; i < values->size(); ++i) {
    if (type == GGUF_TYPE_BOOL) {
      (*values)[i] = static_cast<const uint8_t*>(data)[i] != 0 ? 1 : 0;
      continue;
    }
    std::memcpy(&(*values)[i], static_cast<const uint32_t*>(data) + i, sizeof(uint32_t));
    if (type == GGUF_TYPE_INT32 && static_cast<int32_t>((*values)[i]) < 0) {
      return Corrupt(fmt::format("{}[{}] is below 0", key, i));
    }
  }
  return OkStatus();
}

Result<std::string> GgufFile::ReadName() const {
  constexpr size_t kMaxNameBytes = 96;
  std::string name;
  EBB_RETURN_IF_ERROR(Read("general.name", Need::kOptional, &name));
  name.resize(Utf8Prefix(name, kMaxNameBytes).size());
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return name.empty() ? "unnamed" : name;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

uint64_t GgufFile::Fingerprint() const {
  constexpr size_t kSample = 64;  // bytes, at three places of a tensor
  const std::span<const std::byte> first = mappings_.front().bytes();
  const size_t size = std::min(gguf_get_data_offset(context_.get()), first.size());
  uint64_t hash = XXH3_64bits(first.data(), size);
  for (const GgufTensor& tensor : tensors_) {
    const size_t most = std::min(kSample, tensor.data.size());
    const size_t last = tensor.data.size() - most;
    for (const size_t at : {size_t{0}, last / 2, last}) {
      hash = XXH3_64bits_withSeed(tensor.data.data() + at, most, hash);
    }
  }
  return hash;
}

}  // namespace ebb
