#include "src/rows/stage_reader.h"

#include <new>

namespace ebb {

Status FileStageReader::Grow(int buffer, size_t num_bytes) {
  memory_[buffer] = IoMemory();
  EBB_ASSIGN_OR_RETURN(memory_[buffer], IoMemory::Map(num_bytes));
  return OkStatus();
}

Status FileStageReader::Start(int buffer, int, std::span<const StagedPage> pages) {
  // Within a step nothing may be thrown.
  try {
    requests_.clear();
    for (const StagedPage& page : pages) {
      requests_.push_back({.page = page.page, .memory = *page.address});
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the list of pages to read");
  }
  EBB_RETURN_IF_ERROR(edits_->WaitFor(requests_));
  EBB_ASSIGN_OR_RETURN(tickets_[buffer], file_->StartRead(requests_));
  return OkStatus();
}

Status FileStageReader::Wait(int buffer) {
  if (!tickets_[buffer].has_value()) return OkStatus();
  const Status status = file_->Wait(*tickets_[buffer]);
  tickets_[buffer].reset();
  return status;
}

Status DeviceStageReader::Grow(int buffer, size_t num_bytes) {
  memory_[buffer] = DeviceBlock();
  EBB_ASSIGN_OR_RETURN(memory_[buffer],
                       DeviceBlock::Allocate(device_, MemoryKind::kDevice, num_bytes));
  return OkStatus();
}

Status DeviceStageReader::Start(int buffer, int layer, std::span<const StagedPage> pages) try {
  parts_.clear();
  for (const StagedPage& page : pages) {
    parts_.push_back(
        {.from = arena_->Address(page.page), .to = *page.address, .num_bytes = page_bytes()});
  }
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToDevice, released_[buffer]));
  copied_[buffer] = device_->Copy(
      DeviceQueue::kToDevice,
      {.what = "T1 pages", .layer = layer, .num_bytes = pages.size() * page_bytes()}, parts_);
  return OkStatus();
} catch (const std::bad_alloc&) {  // within a step nothing may be thrown
  return ResourceExhausted("no memory for the list of pages to copy");
}

Status DeviceStageReader::Wait(int buffer) {
  if (!copied_[buffer].has_value()) return OkStatus();
  const Status status = device_->QueueWait(DeviceQueue::kCompute, *copied_[buffer]);
  copied_[buffer].reset();
  return status;
}

void DeviceStageReader::Drop(int buffer) {
  if (copied_[buffer].has_value()) (void)device_->Wait(*copied_[buffer]);
  copied_[buffer].reset();
}

}  // namespace ebb
