#include "src/rows/stage_reader.h"

#include <new>

namespace ebb {
Status FileStageReader::Grow(int buffer, size_t num_bytes) {
  memory_[buffer] = IoMemory();
  EBB_ASSIGN_OR_RETURN(memory_[buffer], IoMemory::Map(num_bytes));
  return OkStatus();
}

Status FileStageReader::Start(int buffer, std::span<const StagedPage> pages) {
  // Within a step nothing may be thrown.
  try {
    requests_.clear();
    for (const StagedPage& page : pages) {
      requests_.push_back({.page = page.page, .memory = *page.address});
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory for the list of pages to read");
  }
  return StartReads(buffer, requests_);
}

Status FileStageReader::StartReads(int buffer, std::span<const PageIo> requests) {
  EBB_RETURN_IF_ERROR(edits_->WaitFor(requests));
  EBB_ASSIGN_OR_RETURN(tickets_[buffer], file_->StartRead(requests));
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

Status DeviceStageReader::StartCopy(int buffer, std::span<const CopyPart> pages) {
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToDevice, released_[buffer]));
  copied_[buffer] = device_->Copy(pages);
  return OkStatus();
}

Status DeviceStageReader::EndCopy(int buffer) {
  if (!copied_[buffer].has_value()) return OkStatus();
  const Status status = device_->Wait(*copied_[buffer]);
  copied_[buffer].reset();
  return status;
}

Status ArenaStageReader::Start(int buffer, std::span<const StagedPage> pages) try {
  parts_.clear();
  for (const StagedPage& page : pages) {
    parts_.push_back(
        {.from = arena_->Address(page.page), .to = *page.address, .num_bytes = page_bytes()});
  }
  return StartCopy(buffer, parts_);
} catch (const std::bad_alloc&) {  // within a step nothing may be thrown
  return OutOfMemory("no memory for the list of pages to copy");
}

Status ArenaStageReader::Wait(int buffer) {
  if (!copied_[buffer].has_value()) return OkStatus();
  const Status status = UseCopy(buffer);
  copied_[buffer].reset();
  return status;
}

// A copy is kept in mind until the host's buffer is read into again.
Status FileDeviceStageReader::Grow(int buffer, size_t num_bytes) {
  EBB_RETURN_IF_ERROR(EndCopy(buffer));
  EBB_RETURN_IF_ERROR(host_.Grow(buffer, num_bytes));
  return DeviceStageReader::Grow(buffer, num_bytes);
}

Status FileDeviceStageReader::Start(int buffer, std::span<const StagedPage> pages) try {
  EBB_RETURN_IF_ERROR(EndCopy(buffer));
  std::vector<CopyPart>& parts = parts_[buffer];
  parts.clear();
  requests_.clear();
  for (const StagedPage& page : pages) {
    std::byte* const at = host_.memory(buffer) + (*page.address - memory(buffer));
    requests_.push_back({.page = page.page, .memory = at});
    parts.push_back({.from = at, .to = *page.address, .num_bytes = page_bytes()});
  }
  return host_.StartReads(buffer, requests_);
} catch (const std::bad_alloc&) {  // within a step nothing may be thrown
  parts_[buffer].clear();
  return OutOfMemory("no memory for the list of pages to read");
}

Status FileDeviceStageReader::Wait(int buffer) {
  EBB_RETURN_IF_ERROR(host_.Wait(buffer));
  if (parts_[buffer].empty()) return OkStatus();
  EBB_RETURN_IF_ERROR(StartCopy(buffer, parts_[buffer]));
  parts_[buffer].clear();
  return UseCopy(buffer);
}

void FileDeviceStageReader::Drop(int buffer) {
  host_.Drop(buffer);
  parts_[buffer].clear();
  (void)EndCopy(buffer);
}

}  // namespace ebb
