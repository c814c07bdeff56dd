// CompressedPages holds the pages of T2 of one sequence, and reads and writes the records in them:
// compressed rows of one size, each with the key and the value of a row.
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

// Returns the bytes of a page of T2 in the memory of a device, where pages begin at whole rows of
// F16.
[[nodiscard]] inline size_t CompressedPageBytesOnDevice(const CompressedFormat& format) {
  // The size of an arena's pages must be a multiple of 64 bytes.
  const size_t step = std::lcm(size_t{64}, format.head_dim * sizeof(uint16_t));
  return (format.PageBytes() + step - 1) / step * step;
}

class CompressedPages final : public InArena<TierPages> {
 public:
  // REQUIRES: arena and device outlive this.
  CompressedPages(Arena* arena, Device* device, size_t record_bytes)
      : InArena(arena, device), record_bytes_(record_bytes) {}

  // Returns whether a device holds the records, so that the host reaches them only by copies.
  [[nodiscard]] bool IsOnDevice() const { return IsClosed(); }
  [[nodiscard]] size_t page_bytes() const { return arena_->page_bytes(); }
  [[nodiscard]] size_t record_bytes() const { return record_bytes_; }

  // Copies records to packed memory of the host. Errors: the device's.
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

// RecordWriter writes records one by one. It gathers records of a device on the host until they are
// worth a copy.
class RecordWriter {
 public:
  explicit RecordWriter(const CompressedPages* pages) : pages_(pages) {}

  // Returns where to put the record that is to lie at `record`, before the next call. May throw
  // std::bad_alloc.
  std::byte* Add(std::byte* record) {
    if (!pages_->IsOnDevice()) return record;
    if (packed_.size() >= kEditBytes) Flush();
    records_.push_back(record);
    packed_.resize(packed_.size() + pages_->record_bytes());
    return packed_.data() + packed_.size() - pages_->record_bytes();
  }
  // Writes the records that are still on the host. Returns the first error of any write.
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
