#include "src/rows/page_loader.h"

#include <algorithm>
#include <utility>

namespace ebb {

Result<LoadedMemory> PageLoader::Allocate(size_t num_bytes) {
  if (device_ == nullptr) {
    EBB_ASSIGN_OR_RETURN(IoMemory memory, IoMemory::Map(num_bytes));
    return LoadedMemory(std::move(memory));
  }
  EBB_ASSIGN_OR_RETURN(DeviceBlock memory,
                       DeviceBlock::Allocate(device_, MemoryKind::kDevice, num_bytes));
  return LoadedMemory(std::move(memory));
}

void FilePageLoader::Reserve(size_t /*num_pages*/) { reading_.reserve(kMostBatches); }

Result<PageLoader::Batch> FilePageLoader::Start(std::span<const PageIo> pages,
                                                const DeviceEvent& /*last_read*/) {
  EBB_RETURN_IF_ERROR(edits_->WaitFor(pages));
  EBB_ASSIGN_OR_RETURN(const PageFile::Ticket ticket, file_->StartRead(pages));
  reading_.push_back(ticket.id);
  return Batch{.number = ticket.id};
}

Status FilePageLoader::Wait(const Batch& batch) {
  std::erase(reading_, batch.number);
  return file_->Wait({.id = batch.number});
}

Status FilePageLoader::Finish() {
  for (const uint64_t id : reading_) (void)file_->Wait({.id = id});
  reading_.clear();
  return OkStatus();
}

Result<PageLoader::Batch> ArenaPageLoader::Start(std::span<const PageIo> pages,
                                                 const DeviceEvent& last_read) {
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToDevice, last_read));
  parts_.clear();
  for (const PageIo& page : pages) {
    parts_.push_back(
        {.from = arena_->Address(page.page), .to = page.memory, .num_bytes = page_bytes()});
  }
  last_copy_ = device_->Copy(parts_);
  return Batch{.number = last_copy_.number};
}

Status ArenaPageLoader::Wait(const Batch& batch) {
  return device_->QueueWait(DeviceQueue::kCompute,
                            {.queue = DeviceQueue::kToDevice, .number = batch.number});
}

void FileDevicePageLoader::Reserve(size_t num_pages) {
  for (Slot& slot : slots_) {
    slot.reads.reserve(num_pages);
    slot.copies.reserve(num_pages);
  }
}

Status FileDevicePageLoader::Slot::Grow(size_t num_bytes) {
  if (memory.size() >= num_bytes) return OkStatus();
  memory = IoMemory();
  EBB_ASSIGN_OR_RETURN(memory, IoMemory::Map(num_bytes));
  return OkStatus();
}

Status FileDevicePageLoader::ReserveMemory(size_t num_bytes) {
  for (Slot& slot : slots_) EBB_RETURN_IF_ERROR(slot.Grow(num_bytes));
  return OkStatus();
}

Result<PageLoader::Batch> FileDevicePageLoader::Start(std::span<const PageIo> pages,
                                                      const DeviceEvent& last_read) {
  EBB_RETURN_IF_ERROR(edits_->WaitFor(pages));
  Slot& slot = slots_[next_ % slots_.size()];
  EBB_RETURN_IF_ERROR(device_->Wait(slot.copied));
  EBB_RETURN_IF_ERROR(slot.Grow(pages.size() * page_bytes()));
  slot.last_read = last_read;
  slot.reads.clear();
  slot.copies.clear();
  for (const PageIo& page : pages) {
    std::byte* const at = slot.memory.data() + slot.reads.size() * page_bytes();
    slot.reads.push_back({.page = page.page, .memory = at});
    slot.copies.push_back({.from = at, .to = page.memory, .num_bytes = page_bytes()});
  }
  EBB_ASSIGN_OR_RETURN(slot.reading, file_->StartRead(slot.reads));
  return Batch{.number = next_++};
}

Status FileDevicePageLoader::Wait(const Batch& batch) {
  Slot& slot = slots_[batch.number % slots_.size()];
  EBB_RETURN_IF_ERROR(file_->Wait(*std::exchange(slot.reading, std::nullopt)));
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToDevice, slot.last_read));
  slot.copied = device_->Copy(slot.copies);
  return device_->QueueWait(DeviceQueue::kCompute, slot.copied);
}

Status FileDevicePageLoader::Finish() {
  Status first;
  for (Slot& slot : slots_) {
    if (slot.reading.has_value()) (void)file_->Wait(*std::exchange(slot.reading, std::nullopt));
    const Status status = device_->Wait(slot.copied);
    if (first.ok()) first = status;
  }
  return first;
}

void FileDevicePageLoader::ReleaseMemory() {
  for (Slot& slot : slots_) slot = {};
}

size_t FileDevicePageLoader::memory_bytes() const {
  size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory.size();
  return bytes;
}

}  // namespace ebb
