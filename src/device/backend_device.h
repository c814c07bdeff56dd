// BackendDevice is a Device on a backend of ggml: CUDA, HIP, Vulkan, Metal, SYCL, another process
// over RPC, or, for tests, ggml's CPU backend, treated as if the host could not address its memory.
//
// All rows lie in one buffer of the backend, which grows and shrinks by copying on the device.
// Allocate() returns addresses that represent places in this buffer. The addresses are reserved
// without access rights, so that a thread of the host that reads there by mistake crashes. Steps
// name rows by their number in rows(); between steps the host reads, writes and copies rows with
// ReadRows(), WriteRows() and CopyRows(), which run small graphs on the device.
//
// Errors: OutOfMemory if the backend has no memory, after which nothing has changed; any other
// failure is an Internal error which says that the device was lost.
#ifndef EBB_DEVICE_BACKEND_DEVICE_H_
#define EBB_DEVICE_BACKEND_DEVICE_H_

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/device.h"
#include "ebb/status.h"
#include "src/base/ggml_deleter.h"
#include "src/base/page_units.h"
#include "src/device/device.h"
#include "src/device/row_transfers.h"

namespace ebb {

class BackendDevice final : public Device {
 public:
  // Opens the device that `spec` names. `row_bytes` is the size of a key or a value, a multiple of
  // 4; no row crosses the end of an extent. Errors: NotFound, listing the devices, if no device has
  // this name.
  static Result<std::unique_ptr<BackendDevice>> Create(const DeviceSpec& spec, size_t row_bytes);
  ~BackendDevice() override;

  [[nodiscard]] std::string_view name() const override { return name_; }
  Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) override;
  Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) override;
  // Copies parts while the device computes. REQUIRES: no part is larger than an extent or crosses
  // the end of one.
  DeviceEvent Copy(std::span<const CopyPart> parts) override;
  [[nodiscard]] DeviceEvent Record(DeviceQueue queue) const override;
  Status QueueWait(DeviceQueue queue, const DeviceEvent& event) override;
  Status Wait(const DeviceEvent& event) override;

  std::byte* Staging(size_t num_bytes) override;
  Status ReadRows(std::span<const std::byte* const> rows, size_t num_bytes, std::byte* to) override;
  Status WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                   const std::byte* from) override;
  Status CopyRows(std::span<const CopyPart> rows) override;

  // Runs `work`, which calls the backend. If `work` throws or ggml aborts, the device is lost: this
  // call and all later ones return an Internal error that says so.
  Status Call(const std::function<Status()>& work);
  // Starts the computation of a graph. Errors: Internal.
  [[nodiscard]] Status Compute(ggml_cgraph* graph) const;
  // Start copies of values to a tensor of the backend, from its element `first` on, and back. The
  // host must not use the values until Synchronize() has returned.
  template <typename T>
  void Upload(std::span<const T> values, size_t first, ggml_tensor* to) const {
    ggml_backend_tensor_set_async(backend(), to, values.data(), first * sizeof(T),
                                  values.size_bytes());
  }
  template <typename T>
  void Download(const ggml_tensor* from, size_t first, std::span<T> to) const {
    ggml_backend_tensor_get_async(backend(), from, to.data(), first * sizeof(T), to.size_bytes());
  }
  // Waits until all started computations and copies have ended.
  void Synchronize() const { ggml_backend_synchronize(backend()); }
  [[nodiscard]] bool IsLost() const { return !lost_.ok(); }
  [[nodiscard]] ggml_backend_t backend() const { return backend_.get(); }
  [[nodiscard]] bool is_host() const { return is_host_; }  // the backend is ggml's CPU backend
  // Returns ggml's name of the backend's kind, such as "CPU", "CUDA" or "RPC".
  [[nodiscard]] std::string_view BackendName() const;
  [[nodiscard]] DeviceAttention attention() const { return attention_; }
  // Returns the tensor of all rows, F16 [row_bytes / 2, rows of the buffer + a spare page + one
  // row]. Another tensor takes its place whenever generation() changes. All values are finite,
  // except in memory of kRecords.
  [[nodiscard]] ggml_tensor* rows() const { return rows_.tensor; }
  [[nodiscard]] uint64_t generation() const { return generation_; }
  // Returns how often Free() was called for device memory. After each call, the row at an address
  // may have another number.
  [[nodiscard]] uint64_t num_frees() const { return num_frees_; }
  // Returns the number of the row at an address from Allocate().
  [[nodiscard]] int32_t RowNumber(const std::byte* address) const;
  // Returns the first row of a page of zeros that belongs to no sequence, for padding lists of
  // rows.
  [[nodiscard]] int32_t spare_row() const;
  [[nodiscard]] int32_t unread_row() const {  // the row to write padding to; no list names it
    return spare_row() + 2 * static_cast<int32_t>(kRowsPerPage);
  }
  [[nodiscard]] size_t row_bytes() const { return row_bytes_; }
  // Returns whether every page of an arena begins at a multiple of kRowsPerPage rows. Pages then
  // have numbers too: the number of their first row divided by kRowsPerPage.
  [[nodiscard]] bool HasPageNumbers() const {
    return RowsOfExtent() % (2 * kRowsPerPage) == 0 &&
           RowsOfExtent() * row_bytes_ == kDeviceMemoryStep;
  }
  // Returns whether the backend can gather whole pages by their numbers.
  [[nodiscard]] bool GathersPages() const { return gathers_pages_; }
  // Returns the number of the buffer's rows that kDeviceMemoryStep bytes of addresses represent.
  [[nodiscard]] size_t RowsOfExtent() const;
  [[nodiscard]] size_t buffer_bytes() const;  // device memory for rows
  // Returns the bytes of the device's memory that the graphs of ReadRows(), WriteRows() and
  // CopyRows() keep between steps.
  [[nodiscard]] size_t transfer_bytes() const { return transfers_->device_bytes(); }

  using BufferHandle = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;

 private:
  BackendDevice(std::string name, size_t row_bytes)
      : Device(/*is_closed=*/true), name_(std::move(name)), row_bytes_(row_bytes) {}
  [[nodiscard]] size_t capacity() const { return extent_at_.size(); }
  // Rows owns the buffer of the device's rows and the tensor in it.
  struct Rows {
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    BufferHandle buffer;
    ggml_tensor* tensor = nullptr;
  };
  [[nodiscard]] Result<Rows> MakeRows(size_t num_extents) const;
  Status TakeOver(const Rows& from, Rows to, size_t num_extents);
  // Replaces the buffer by one for `num_extents` extents with the same contents.
  Status Resize(size_t num_extents);
  Status ResizeBuffer(size_t num_extents);
  void ListRows(std::span<const std::byte* const> addresses, size_t num_bytes,
                std::vector<int32_t>* numbers) const;
  using Contents = RowTransfers::Contents;
  [[nodiscard]] Contents ContentsAt(const std::byte* address) const {
    const bool is_records = is_records_[static_cast<size_t>(address - begin_) / kDeviceMemoryStep];
    return is_records ? Contents::kBits : Contents::kHalves;
  }
  Status ReadNumbers(std::span<const int32_t> numbers, std::byte* to);
  Status WriteNumbers(std::span<const int32_t> numbers, Contents contents, const std::byte* from);
  // Covered lists the rows of the buffer that contain records, which may begin and end within rows.
  struct Covered {
    std::vector<int32_t> rows;   // numbers in ascending order
    std::vector<size_t> places;  // [records]: offsets in these rows, laid side by side
  };
  [[nodiscard]] Covered Cover(std::span<const std::byte* const> records, size_t num_bytes) const;
  Status ReadAll(std::span<const int32_t> numbers, std::byte* to);
  Status WriteAll(std::span<const int32_t> numbers, Contents contents, const std::byte* from);
  // Returns whether each range begins at a row and is whole rows long.
  [[nodiscard]] bool AreRows(std::span<const std::byte* const> rows, size_t num_bytes) const;
  void Clear(size_t extent);

  std::string name_;
  const size_t row_bytes_;
  bool is_host_ = false;
  bool gathers_pages_ = false;
  DeviceAttention attention_ = DeviceAttention::kAuto;
  Status lost_;  // why the device was lost; OK: it was not
  std::unique_ptr<ggml_backend, GgmlDeleter> backend_;
  // Is a second queue of the device, for copies while it computes; null: the backend has only one
  // queue.
  std::unique_ptr<ggml_backend, GgmlDeleter> copies_;
  // kNumEvents is how many of a queue's last events are kept; a wait for an older event waits for a
  // later one instead.
  static constexpr size_t kNumEvents = 16;
  struct Queue {
    uint64_t number = 0;  // number of the last event
    std::array<std::unique_ptr<ggml_backend_event, GgmlDeleter>, kNumEvents> events;
  };
  mutable Queue computing_, copying_;
  [[nodiscard]] Queue& QueueOf(DeviceQueue queue) const {
    return queue == DeviceQueue::kToDevice ? copying_ : computing_;
  }
  [[nodiscard]] ggml_backend_t BackendOf(DeviceQueue queue) const {
    return queue == DeviceQueue::kToDevice && copies_ != nullptr ? copies_.get() : backend_.get();
  }
  size_t most_extents_ = 0;   // extents of address space
  size_t limit_extents_ = 0;  // extents of the buffer that may be allocated
  bool has_limit_ = false;    // an option has set limit_extents_
  void* reserved_ = nullptr;
  std::byte* begin_ = nullptr;  // first reserved address, aligned
  // Maps each extent of addresses to its place in the buffer, in extents; -1: not allocated.
  std::vector<int32_t> place_of_;
  std::vector<bool> is_records_;  // [extents of addresses]: has records
  // Maps each place of the buffer to its extent of addresses; -1: free.
  std::vector<int32_t> extent_at_;
  size_t num_taken_ = 0;
  uint64_t num_frees_ = 0;
  Rows rows_;
  uint64_t generation_ = 0;
  std::unique_ptr<RowTransfers> transfers_;
  // Slab is pinned memory of several extents, allocated at once because each allocation is slow.
  // The buffer is null if the backend has no pinned memory.
  struct Slab {
    BufferHandle buffer;
    std::byte* begin = nullptr;
    std::vector<bool> taken;  // [extents]: in use
  };
  std::list<Slab> slabs_;
  BufferHandle staging_;                 // pinned memory of Staging(); null until first needed
  std::map<std::byte*, size_t> mapped_;  // sizes of pinned allocations outside of slabs
  Result<std::byte*> AllocatePinned(size_t num_bytes);
  [[nodiscard]] bool FreePinned(std::byte* memory, size_t num_bytes);
};

}  // namespace ebb

#endif  // EBB_DEVICE_BACKEND_DEVICE_H_
