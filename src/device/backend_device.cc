#include "src/device/backend_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "ggml.h"
#include "src/base/ggml_aborts.h"
#include "src/base/llama_runtime.h"
#include "src/base/page_units.h"
#include "src/base/sanitizers.h"
#include "src/base/text/size_text.h"
#include "src/device/backend_names.h"
#include "src/device/host_memory.h"

namespace ebb {
namespace {

constexpr size_t kExtent = kDeviceMemoryStep;

}  // namespace

Result<std::unique_ptr<BackendDevice>> BackendDevice::Create(const DeviceSpec& spec,
                                                             size_t row_bytes) {
  assert(row_bytes % sizeof(int32_t) == 0);
  EBB_RETURN_IF_ERROR(CheckProcessor());
  std::unique_ptr<BackendDevice> device(new BackendDevice(Lower(spec.name), row_bytes));
  ggml_backend_dev_t found = nullptr;
  EBB_RETURN_IF_ERROR(device->Call([&] {
    found = FindBackendDevice(spec.name);
    return OkStatus();
  }));
  if (found == nullptr) {
    return NotFound(
        fmt::format("no device \"{}\" here; there are: {}. A program built with "
                    "-DEBB_BACKENDS=cuda finds NVIDIA's cards, with vulkan also AMD's and Intel's, "
                    "as docs/user/gpu.md says; `ebb device list` shows what it finds",
                    spec.name, NamesOfDevices()));
  }
  device->is_host_ = !IsAccelerator(found);
  device->attention_ = spec.attention;
  if (!device->name_.starts_with(kRpcPrefix) && !device->is_host_) {
    device->name_ = Lower(ggml_backend_dev_name(found));
  }
  EBB_RETURN_IF_ERROR(device->Call([&] {
    device->backend_.reset(ggml_backend_dev_init(found, nullptr));
    if (device->backend_ == nullptr) {
      return OutOfMemory(fmt::format("device {} does not start", device->name_));
    }
    // One thread suffices, because only tests use this device; threads of several devices would
    // spin at the same time.
    if (device->is_host_) ggml_backend_cpu_set_n_threads(device->backend_.get(), 1);
    device->transfers_ = std::make_unique<RowTransfers>(device->backend_.get());
    if (device->HasPageNumbers()) {
      RowTransfers tried(device->backend_.get());
      const Result<bool> gathers =
          tried.GathersIntegers(static_cast<int64_t>(row_bytes / sizeof(int32_t)) * kRowsPerPage);
      device->gathers_pages_ = gathers.ok() && *gathers;
    }
    ggml_backend_dev_props props = {};
    ggml_backend_dev_get_props(found, &props);
    if (props.caps.async && props.caps.events) {
      device->copies_.reset(ggml_backend_dev_init(found, nullptr));
    }
    return OkStatus();
  }));
  size_t free = 0, total = 0;
  ggml_backend_dev_memory(found, &free, &total);
  constexpr size_t kUnknownTotal = size_t{64} << 30;
  const size_t limit = spec.memory_bytes > 0 ? spec.memory_bytes
                       : total > 0           ? total
                                             : kUnknownTotal;
  device->limit_extents_ = limit / kExtent;
  device->has_limit_ = spec.memory_bytes > 0;
  device->most_extents_ = device->limit_extents_ + 1;
  // Reserve one extent more than needed, so that the first extent can be aligned.
  void* const reserved = mmap(nullptr, (device->most_extents_ + 1) * kExtent, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return OutOfMemory("no addresses for a device's memory");
  device->reserved_ = reserved;
  const auto at = reinterpret_cast<uintptr_t>(reserved);
  device->begin_ = reinterpret_cast<std::byte*>((at + kExtent - 1) / kExtent * kExtent);
  device->place_of_.assign(device->most_extents_, -1);
  device->is_records_.assign(device->most_extents_, false);
  return device;
}

BackendDevice::~BackendDevice() {
  if (IsLost()) {
    // Leaks a lost device's memory, because freeing would end the process.
    Leak(&rows_.buffer);
    Leak(&staging_);
    for (Slab& slab : slabs_) Leak(&slab.buffer);
    for (Queue* queue : {&computing_, &copying_}) {
      for (auto& event : queue->events) Leak(&event);
    }
    if (transfers_ != nullptr) transfers_->Abandon();
    Leak(&copies_);
    Leak(&backend_);
  }
  for (const auto& [memory, num_bytes] : mapped_) (void)UnmapHostMemory(memory, num_bytes);
  if (reserved_ != nullptr) munmap(reserved_, (most_extents_ + 1) * kExtent);
}

Status BackendDevice::Call(const std::function<Status()>& work) {
  if (!lost_.ok()) return lost_;
  // A backend logs its driver's message and then aborts with a shorter one, so the error quotes the
  // log.
  const LlamaErrorScope logged;
  try {
    const GgmlAbortScope aborts;
    return work();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string said = logged.AllErrors();
    return lost_ = Internal(fmt::format("device {} was lost: {}{}{}", name_, error.what(),
                                        said.empty() ? "" : ": ", said));
  }
}

std::string_view BackendDevice::BackendName() const {
  return ggml_backend_reg_name(
      ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_.get())));
}

size_t BackendDevice::RowsOfExtent() const { return (kExtent + row_bytes_ - 1) / row_bytes_; }

int32_t BackendDevice::spare_row() const {
  return static_cast<int32_t>(capacity() * RowsOfExtent());
}

size_t BackendDevice::buffer_bytes() const {
  return rows_.buffer == nullptr ? 0 : ggml_backend_buffer_get_size(rows_.buffer.get());
}

int32_t BackendDevice::RowNumber(const std::byte* address) const {
  const size_t offset = address - begin_;
  const size_t place = static_cast<size_t>(place_of_[offset / kExtent]);
  return static_cast<int32_t>(place * RowsOfExtent() + offset % kExtent / row_bytes_);
}

Status BackendDevice::Resize(size_t num_extents) {
  return Call([&] { return ResizeBuffer(num_extents); });
}

Result<BackendDevice::Rows> BackendDevice::MakeRows(size_t num_extents) const {
  const auto num_rows = static_cast<int64_t>(num_extents * RowsOfExtent() + 2 * kRowsPerPage + 1);
  if (num_rows > std::numeric_limits<int32_t>::max()) {
    return OutOfMemory("more rows than a device's lists can name");
  }
  Rows made;
  made.context.reset(
      ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  if (made.context == nullptr) return OutOfMemory("no memory for a tensor");
  made.tensor =
      ggml_new_tensor_2d(made.context.get(), GGML_TYPE_F16,
                         static_cast<int64_t>(row_bytes_ / sizeof(ggml_fp16_t)), num_rows);
  made.buffer.reset(ggml_backend_alloc_ctx_tensors(made.context.get(), backend_.get()));
  if (made.buffer == nullptr) {
    return OutOfMemory(
        fmt::format("device {} has no memory for {} of rows", name_,
                    SizeText(static_cast<double>(num_rows) * static_cast<double>(row_bytes_))));
  }
  // Clears all rows: steps also read rows that a mask hides, and NaN would pass through a mask.
  ggml_backend_buffer_clear(made.buffer.get(), 0);
  return made;
}

// Replaces the buffer. Copies the rows on the device if both buffers fit into its memory at once,
// else through the host.
Status BackendDevice::ResizeBuffer(size_t num_extents) {
  // Wait for all queued work, since rows are about to move.
  if (copies_ != nullptr) ggml_backend_synchronize(copies_.get());
  ggml_backend_synchronize(backend_.get());
  transfers_->Release();
  const bool fit_beside =
      !has_limit_ || rows_.buffer == nullptr || capacity() + num_extents <= limit_extents_;
  if (fit_beside) {
    Result<Rows> made = MakeRows(num_extents);
    if (made.ok()) {
      EBB_RETURN_IF_ERROR(TakeOver(rows_, *std::move(made), num_extents));
      return OkStatus();
    }
    if (rows_.buffer == nullptr) return made.status();
  }
  const size_t extent_bytes = RowsOfExtent() * row_bytes_;
  // Round up to whole extents, as MapHostMemory() requires.
  const size_t host_bytes = (num_taken_ * extent_bytes / kExtent + 1) * kExtent;
  EBB_ASSIGN_OR_RETURN(std::byte* const memory, MapHostMemory(host_bytes));
  const auto unmap = [&](void*) { (void)UnmapHostMemory(memory, host_bytes); };
  const std::unique_ptr<void, decltype(unmap)> mapped(memory, unmap);
  size_t next = 0;
  for (size_t place = 0; place < capacity(); ++place) {
    if (extent_at_[place] < 0) continue;
    ggml_backend_tensor_get(rows_.tensor, memory + next++ * extent_bytes, place * extent_bytes,
                            extent_bytes);
  }
  const size_t had = capacity();
  std::vector<int32_t> extent_at;
  extent_at.reserve(std::max(had, num_extents));
  rows_ = {};
  Result<Rows> made = MakeRows(num_extents);
  const Status status = made.status();
  if (!made.ok()) {
    num_extents = had;
    made = MakeRows(had);
    if (!made.ok()) return lost_ = Internal("the device's memory was taken by somebody else");
  }
  next = 0;
  extent_at.assign(num_extents, -1);
  for (const int32_t extent : extent_at_) {
    if (extent < 0) continue;
    ggml_backend_tensor_set(made->tensor, memory + next * extent_bytes, next * extent_bytes,
                            extent_bytes);
    extent_at[next] = extent;
    place_of_[extent] = static_cast<int32_t>(next++);
  }
  extent_at_ = std::move(extent_at);
  rows_ = *std::move(made);
  ++generation_;
  return status;
}

Status BackendDevice::Compute(ggml_cgraph* graph) const {
  const ggml_status status = ggml_backend_graph_compute_async(backend(), graph);
  if (status == GGML_STATUS_SUCCESS) return OkStatus();
  return Internal(fmt::format("device {} failed a step: {}", name_, ggml_status_to_string(status)));
}

Status BackendDevice::TakeOver(const Rows& from, Rows to, size_t num_extents) {
  std::vector<int32_t> extent_at(num_extents, -1);
  std::vector<int32_t> places = place_of_;
  constexpr size_t kTensors = 4;
  const auto rows_of_extent = static_cast<int64_t>(RowsOfExtent());
  int32_t next = 0;
  for (const int32_t extent : extent_at_) {
    if (extent < 0) continue;
    std::unique_ptr<ggml_context, GgmlDeleter> views(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    if (views == nullptr) return OutOfMemory("no memory for tensors");
    const auto view = [&](ggml_tensor* of, int32_t place) {
      ggml_tensor* part = ggml_view_2d(views.get(), of, of->ne[0], rows_of_extent, of->nb[1],
                                       size_t(place) * rows_of_extent * of->nb[1]);
      ggml_backend_view_init(part);
      return part;
    };
    ggml_backend_tensor_copy(view(from.tensor, places[extent]), view(to.tensor, next));
    extent_at[next] = extent;
    places[extent] = next++;
  }
  ggml_backend_synchronize(backend_.get());
  place_of_ = std::move(places);
  extent_at_ = std::move(extent_at);
  rows_ = std::move(to);
  ++generation_;
  return OkStatus();
}

Result<std::byte*> BackendDevice::AllocatePinned(size_t num_bytes) {
  constexpr size_t kExtentsOfSlab = 32;
  const size_t num = (num_bytes + kExtent - 1) / kExtent;
  const auto take = [&](Slab* slab) -> std::byte* {
    size_t length = 0;
    for (size_t i = 0; i < slab->taken.size(); ++i) {
      length = slab->taken[i] ? 0 : length + 1;
      if (length < num) continue;
      const size_t first = i + 1 - num;
      std::fill_n(slab->taken.begin() + static_cast<std::ptrdiff_t>(first), num, true);
      return slab->begin + first * kExtent;
    }
    return nullptr;
  };
  for (Slab& slab : slabs_) {
    if (std::byte* const memory = take(&slab); memory != nullptr) return memory;
  }
  auto* const type = ggml_backend_dev_host_buffer_type(ggml_backend_get_device(backend_.get()));
  const size_t size = std::max(num, kExtentsOfSlab);
  Slab slab;
  if (type != nullptr && !is_host_) {
    // Allocate one extent more than needed, so that the first extent can be aligned.
    slab.buffer.reset(ggml_backend_buft_alloc_buffer(type, (size + 1) * kExtent));
  }
  if (slab.buffer == nullptr) {
    EBB_ASSIGN_OR_RETURN(std::byte* const memory, MapHostMemory(num_bytes));
    mapped_[memory] = num_bytes;
    return memory;
  }
  const auto at = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(slab.buffer.get()));
  slab.begin = reinterpret_cast<std::byte*>((at + kExtent - 1) / kExtent * kExtent);
  slab.taken.assign(size, false);
  slabs_.push_back(std::move(slab));
  return take(&slabs_.back());
}

// Frees the memory if it belongs to a slab; returns false if it does not.
bool BackendDevice::FreePinned(std::byte* memory, size_t num_bytes) {
  for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
    const size_t size = slab->taken.size() * kExtent;
    if (memory < slab->begin || memory >= slab->begin + size) continue;
    const size_t first = static_cast<size_t>(memory - slab->begin) / kExtent;
    std::fill_n(slab->taken.begin() + static_cast<std::ptrdiff_t>(first),
                (num_bytes + kExtent - 1) / kExtent, false);
    if (std::ranges::count(slab->taken, true) > 0) return true;
    // Leak the buffer of a lost device, since freeing it would end the process.
    if (IsLost()) Leak(&slab->buffer);
    slabs_.erase(slab);
    return true;
  }
  return false;
}

Result<std::byte*> BackendDevice::Allocate(MemoryKind kind, size_t num_bytes) {
  if (kind == MemoryKind::kPinned) return AllocatePinned(num_bytes);
  const size_t num = (num_bytes + kExtent - 1) / kExtent;
  if (num_taken_ + num > limit_extents_) {
    return OutOfMemory(fmt::format("device {}: all {} for rows are taken", name_,
                                   SizeText(limit_extents_ * kExtent)));
  }
  if (num_taken_ + num > capacity()) {
    const size_t least = num_taken_ + num;
    // Grow by a quarter more than needed, so that a growing cache is rarely copied.
    const size_t wanted =
        std::min(std::max(least + least / 4, kLeastDeviceExtents), std::max(limit_extents_, least));
    if (!Resize(wanted).ok()) EBB_RETURN_IF_ERROR(Resize(least));
  }
  // Addresses must be consecutive; their places in the buffer need not be.
  size_t first = 0, length = 0;
  for (size_t extent = 0; extent < most_extents_ && length < num; ++extent) {
    if (place_of_[extent] >= 0) {
      length = 0;
      continue;
    }
    if (length++ == 0) first = extent;
  }
  if (length < num) return OutOfMemory("no addresses for a device's memory");
  size_t place = 0;
  for (size_t i = 0; i < num; ++i) {
    while (extent_at_[place] >= 0) ++place;
    extent_at_[place] = static_cast<int32_t>(first + i);
    place_of_[first + i] = static_cast<int32_t>(place);
    is_records_[first + i] = kind == MemoryKind::kRecords;
  }
  num_taken_ += num;
  return begin_ + first * kExtent;
}

Status BackendDevice::Free(MemoryKind kind, std::byte* memory, size_t num_bytes) {
  if (kind == MemoryKind::kPinned) {
    if (FreePinned(memory, num_bytes)) return OkStatus();
    mapped_.erase(memory);
    return UnmapHostMemory(memory, num_bytes);
  }
  const size_t first = (memory - begin_) / kExtent;
  const size_t num = (num_bytes + kExtent - 1) / kExtent;
  for (size_t extent = first; extent < first + num; ++extent) {
    if (kind == MemoryKind::kRecords) Clear(extent);
    extent_at_[static_cast<size_t>(place_of_[extent])] = -1;
    place_of_[extent] = -1;
  }
  num_taken_ -= num;
  ++num_frees_;
  // Shrink the buffer once a third of it is unused: rarely enough that the copy pays off.
  const size_t wanted = std::max(num_taken_ + num_taken_ / 8, kLeastDeviceExtents);
  if (wanted * 3 < capacity() * 2) {
    try {
      (void)Resize(wanted);
    } catch (const std::bad_alloc&) {
      // The buffer stays as large as it is.
    }
  }
  return OkStatus();
}

// Fills an extent that held records with zeros before it is used for F16 rows: records are
// arbitrary bits, but all F16 rows must be finite, even masked ones.
void BackendDevice::Clear(size_t extent) {
  is_records_[extent] = false;
  const size_t extent_bytes = RowsOfExtent() * row_bytes_;
  (void)Call([&] {
    ggml_backend_tensor_memset(rows_.tensor, 0,
                               static_cast<size_t>(place_of_[extent]) * extent_bytes, extent_bytes);
    return OkStatus();
  });
}

// Joins parts that are adjacent on both sides into one copy, up to the end of an extent.
DeviceEvent BackendDevice::Copy(std::span<const CopyPart> parts) {
  for (size_t i = 0; i < parts.size();) {
    const CopyPart& first = parts[i];
    size_t num_bytes = first.num_bytes;
    size_t next = i + 1;
    while (next < parts.size() && parts[next].from == first.from + num_bytes &&
           parts[next].to == first.to + num_bytes &&
           static_cast<size_t>(parts[next].to - begin_) % kExtent != 0) {
      num_bytes += parts[next++].num_bytes;
    }
    const size_t at = size_t(RowNumber(first.to)) * row_bytes_;
    ggml_backend_tensor_set_async(BackendOf(DeviceQueue::kToDevice), rows_.tensor, first.from, at,
                                  num_bytes);
    i = next;
  }
  return Record(DeviceQueue::kToDevice);
}

DeviceEvent BackendDevice::Record(DeviceQueue queue) const {
  if (IsLost()) return {};
  Queue& of = QueueOf(queue);
  auto& event = of.events[++of.number % kNumEvents];
  if (event == nullptr) {
    event.reset(ggml_backend_event_new(ggml_backend_get_device(backend_.get())));
  }
  if (event != nullptr) ggml_backend_event_record(event.get(), BackendOf(queue));
  return {.queue = queue, .number = of.number};
}

Status BackendDevice::QueueWait(DeviceQueue queue, const DeviceEvent& event) {
  if (event.number == 0 || BackendOf(queue) == BackendOf(event.queue)) return OkStatus();
  return Call([&] {
    const auto& of = QueueOf(event.queue).events[event.number % kNumEvents];
    if (of == nullptr) return Wait(event);
    ggml_backend_event_wait(BackendOf(queue), of.get());
    return OkStatus();
  });
}

Status BackendDevice::Wait(const DeviceEvent& event) {
  if (event.number == 0) return OkStatus();
  return Call([&] {
    const auto& of = QueueOf(event.queue).events[event.number % kNumEvents];
    if (of != nullptr) {
      ggml_backend_event_synchronize(of.get());
    } else {
      ggml_backend_synchronize(BackendOf(event.queue));
    }
    return OkStatus();
  });
}

std::byte* BackendDevice::Staging(size_t num_bytes) {
  // kBytes is the size of the pinned buffer, which lives until the device is closed. Callers copy a
  // few MiB at a time through it; for larger copies, which are rare, this returns null.
  constexpr size_t kBytes = size_t{8} << 20;
  if (IsLost() || num_bytes > kBytes) return nullptr;
  if (staging_ == nullptr) {
    const Status status = Call([&] {
      auto* type = ggml_backend_dev_host_buffer_type(ggml_backend_get_device(backend_.get()));
      if (type == nullptr) type = ggml_backend_cpu_buffer_type();
      staging_.reset(ggml_backend_buft_alloc_buffer(type, kBytes));
      return OkStatus();
    });
    if (!status.ok() || staging_ == nullptr) return nullptr;
  }
  return static_cast<std::byte*>(ggml_backend_buffer_get_base(staging_.get()));
}

// Lists the rows of the buffer that contain the ranges at `addresses`. Each range has `num_bytes`
// bytes, whole rows.
void BackendDevice::ListRows(std::span<const std::byte* const> addresses, size_t num_bytes,
                             std::vector<int32_t>* numbers) const {
  assert(num_bytes % row_bytes_ == 0);
  numbers->clear();
  for (const std::byte* address : addresses) {
    const int32_t first = RowNumber(address);
    for (size_t i = 0; i < num_bytes / row_bytes_; ++i) {
      numbers->push_back(first + static_cast<int32_t>(i));
    }
  }
}

bool BackendDevice::AreRows(std::span<const std::byte* const> rows, size_t num_bytes) const {
  return num_bytes % row_bytes_ == 0 && std::ranges::all_of(rows, [&](const std::byte* row) {
           return static_cast<size_t>(row - begin_) % kExtent % row_bytes_ == 0;
         });
}

BackendDevice::Covered BackendDevice::Cover(std::span<const std::byte* const> records,
                                            size_t num_bytes) const {
  Covered covered;
  const auto offset_in_row = [&](const std::byte* record) {
    return static_cast<size_t>(record - begin_) % kExtent % row_bytes_;
  };
  const auto num_rows = [&](const std::byte* record) {
    return (offset_in_row(record) + num_bytes + row_bytes_ - 1) / row_bytes_;
  };
  for (const std::byte* record : records) {
    const int32_t first = RowNumber(record);
    for (size_t i = 0; i < num_rows(record); ++i) {
      covered.rows.push_back(first + static_cast<int32_t>(i));
    }
  }
  std::ranges::sort(covered.rows);
  covered.rows.erase(std::unique(covered.rows.begin(), covered.rows.end()), covered.rows.end());
  for (const std::byte* record : records) {
    const auto at = std::ranges::lower_bound(covered.rows, RowNumber(record));
    covered.places.push_back(static_cast<size_t>(at - covered.rows.begin()) * row_bytes_ +
                             offset_in_row(record));
  }
  return covered;
}

Status BackendDevice::ReadAll(std::span<const int32_t> numbers, std::byte* to) {
  for (size_t first = 0; first < numbers.size(); first += RowTransfers::kMostRows) {
    const size_t num = std::min(RowTransfers::kMostRows, numbers.size() - first);
    EBB_RETURN_IF_ERROR(ReadNumbers(numbers.subspan(first, num), to + first * row_bytes_));
  }
  return OkStatus();
}

Status BackendDevice::WriteAll(std::span<const int32_t> numbers, Contents contents,
                               const std::byte* from) {
  for (size_t first = 0; first < numbers.size(); first += RowTransfers::kMostRows) {
    const size_t num = std::min(RowTransfers::kMostRows, numbers.size() - first);
    EBB_RETURN_IF_ERROR(
        WriteNumbers(numbers.subspan(first, num), contents, from + first * row_bytes_));
  }
  return OkStatus();
}

Status BackendDevice::ReadRows(std::span<const std::byte* const> rows, size_t num_bytes,
                               std::byte* to) {
  if (!AreRows(rows, num_bytes)) {
    const Covered covered = Cover(rows, num_bytes);
    std::vector<std::byte> memory(covered.rows.size() * row_bytes_);
    EBB_RETURN_IF_ERROR(ReadAll(covered.rows, memory.data()));
    for (const size_t place : covered.places) {
      std::memcpy(to, memory.data() + place, num_bytes);
      to += num_bytes;
    }
    return OkStatus();
  }
  std::vector<int32_t> numbers;
  ListRows(rows, num_bytes, &numbers);
  return ReadAll(numbers, to);
}

// Reads rows by a graph. If the device has no memory for a graph, reads row by row, so that moves
// of rows need not fail.
Status BackendDevice::ReadNumbers(std::span<const int32_t> numbers, std::byte* to) {
  const Status status =
      Call([&] { return transfers_->Read(rows_.tensor, numbers, spare_row(), to); });
  if (status.code() != StatusCode::kOutOfMemory) return status;
  return Call([&] {
    for (const int32_t number : numbers) {
      ggml_backend_tensor_get(rows_.tensor, to, size_t(number) * row_bytes_, row_bytes_);
      to += row_bytes_;
    }
    return OkStatus();
  });
}

Status BackendDevice::WriteNumbers(std::span<const int32_t> numbers, Contents contents,
                                   const std::byte* from) {
  const Status status =
      Call([&] { return transfers_->Write(rows_.tensor, numbers, unread_row(), contents, from); });
  if (status.code() != StatusCode::kOutOfMemory) return status;
  return Call([&] {
    for (const int32_t number : numbers) {
      ggml_backend_tensor_set(rows_.tensor, from, size_t(number) * row_bytes_, row_bytes_);
      from += row_bytes_;
    }
    return OkStatus();
  });
}

// Writes ranges of bytes. Records may share a row of the buffer with other records: such rows are
// read, changed, and written back.
Status BackendDevice::WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                                const std::byte* from) {
  if (rows.empty()) return OkStatus();
  const Contents contents = ContentsAt(rows.front());
  if (!AreRows(rows, num_bytes)) {
    assert(contents == Contents::kBits);
    const Covered covered = Cover(rows, num_bytes);
    std::vector<std::byte> memory(covered.rows.size() * row_bytes_);
    EBB_RETURN_IF_ERROR(ReadAll(covered.rows, memory.data()));
    for (const size_t place : covered.places) {
      std::memcpy(memory.data() + place, from, num_bytes);
      from += num_bytes;
    }
    return WriteAll(covered.rows, contents, memory.data());
  }
  std::vector<int32_t> numbers;
  ListRows(rows, num_bytes, &numbers);
  return WriteAll(numbers, contents, from);
}

// Copies rows in batches in which no row is read after it was written, because the graph of a batch
// reads all of its rows first.
Status BackendDevice::CopyRows(std::span<const CopyPart> rows) {
  if (IsLost()) return lost_;
  if (rows.empty()) return OkStatus();
  const Contents contents = ContentsAt(rows.front().to);
  std::vector<int32_t> from, to;
  std::vector<bool> is_written;
  std::vector<size_t> written;
  const auto flush = [&]() -> Status {
    for (const size_t row : written) is_written[row] = false;
    written.clear();
    if (from.empty()) return OkStatus();
    Status status =
        Call([&] { return transfers_->Copy(rows_.tensor, from, to, spare_row(), contents); });
    if (status.code() == StatusCode::kOutOfMemory) {
      std::vector<std::byte> rows_between(from.size() * row_bytes_);
      status = ReadNumbers(from, rows_between.data());
      if (status.ok()) status = WriteNumbers(to, contents, rows_between.data());
    }
    from.clear();
    to.clear();
    return status;
  };
  is_written.resize(static_cast<size_t>(rows_.tensor == nullptr ? 0 : rows_.tensor->ne[1]));
  for (const CopyPart& part : rows) {
    assert(part.num_bytes % row_bytes_ == 0);
    const int32_t source = RowNumber(part.from), target = RowNumber(part.to);
    for (size_t i = 0; i < part.num_bytes / row_bytes_; ++i) {
      const auto read = static_cast<size_t>(source) + i, write = static_cast<size_t>(target) + i;
      if (is_written[read] || is_written[write] || from.size() == RowTransfers::kMostRows) {
        EBB_RETURN_IF_ERROR(flush());
      }
      is_written[write] = true;
      written.push_back(write);
      from.push_back(static_cast<int32_t>(read));
      to.push_back(static_cast<int32_t>(write));
    }
  }
  return flush();
}

}  // namespace ebb
