#include "src/rows/stage_reader.h"

#include <new>

namespace ebb {
namespace {

// A layer's pages, once what was launched before `released` has read what lies there. REQUIRES:
// there are some.
Result<DeviceEvent> CopyPages(Device* device, const DeviceEvent& released, int layer,
                              std::span<const CopyPart> pages) {
  EBB_RETURN_IF_ERROR(device->QueueWait(DeviceQueue::kToDevice, released));
  const size_t num_bytes = pages.size() * pages.front().num_bytes;
  return device->Copy(DeviceQueue::kToDevice,
                      {.what = "T1 pages", .layer = layer, .num_bytes = num_bytes}, pages);
}

}  // namespace

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

Status FileDeviceStageReader::Grow(int buffer, size_t num_bytes) {
  EBB_RETURN_IF_ERROR(EndCopy(buffer));
  memory_[buffer] = DeviceBlock();
  EBB_RETURN_IF_ERROR(host_.Grow(buffer, num_bytes));
  EBB_ASSIGN_OR_RETURN(memory_[buffer],
                       DeviceBlock::Allocate(device_, MemoryKind::kDevice, num_bytes));
  return OkStatus();
}

Status FileDeviceStageReader::EndCopy(int buffer) {
  if (!copied_[buffer].has_value()) return OkStatus();
  const Status status = device_->Wait(*copied_[buffer]);
  copied_[buffer].reset();
  return status;
}

Status FileDeviceStageReader::Start(int buffer, int layer, std::span<const StagedPage> pages) try {
  EBB_RETURN_IF_ERROR(EndCopy(buffer));
  std::vector<CopyPart>& parts = parts_[buffer];
  std::vector<std::byte*>& read_to = read_to_[buffer];
  parts.clear();
  read_to.clear();
  std::vector<StagedPage> to_host;
  read_to.reserve(pages.size());
  for (const StagedPage& page : pages) {
    std::byte* const at = host_.memory(buffer) + (*page.address - memory(buffer));
    read_to.push_back(at);
    to_host.push_back({.page = page.page, .address = &read_to.back()});
    parts.push_back({.from = at, .to = *page.address, .num_bytes = page_bytes()});
  }
  layers_[buffer] = layer;
  return host_.Start(buffer, layer, to_host);
} catch (const std::bad_alloc&) {  // within a step nothing may be thrown
  parts_[buffer].clear();
  return ResourceExhausted("no memory for the list of pages to read");
}

Status FileDeviceStageReader::Wait(int buffer) {
  EBB_RETURN_IF_ERROR(host_.Wait(buffer));
  std::vector<CopyPart>& parts = parts_[buffer];
  if (parts.empty()) return OkStatus();
  EBB_ASSIGN_OR_RETURN(copied_[buffer],
                       CopyPages(device_, released_[buffer], layers_[buffer], parts));
  parts.clear();
  return device_->QueueWait(DeviceQueue::kCompute, *copied_[buffer]);
}

void FileDeviceStageReader::Drop(int buffer) {
  host_.Drop(buffer);
  parts_[buffer].clear();
  (void)EndCopy(buffer);
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
  EBB_ASSIGN_OR_RETURN(copied_[buffer], CopyPages(device_, released_[buffer], layer, parts_));
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
