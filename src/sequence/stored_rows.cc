#include "src/sequence/stored_rows.h"

namespace ebb {

Status StoredRows::ForEachLayer(int last, const std::function<Status(int layer)>& read) {
  EBB_ASSIGN_OR_RETURN(StagedStep staged, cache_.StageStep());
  const ModelShape& shape = core_.model->shape();
  for (int attention = 0; attention < shape.NumAttentions(); ++attention) {
    const int layer = shape.LayerRead(attention);
    staged.StageLayer(attention, /*part=*/0);
    EBB_RETURN_IF_ERROR(read(layer));
    staged.ReleaseLayer(attention);
    staged.EndLayer(attention);
    if (layer == last) break;
  }
  return staged.End();
}

Status StoredRows::Load(int layer, int kv_head, const RowRange& range, Part part,
                        const std::function<float*(size_t i)>& to) {
  const PageFormat& format = core_.format;
  const size_t row_bytes = format.RowStride();
  const size_t offset = part == Part::kValues ? format.ValueOffset() : 0;
  const RowsView rows = cache_.views().View(layer, kv_head);
  stored_.clear();
  for (size_t i = range.begin; i < range.end; ++i) {
    const Slot slot = rows.slots[i];
    stored_.push_back(rows.pages[slot.page()] + slot.row() * row_bytes + offset);
  }
  Device* const device = core_.stores.device();
  if (device->IsClosed() && !stored_.empty()) {
    copies_.resize(stored_.size() * row_bytes);
    EBB_RETURN_IF_ERROR(device->ReadRows(stored_, row_bytes, copies_.data()));
    for (size_t i = 0; i < stored_.size(); ++i) stored_[i] = copies_.data() + i * row_bytes;
  }
  for (size_t i = 0; i < stored_.size(); ++i) {
    core_.kernel->load_row(format.type, stored_[i], to(range.begin + i), format.head_dim);
  }
  return OkStatus();
}

}  // namespace ebb
