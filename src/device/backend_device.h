// A device that ggml has a backend for: CUDA, HIP, Vulkan, Metal, SYCL, another process over RPC,
// or, for tests, ggml's own CPU backend taken as if its memory were closed to the host.
//
// Rows lie in one buffer of the backend, which grows and shrinks by copying on the device.
// Addresses that Allocate() gives name places in it: they are reserved and closed, so that no
// thread of the host can read there by mistake. Steps name rows by their number in rows(); between
// steps the host reads, writes and copies rows by the graphs behind ReadRows(), WriteRows() and
// CopyRows().
//
// Errors: OutOfMemory where the backend has no memory, after which nothing has changed; what
// fails otherwise is an Internal error that says that the device was lost.
#ifndef EBB_DEVICE_BACKEND_DEVICE_H_
#define EBB_DEVICE_BACKEND_DEVICE_H_

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
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
  // row_bytes: of a key or a value, which no row lies across; a multiple of 4. NotFound, naming
  // those that there are, when no device has this name.
  static Result<std::unique_ptr<BackendDevice>> Create(const DeviceSpec& spec, size_t row_bytes);
  ~BackendDevice() override;

  [[nodiscard]] std::string_view name() const override { return name_; }
  Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) override;
  Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) override;
  // Beside what it computes. REQUIRES: no part is larger than an extent or lies across two of them.
  DeviceEvent Copy(std::span<const CopyPart> parts) override;
  [[nodiscard]] DeviceEvent Record(DeviceQueue queue) const override;
  Status QueueWait(DeviceQueue queue, const DeviceEvent& event) override;
  Status Wait(const DeviceEvent& event) override;

  std::byte* Staging(size_t num_bytes) override;
  Status ReadRows(std::span<const std::byte* const> rows, size_t num_bytes, std::byte* to) override;
  Status WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                   const std::byte* from) override;
  Status CopyRows(std::span<const CopyPart> rows) override;

  // Runs `work`, which calls the backend. Where that throws or gives up, the device is lost: this
  // call and all later ones return the Internal error that says so.
  Status Call(const std::function<Status()>& work);
  [[nodiscard]] bool IsLost() const { return !lost_.ok(); }
  [[nodiscard]] ggml_backend_t backend() const { return backend_.get(); }
  [[nodiscard]] bool is_host() const { return is_host_; }  // ggml's CPU backend
  // "CPU", "CUDA", "RPC": what ggml calls the kind of backend.
  [[nodiscard]] std::string_view BackendName() const;
  [[nodiscard]] DeviceAttention attention() const { return attention_; }
  // F16 [row_bytes / 2, rows of the buffer, and a spare page and row]. Another tensor whenever
  // generation() changes. All that lies there are numbers, except in memory of kRecords.
  [[nodiscard]] ggml_tensor* rows() const { return rows_.tensor; }
  [[nodiscard]] uint64_t generation() const { return generation_; }
  // Counts what was given back: from then on an address may have another number.
  [[nodiscard]] uint64_t num_frees() const { return num_frees_; }
  // The number of the row at this address, of Allocate().
  [[nodiscard]] int32_t RowNumber(const std::byte* address) const;
  // The first row of a page of no sequence, of zeros, for lists that want one more.
  [[nodiscard]] int32_t spare_row() const;
  [[nodiscard]] int32_t unread_row() const {  // no list names it
    return spare_row() + 2 * static_cast<int32_t>(kRowsPerPage);
  }
  [[nodiscard]] size_t row_bytes() const { return row_bytes_; }
  // Whether a page of an arena begins at a multiple of kRowsPerPage rows, so that pages have
  // numbers too: that of their first row over kRowsPerPage.
  [[nodiscard]] bool HasPageNumbers() const {
    return RowsOfExtent() % (2 * kRowsPerPage) == 0 &&
           RowsOfExtent() * row_bytes_ == kDeviceMemoryStep;
  }
  // Whether the backend can gather whole pages by their numbers.
  [[nodiscard]] bool GathersPages() const { return gathers_pages_; }
  // In rows: of a buffer's part for as many bytes of addresses as kDeviceMemoryStep.
  [[nodiscard]] size_t RowsOfExtent() const;
  [[nodiscard]] size_t buffer_bytes() const;  // that rows take on the device
  // And what carries them between steps.
  [[nodiscard]] size_t transfer_bytes() const { return transfers_->device_bytes(); }

  using BufferHandle = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;

 private:
  BackendDevice(std::string name, size_t row_bytes)
      : Device(/*is_closed=*/true), name_(std::move(name)), row_bytes_(row_bytes) {}
  [[nodiscard]] size_t capacity() const { return extent_at_.size(); }
  // Rows of the device, and whose they are.
  struct Rows {
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    BufferHandle buffer;
    ggml_tensor* tensor = nullptr;
  };
  [[nodiscard]] Result<Rows> MakeRows(size_t num_extents) const;
  Status TakeOver(const Rows& from, Rows to, size_t num_extents);
  // A buffer for so many extents, with what lies in the one that there is.
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
  // Records by the rows that they lie in.
  struct Covered {
    std::vector<int32_t> rows;   // ascending
    std::vector<size_t> places;  // [records]: bytes before each in these rows, side by side
  };
  [[nodiscard]] Covered Cover(std::span<const std::byte* const> records, size_t num_bytes) const;
  Status ReadAll(std::span<const int32_t> numbers, std::byte* to);
  Status WriteAll(std::span<const int32_t> numbers, Contents contents, const std::byte* from);
  // Whether the bytes are whole rows.
  [[nodiscard]] bool AreRows(std::span<const std::byte* const> rows, size_t num_bytes) const;
  void Clear(size_t extent);

  std::string name_;
  const size_t row_bytes_;
  bool is_host_ = false;
  bool gathers_pages_ = false;
  DeviceAttention attention_ = DeviceAttention::kAuto;
  Status lost_;  // why
  std::unique_ptr<ggml_backend, GgmlDeleter> backend_;
  // Another queue of the device, for copies; null: the backend does one thing at a time.
  std::unique_ptr<ggml_backend, GgmlDeleter> copies_;
  // So many of the last events of a queue are kept; for an older one, a later one is waited for.
  static constexpr size_t kNumEvents = 16;
  struct Queue {
    uint64_t number = 0;  // of the last event
    std::array<std::unique_ptr<ggml_backend_event, GgmlDeleter>, kNumEvents> events;
  };
  mutable Queue computing_, copying_;
  [[nodiscard]] Queue& QueueOf(DeviceQueue queue) const {
    return queue == DeviceQueue::kToDevice ? copying_ : computing_;
  }
  [[nodiscard]] ggml_backend_t BackendOf(DeviceQueue queue) const {
    return queue == DeviceQueue::kToDevice && copies_ != nullptr ? copies_.get() : backend_.get();
  }
  size_t most_extents_ = 0;   // that addresses are reserved for
  size_t limit_extents_ = 0;  // that may be taken
  bool has_limit_ = false;    // that an option set
  void* reserved_ = nullptr;
  std::byte* begin_ = nullptr;  // of the reserved addresses, aligned
  // By extent of addresses: where it lies in the buffer; -1: nowhere.
  std::vector<int32_t> place_of_;
  std::vector<bool> is_records_;  // the same
  // By extent of the buffer: its owner; -1: none.
  std::vector<int32_t> extent_at_;
  size_t num_taken_ = 0;
  uint64_t num_frees_ = 0;
  Rows rows_;
  uint64_t generation_ = 0;
  std::unique_ptr<RowTransfers> transfers_;
  // The host's memory that the device knows comes in slabs of several extents, since each takes its
  // time; empty where the backend has none.
  struct Slab {
    BufferHandle buffer;
    std::byte* begin = nullptr;
    std::vector<bool> taken;  // [extents]
  };
  std::list<Slab> slabs_;
  BufferHandle staging_;                 // null until it is asked for
  std::map<std::byte*, size_t> mapped_;  // where it has none
  Result<std::byte*> AllocatePinned(size_t num_bytes);
  [[nodiscard]] bool FreePinned(std::byte* memory, size_t num_bytes);
};

}  // namespace ebb

#endif  // EBB_DEVICE_BACKEND_DEVICE_H_
