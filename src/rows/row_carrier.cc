#include "src/rows/row_carrier.h"

namespace ebb {

Status RowCarrier::Reserve(size_t num_bytes) {
  if (num_bytes > on_device_.size()) {
    EBB_ASSIGN_OR_RETURN(on_device_,
                         DeviceBlock::Allocate(device_, MemoryKind::kDevice, num_bytes));
  }
  if (num_bytes > on_host_.size()) {
    EBB_ASSIGN_OR_RETURN(on_host_, DeviceBlock::Allocate(device_, MemoryKind::kPinned, num_bytes));
  }
  return OkStatus();
}

Status RowCarrier::ToHost(size_t num_bytes) {
  const DeviceEvent packed =
      device_->Launch(DeviceQueue::kCompute, {.what = "pack rows", .num_bytes = num_bytes});
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToHost, packed));
  const CopyPart part = {.from = on_device(), .to = on_host(), .num_bytes = num_bytes};
  const DeviceEvent copied = device_->Copy(
      DeviceQueue::kToHost, {.what = "rows down", .num_bytes = num_bytes}, {&part, 1});
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kHost, copied));
  const DeviceEvent unpacked =
      device_->Launch(DeviceQueue::kHost, {.what = "unpack rows", .num_bytes = num_bytes});
  EBB_RETURN_IF_ERROR(device_->Wait(copied));
  return device_->Wait(unpacked);
}

Status RowCarrier::ToDevice(size_t num_bytes) {
  const DeviceEvent packed =
      device_->Launch(DeviceQueue::kHost, {.what = "pack rows", .num_bytes = num_bytes});
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kToDevice, packed));
  const CopyPart part = {.from = on_host(), .to = on_device(), .num_bytes = num_bytes};
  const DeviceEvent copied = device_->Copy(DeviceQueue::kToDevice,
                                           {.what = "rows up", .num_bytes = num_bytes}, {&part, 1});
  EBB_RETURN_IF_ERROR(device_->QueueWait(DeviceQueue::kCompute, copied));
  device_->Launch(DeviceQueue::kCompute, {.what = "unpack rows", .num_bytes = num_bytes});
  // The host packs its next batch into the same memory.
  return device_->Wait(copied);
}

}  // namespace ebb
