#include "src/step/rotation/turning_keys.h"

namespace ebb {

TurningKeys::TurningKeys(SequenceCache* cache, Device* device, int group,
                         std::span<const Position> turns)
    : device_(device), num_rows_(turns.size()), row_bytes_(cache->layout().format().RowStride()) {
  cache->FindAddresses();
  std::vector<size_t> of_copies;  // indices in keys_ of those that are copies
  for (const auto [layer, kv_head] : cache->layout().StreamsOf(group)) {
    for (size_t row = 0; row < turns.size(); ++row) {
      const bool turns_row = turns[row] != 0;
      keys_.push_back(turns_row ? cache->views().Row(layer, kv_head, row).key : nullptr);
      if (!turns_row || !device->IsClosed()) continue;
      on_device_.push_back(keys_.back());
      of_copies.push_back(keys_.size() - 1);
    }
  }
  copies_.resize(on_device_.size() * row_bytes_);
  for (size_t i = 0; i < of_copies.size(); ++i) {
    keys_[of_copies[i]] = copies_.data() + i * row_bytes_;
  }
}

Status TurningKeys::Read() {
  if (on_device_.empty()) return OkStatus();
  return device_->ReadRows(on_device_, row_bytes_, copies_.data());
}

Status TurningKeys::Write() {
  if (on_device_.empty()) return OkStatus();
  return device_->WriteRows(on_device_, row_bytes_, copies_.data());
}

}  // namespace ebb
