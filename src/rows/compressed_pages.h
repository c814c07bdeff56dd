// CompressedPages holds the T2 pages of one sequence, and reads and writes their records. A record
// is the compressed key and value of one row; all records have the same size.
#ifndef EBB_ROWS_COMPRESSED_PAGES_H_
#define EBB_ROWS_COMPRESSED_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "src/rows/arena_pages.h"

namespace ebb {

// Returns the bytes of a T2 page in a device's memory. They are a multiple of an F16 row, because
// pages must begin at whole rows of the device's buffer.
[[nodiscard]] inline size_t CompressedPageBytesOnDevice(const CompressedFormat& format) {
  // An arena's pages must also be a multiple of 64 bytes.
  const size_t step = std::lcm(size_t{64}, format.head_dim * sizeof(uint16_t));
  return (format.PageBytes() + step - 1) / step * step;
}

class CompressedPages final : public InArena<TierPages> {
 public:
  // Holds pages of `arena` with records of `record_bytes` bytes. REQUIRES: arena and device outlive
  // this.
  CompressedPages(Arena* arena, Device* device, size_t record_bytes)
      : InArena(arena, device), record_bytes_(record_bytes) {}

  // Returns whether the records lie on a device, so that the host can access them only by copies.
  [[nodiscard]] bool IsOnDevice() const { return IsClosed(); }
  [[nodiscard]] size_t page_bytes() const { return arena_->page_bytes(); }
  [[nodiscard]] size_t record_bytes() const { return record_bytes_; }

  // Copies the records at these addresses to `to`, one after another, in the host's memory. Errors:
  // the device's.
  Status Read(std::span<const std::byte* const> records, std::byte* to) const {
    if (IsClosed()) return device_->ReadRows(records, record_bytes_, to);
    for (const std::byte* record : records) {
      std::memcpy(to, record, record_bytes_);
      to += record_bytes_;
    }
    return OkStatus();
  }
  Status Write(std::span<std::byte* const> records, const std::byte* from) const {
    if (IsClosed()) return device_->WriteRows(records, record_bytes_, from);
    for (std::byte* record : records) {
      std::memcpy(record, from, record_bytes_);
      from += record_bytes_;
    }
    return OkStatus();
  }

 private:
  const size_t record_bytes_;
};

// RecordWriter writes records one by one. It collects those for a device on the host, and copies
// many at once.
class RecordWriter {
 public:
  explicit RecordWriter(const CompressedPages* pages) : pages_(pages) {}

  // Returns the address at which the caller must write, before its next call, the record that
  // belongs at `record`. May throw std::bad_alloc.
  std::byte* Add(std::byte* record) {
    if (!pages_->IsOnDevice()) return record;
    if (packed_.size() >= kEditBytes) Flush();
    records_.push_back(record);
    packed_.resize(packed_.size() + pages_->record_bytes());
    return packed_.data() + packed_.size() - pages_->record_bytes();
  }
  // Copies the collected records to the device. Returns the first error of any copy.
  Status Finish() {
    Flush();
    return status_;
  }

 private:
  void Flush() {
    if (status_.ok() && !records_.empty()) status_ = pages_->Write(records_, packed_.data());
    records_.clear();
    packed_.clear();
  }

  const CompressedPages* const pages_;
  std::vector<std::byte*> records_;
  std::vector<std::byte> packed_;
  Status status_;
};

}  // namespace ebb

#endif  // EBB_ROWS_COMPRESSED_PAGES_H_
