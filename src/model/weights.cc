#include "src/model/weights.h"

#include <fmt/format.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <utility>

#include "ebb/device.h"
#include "src/base/cgroup_limits.h"
#include "src/base/llama_runtime.h"
#include "src/model/product_layout.h"

namespace ebb {
namespace {

// Joining matrices that lie apart in the file costs a copy at load; what it saves, two barriers a
// step, is a few microseconds, which matters only next to matrices that are read as fast.
constexpr size_t kMaxBytesCopiedToJoin = size_t{1} << 20;

// Every decode step reads all weights. From the pages of a mapped file (4 KiB) that misses the
// TLB, from huge pages it does not: SmolLM2 Q4_1 decodes in 5.4 ms instead of 6.1 (one thread,
// 98 MB, virtual machine) for 8 ms more at load, beside the tokenizer's 50. Below, the TLB reaches
// everything anyway; above, a second copy in memory and the wait for it weigh more.
constexpr size_t kMinBytesForHugePages = size_t{16} << 20;
constexpr size_t kMaxBytesForHugePages = size_t{1} << 30;

// Repacking keeps a core busy at about 2 GB/s; eight saturate the memory of most machines.
constexpr size_t kMaxFillThreads = 8;

// Whether the system gives huge pages to those who ask.
bool HasHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(file, modes) && modes.find("[never]") == std::string::npos;
}

}  // namespace

bool FitsMemory(const GgufFile& file) {
  const std::optional<uint64_t> available = AvailableMemory();
  // The rest is for the cache, compute buffers and everything else that runs.
  return !available.has_value() || file.TensorBytes() <= *available / 10 * 9;
}

bool RunsFasterFromHugePages(const GgufFile& file) {
  const uint64_t bytes = file.TensorBytes();
  return bytes >= kMinBytesForHugePages && bytes <= kMaxBytesForHugePages && HasHugePages();
}

Result<uint64_t> AllocateWeights(ggml_backend_buffer_type_t type,
                                 std::span<ggml_tensor* const> tensors, WeightBuffers* buffers) {
  if (tensors.empty()) return uint64_t{0};
  const size_t alignment = ggml_backend_buft_get_alignment(type);
  const auto padded_size = [&](const ggml_tensor* tensor) {
    const size_t size = ggml_backend_buft_get_alloc_size(type, tensor);
    return (size + alignment - 1) / alignment * alignment;
  };
  size_t bytes = 0;
  for (const ggml_tensor* tensor : tensors) bytes += padded_size(tensor);
  ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, bytes);
  if (buffer == nullptr) {
    return OutOfMemory(fmt::format("no memory for {} bytes of weights", bytes));
  }
  buffers->buffers.emplace_back(buffer);
  ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  AdviseHugePages(buffer);
  auto* address = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
  for (ggml_tensor* tensor : tensors) {
    ggml_backend_tensor_alloc(buffer, tensor, address);
    address += padded_size(tensor);
  }
  return uint64_t{bytes};
}

void FillWeights(size_t count,
                 const std::function<void(size_t index, std::vector<std::byte>& scratch)>& fill) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    std::vector<std::byte> scratch;
    for (size_t i = next++; i < count; i = next++) fill(i, scratch);
  };
  const size_t threads = std::min<size_t>(AvailableProcessors().threads, kMaxFillThreads);
  std::vector<std::future<void>> others;  // each ends before `next` does
  while (others.size() + 1 < std::min(threads, count)) {
    others.push_back(std::async(std::launch::async, work));
  }
  work();
  for (std::future<void>& other : others) other.get();
}

MappedBuffers::MappedBuffers(const GgufFile& file, WeightBuffers* buffers) : file_(file) {
  for (const MappedFile& mapping : file.mappings()) {
    // ggml takes a pointer to memory that it never writes.
    const std::span<const std::byte> bytes = mapping.bytes();
    buffers_.push_back(
        ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size()));
    buffers->buffers.emplace_back(buffers_.back());
    ggml_backend_buffer_set_usage(buffers_.back(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }
}

void MappedBuffers::Place(ggml_tensor* tensor, std::span<const std::byte> data) const {
  ggml_backend_tensor_alloc(buffers_[file_.PartOf(data)], tensor,
                            const_cast<std::byte*>(data.data()));
}

WeightLoader::WeightLoader(const GgufFile& file, WeightMode mode, size_t max_tensors,
                           bool for_device)
    : file_(file), mode_(mode), for_device_(for_device), fits_memory_(FitsMemory(file)) {
  InitLlamaRuntime();
  context_.reset(ggml_init(
      {.mem_size = max_tensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  if (for_device || !fits_memory_) return;
  repack_types_ = PackedBufferTypes();
  use_huge_pages_ = RunsFasterFromHugePages(file);
}

Result<const GgufTensor*> WeightLoader::Find(std::string_view name, int64_t columns,
                                             int64_t rows) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return Corrupt(fmt::format("the file lacks tensor {}", name));
  if (tensor->dims != std::array<int64_t, GGML_MAX_DIMS>{columns, rows, 1, 1}) {
    return Corrupt(fmt::format("tensor {} has shape {}, expected [{}, {}]", name,
                               tensor->ShapeString(), columns, rows));
  }
  return tensor;
}

std::optional<WeightLoader::Weight> WeightLoader::Plan(std::vector<Part> parts, ggml_type type,
                                                       int64_t columns, int64_t rows,
                                                       Use use) const {
  Weight weight;
  weight.parts = std::move(parts);
  weight.use = use;
  const bool widen = mode_ == WeightMode::kDequantize && type != GGML_TYPE_F32;
  if (use == Use::kMatmul && !widen) {
    weight.repack_type = PackedTypeOf(repack_types_, type, columns, rows);
  }
  bool contiguous = true;
  size_t bytes = weight.parts.front().bytes;
  for (size_t i = 1; i < weight.parts.size(); ++i) {
    const auto previous = weight.parts[i - 1].source->data;
    contiguous &= previous.data() + previous.size() == weight.parts[i].source->data.data();
    bytes += weight.parts[i].bytes;
  }
  if (widen) {
    weight.place = Place::kOwned;
  } else if (weight.repack_type != nullptr) {
    weight.place = Place::kRepacked;
  } else if (use_huge_pages_ && use == Use::kMatmul) {
    weight.place = Place::kOwned;
  } else if (contiguous) {
    weight.place = Place::kMapped;
  } else if (bytes <= kMaxBytesCopiedToJoin) {
    weight.place = Place::kOwned;
  } else {
    return std::nullopt;
  }
  return weight;
}

ggml_tensor* WeightLoader::Declare(Weight weight, ggml_type type, int64_t columns, int64_t rows) {
  for (const Part& part : weight.parts) {
    if (part.source != nullptr) declared_.insert(part.source->name);
  }
  weight.tensor = ggml_new_tensor_2d(context_.get(), type, columns, rows);
  // A graph names what has no name, and engines on several threads have these in theirs.
  const GgufTensor* const source = weight.parts.front().source;
  ggml_set_name(weight.tensor, source == nullptr ? "zeros" : std::string(source->name).c_str());
  weights_.push_back(std::move(weight));
  return weights_.back().tensor;
}

Result<ggml_tensor*> WeightLoader::Matrix(std::string_view name, int64_t columns, int64_t rows,
                                          Use use) {
  EBB_ASSIGN_OR_RETURN(const GgufTensor* source, Find(name, columns, rows));
  if (!CanMultiply(source->type)) {
    const char* type = ggml_type_name(source->type);
    return Unsupported(fmt::format("tensor {} is of type {}, which no product takes", name,
                                   type == nullptr ? "unknown" : type));
  }
  Weight weight =
      *Plan({{.source = source, .bytes = source->data.size()}}, source->type, columns, rows, use);
  // Tied embeddings: the same bytes serve both uses unless the product wants its own layout.
  for (Weight& other : weights_) {
    if (other.parts.front().source != source || weight.place == Place::kRepacked) continue;
    if (use == Use::kMatmul) {
      other.use = use;
      other.place = weight.place;
    }
    return other.tensor;
  }
  const bool widen = mode_ == WeightMode::kDequantize;
  return Declare(std::move(weight), widen ? GGML_TYPE_F32 : source->type, columns, rows);
}

Result<ggml_tensor*> WeightLoader::JoinedMatrix(const std::vector<Piece>& pieces, int64_t columns) {
  std::vector<Part> parts;
  int64_t rows = 0;
  for (const Piece& piece : pieces) {
    EBB_ASSIGN_OR_RETURN(const GgufTensor* source, Find(piece.name, columns, piece.size));
    const bool same_type = parts.empty() || source->type == parts.front().source->type;
    if (!same_type || !CanMultiply(source->type)) return static_cast<ggml_tensor*>(nullptr);
    parts.push_back({.source = source, .bytes = source->data.size()});
    rows += piece.size;
  }
  const ggml_type type = parts.front().source->type;
  std::optional<Weight> weight = Plan(std::move(parts), type, columns, rows, Use::kMatmul);
  if (!weight.has_value()) return static_cast<ggml_tensor*>(nullptr);
  const bool widen = mode_ == WeightMode::kDequantize;
  return Declare(*std::move(weight), widen ? GGML_TYPE_F32 : type, columns, rows);
}

Result<ggml_tensor*> WeightLoader::Vector(std::string_view name, int64_t size) {
  return JoinedVector({{.name = std::string(name), .size = size}}, size);
}

Result<ggml_tensor*> WeightLoader::JoinedVector(const std::vector<Piece>& pieces, int64_t columns) {
  Weight weight;
  weight.place = pieces.size() == 1 ? Place::kMapped : Place::kOwned;
  int64_t size = 0;
  for (const Piece& piece : pieces) {
    size += piece.size;
    const GgufTensor* source = nullptr;
    if (pieces.size() == 1 || file_.FindTensor(piece.name) != nullptr) {
      EBB_ASSIGN_OR_RETURN(source, Find(piece.name, piece.size, 1));
    }
    if (source != nullptr && source->type != GGML_TYPE_F32) {
      return Unsupported(fmt::format("tensor {} is of type {}, expected f32", piece.name,
                                     ggml_type_name(source->type)));
    }
    weight.parts.push_back({.source = source, .bytes = piece.size * sizeof(float)});
  }
  return Declare(std::move(weight), GGML_TYPE_F32, columns, size / columns);
}

ggml_tensor* WeightLoader::Zeros(int64_t columns, int64_t rows) {
  Weight weight;
  weight.place = Place::kOwned;
  weight.parts.push_back({.source = nullptr, .bytes = columns * rows * sizeof(float)});
  return Declare(std::move(weight), GGML_TYPE_F32, columns, rows);
}

Status WeightLoader::CheckAllDeclared() const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (declared_.contains(tensor.name)) continue;
    return Unsupported(fmt::format(
        "the file has a tensor {}, which models of its family do not have", tensor.name));
  }
  return OkStatus();
}

void WeightLoader::Fill(const Weight& weight, std::vector<std::byte>& scratch) const {
  const size_t bytes = ggml_nbytes(weight.tensor);
  const bool joins_to_repack = weight.place == Place::kRepacked && weight.parts.size() > 1;
  if (joins_to_repack && scratch.size() < bytes) scratch.resize(bytes);
  auto* target = joins_to_repack ? scratch.data() : static_cast<std::byte*>(weight.tensor->data);
  for (const Part& part : weight.parts) {
    if (part.source == nullptr) {
      std::memset(target, 0, part.bytes);
      target += part.bytes;
      continue;
    }
    const std::span<const std::byte> data = part.source->data;
    if (part.source->type != weight.tensor->type) {
      const int64_t size = part.source->dims[0] * part.source->dims[1];
      ggml_get_type_traits(part.source->type)
          ->to_float(data.data(), reinterpret_cast<float*>(target), size);
      target += size * sizeof(float);
    } else if (weight.place == Place::kRepacked && !joins_to_repack) {
      ggml_backend_tensor_set(weight.tensor, data.data(), 0, data.size());
    } else {
      std::memcpy(target, data.data(), data.size());
      target += data.size();
    }
    file_.Drop(data);
  }
  if (joins_to_repack) ggml_backend_tensor_set(weight.tensor, scratch.data(), 0, bytes);
}

Status WeightLoader::LoadCopies(WeightBuffers* buffers) {
  std::map<ggml_backend_buffer_type_t, std::vector<ggml_tensor*>> tensors;
  std::vector<const Weight*> copied;
  for (const Weight& weight : weights_) {
    if (weight.place == Place::kMapped) continue;
    tensors[weight.place == Place::kRepacked ? weight.repack_type : ggml_backend_cpu_buffer_type()]
        .push_back(weight.tensor);
    copied.push_back(&weight);
  }
  for (const auto& [type, of_type] : tensors) {
    EBB_ASSIGN_OR_RETURN(const uint64_t bytes, AllocateWeights(type, of_type, buffers));
    weight_bytes_ += bytes;
  }
  // In the order of the file, which is being read meanwhile.
  std::ranges::stable_sort(copied, std::less<>(), [](const Weight* weight) {
    const GgufTensor* source = weight->parts.front().source;
    return source == nullptr ? nullptr : source->data.data();
  });
  FillWeights(copied.size(), [&](size_t index, std::vector<std::byte>& scratch) {
    Fill(*copied[index], scratch);
  });
  return OkStatus();
}

Status WeightLoader::LoadMapped(WeightBuffers* buffers) {
  const MappedBuffers mapped(file_, buffers);
  for (const Weight& weight : weights_) {
    if (weight.place != Place::kMapped) continue;
    const std::span<const std::byte> data = weight.parts.front().source->data;
    mapped.Place(weight.tensor, data);
    const size_t num_bytes = ggml_nbytes(weight.tensor);
    (weight.use == Use::kMatmul ? weight_bytes_ : lookup_bytes_) += num_bytes;
    if (weight.use == Use::kMatmul && !for_device_ && fits_memory_) {
      file_.Populate({data.data(), num_bytes});
    }
  }
  return OkStatus();
}

Status WeightLoader::Load(WeightBuffers* buffers) {
  // Copies first: their sources leave the mapping again, so that resident memory has no peak.
  EBB_RETURN_IF_ERROR(LoadCopies(buffers));
  EBB_RETURN_IF_ERROR(LoadMapped(buffers));
  buffers->context = std::move(context_);
  return OkStatus();
}

}  // namespace ebb
