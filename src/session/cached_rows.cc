#include "ebb/cached_rows.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "src/session/session_impl.h"

namespace ebb {
namespace {

// RowReader copies the rows of one stream.
class RowReader {
 public:
  RowReader(const EngineCore& core, SequenceCache* cache, int layer, int kv_head)
      : core_(core), cache_(*cache), layer_(layer), kv_head_(kv_head) {}

  Result<CachedRows> Read() {
    const int group = cache_.layout().GroupOf(layer_, kv_head_);
    const auto positions = cache_.positions(group);
    rows_.positions.assign(positions.begin(), positions.end());
    const auto tiers = cache_.tiers(group);
    rows_.tiers.assign(tiers.begin(), tiers.end());
    const size_t size = positions.size() * static_cast<size_t>(core_.format.head_dim);
    rows_.keys.resize(size);
    if (core_.format.has_values) rows_.values.resize(size);
    EBB_RETURN_IF_ERROR(ReadFull());
    EBB_RETURN_IF_ERROR(ReadCompressed());
    return std::move(rows_);
  }

 private:
  // Reads the rows of T0 and T1. Layers are staged in order, so that those before are staged too.
  Status ReadFull() {
    EBB_ASSIGN_OR_RETURN(StagedStep staged, cache_.StageStep());
    const ModelShape& shape = core_.model->shape();
    for (int attention = 0; attention < shape.NumAttentions(); ++attention) {
      staged.StageLayer(attention, /*part=*/0);
      const bool is_read = shape.LayerRead(attention) == layer_;
      const Status read = is_read ? CopyFull() : OkStatus();
      staged.ReleaseLayer(attention);
      staged.EndLayer(attention);
      EBB_RETURN_IF_ERROR(read);
      if (is_read) break;
    }
    return staged.End();
  }

  Status CopyFull() {
    const RowsView view = cache_.views().View(layer_, kv_head_);
    const auto indices = cache_.views().IndicesOf(layer_, kv_head_).full;
    const PageFormat& format = core_.format;
    std::vector<const std::byte*> keys(view.slots.size()), values(view.slots.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const Slot slot = view.slots[i];
      keys[i] = view.pages[slot.page()] + slot.row() * format.RowStride();
      values[i] = keys[i] + format.ValueOffset();
    }
    EBB_RETURN_IF_ERROR(Load(keys, indices, &rows_.keys));
    return format.has_values ? Load(values, indices, &rows_.values) : OkStatus();
  }

  // Converts the stored rows at these addresses. The i-th is row indices[i], or row i without
  // indices.
  Status Load(std::span<const std::byte*> stored, std::span<const uint32_t> indices,
              std::vector<float>* to) {
    const size_t row_bytes = core_.format.RowStride();
    Device* const device = core_.stores.device();
    std::vector<std::byte> copies(device->IsClosed() ? stored.size() * row_bytes : 0);
    if (!copies.empty()) {
      EBB_RETURN_IF_ERROR(device->ReadRows(stored, row_bytes, copies.data()));
      for (size_t i = 0; i < stored.size(); ++i) stored[i] = copies.data() + i * row_bytes;
    }
    for (size_t i = 0; i < stored.size(); ++i) {
      core_.kernel->load_row(core_.format.type, stored[i], At(to, indices, i),
                             core_.format.head_dim);
    }
    return OkStatus();
  }

  Status ReadCompressed() {
    if (!cache_.views().HasCompressedRows()) return OkStatus();
    const CompressedFormat& format = cache_.layout().compressed_format();
    if (cache_.views().CompressedOnDevice() || format.in_ggml_blocks) {
      return Unsupported("rows of T2 on an accelerator have a format that the host does not read");
    }
    const CompressedRows compressed = cache_.views().Compressed(layer_, kv_head_);
    const auto indices = cache_.views().IndicesOf(layer_, kv_head_).compressed;
    std::vector<float> no_value(static_cast<size_t>(format.head_dim));
    for (size_t i = 0; i < compressed.size(); ++i) {
      const Slot slot = compressed.slots[i];
      core_.kernel->decompress_row(
          format, compressed.key_centre,
          compressed.pages[slot.page()] + slot.row() * format.RowStride(),
          At(&rows_.keys, indices, i),
          format.has_values ? At(&rows_.values, indices, i) : no_value.data());
    }
    return OkStatus();
  }

  float* At(std::vector<float>* rows, std::span<const uint32_t> indices, size_t i) const {
    const size_t row = indices.empty() ? i : indices[i];
    return rows->data() + row * static_cast<size_t>(core_.format.head_dim);
  }

  const EngineCore& core_;
  SequenceCache& cache_;
  const int layer_;
  const int kv_head_;
  CachedRows rows_;
};

}  // namespace

Result<CachedRows> ReadCachedRows(Session& session, int layer, int kv_head) {
  Session::Impl& impl = Internals::Of(session);
  EBB_RETURN_IF_ERROR(impl.CheckUnbroken());
  const ModelShape& shape = impl.core->model->shape();
  if (layer < 0 || layer >= shape.num_layers) {
    return InvalidArgument("layer",
                           fmt::format("expected 0 to {}, found {}", shape.num_layers - 1, layer));
  }
  if (kv_head < 0 || kv_head >= shape.NumKvHeads(layer)) {
    return InvalidArgument("kv_head", fmt::format("layer {} has {} kv heads, found {}", layer,
                                                  shape.NumKvHeads(layer), kv_head));
  }
  return RowReader(*impl.core, &impl.sequence->cache(), layer, kv_head).Read();
}

}  // namespace ebb
