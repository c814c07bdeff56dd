#include "ebb/cached_rows.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "src/sequence/stored_rows.h"
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
  // Reads the rows of T0 and T1.
  Status ReadFull() {
    StoredRows stored(core_, &cache_);
    return stored.ForEachLayer(layer_, [&](int layer) -> Status {
      if (layer != layer_) return OkStatus();
      const size_t num_rows = cache_.views().View(layer_, kv_head_).size();
      const auto indices = cache_.views().IndicesOf(layer_, kv_head_).full;
      const auto load = [&](StoredRows::Part part, std::vector<float>* to) {
        return stored.Load(layer_, kv_head_, {0, num_rows}, part,
                           [&](size_t i) { return At(to, indices, i); });
      };
      EBB_RETURN_IF_ERROR(load(StoredRows::Part::kKeys, &rows_.keys));
      if (!core_.format.has_values) return OkStatus();
      return load(StoredRows::Part::kValues, &rows_.values);
    });
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

  // Returns the place of row indices[i]; without indices, of row i.
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
