#include "src/model/loaded/weights.h"

#include <fmt/format.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "ebb/device.h"
#include "src/base/cgroup_limits.h"
#include "src/base/text/size_text.h"
#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

// kMinBytesForHugePages and kMaxBytesForHugePages bound the files that are copied to huge pages.
// Every decode step reads all weights, and from the 4 KiB pages of a mapped file that misses the
// TLB: SmolLM2 Q4_1 decodes in 5.4 ms instead of 6.1 from huge pages (one thread, 98 MB, virtual
// machine), for 8 ms more at load, next to the tokenizer's 50. For smaller files the TLB suffices,
// but they are copied too, so that matrices can be joined (JoinedWeights). For larger files a
// second copy in memory and the wait for it cost more.
constexpr size_t kMinBytesForHugePages = size_t{16} << 20;
constexpr size_t kMaxBytesForHugePages = size_t{1} << 30;

// kMaxFillThreads limits the threads that repack weights: each keeps a core busy at about 2 GB/s,
// and eight saturate the memory of most machines.
constexpr size_t kMaxFillThreads = 8;

// Returns whether the system gives huge pages to programs that ask for them.
bool HasHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(file, modes) && modes.find("[never]") == std::string::npos;
}

}  // namespace

bool FitsMemory(const GgufFile& file) {
  const std::optional<uint64_t> available = AvailableMemory();
  // Leaves a tenth for the cache, compute buffers and other programs.
  return !available.has_value() || file.TensorBytes() <= *available / 10 * 9;
}

bool RunsFasterFromCopy(const GgufFile& file) {
  const uint64_t bytes = file.TensorBytes();
  return bytes < kMinBytesForHugePages || (bytes <= kMaxBytesForHugePages && HasHugePages());
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
    return OutOfMemory(fmt::format("no memory for {} of weights", SizeText(bytes)));
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

void FillWeights(size_t count, const std::function<void(size_t index)>& fill) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) fill(i);
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
    // ggml takes a non-const pointer but never writes to this memory.
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

}  // namespace ebb
