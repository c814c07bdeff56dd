#include "src/step/cpu/merged_rows.h"

#include <algorithm>
#include <array>
#include <new>

namespace ebb {

namespace {

// Returns more pages than `num_rows` rows need, so that the next steps of a prompt rarely allocate.
size_t PagesInMemory(size_t num_rows) { return PagesFor(num_rows) + PagesFor(num_rows) / 4; }

}  // namespace

size_t MergedRows::BytesFor(size_t num_rows, size_t kv_heads, const PageFormat& format) {
  return PagesInMemory(num_rows) * kv_heads * format.PageBytes();
}

void MergedRows::Reserve(const SequenceCache& cache, const ModelShape& shape,
                         const PageFormat& format) {
  format_ = format;
  const RowViews& views = cache.views();
  size_t most_rows = 0;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    for (int h = 0; h < shape.NumKvHeads(layer); ++h) {
      most_rows = std::max(most_rows, views.IndicesOf(layer, h).compressed.size());
    }
  }
  heads_.resize(shape.num_kv_heads);
  pages_per_head_ = PagesFor(most_rows);
  const size_t needed = pages_per_head_ * heads_.size() * format.PageBytes();
  if (needed <= memory_bytes_) return;
  Release();
  heads_.resize(shape.num_kv_heads);
  pages_per_head_ = PagesInMemory(most_rows);
  const size_t bytes = BytesFor(most_rows, heads_.size(), format);
  memory_ = hwy::AllocateAligned<std::byte>(bytes);
  if (memory_ == nullptr) throw std::bad_alloc();
  memory_bytes_ = bytes;
}

void MergedRows::Release() {
  memory_.reset();
  memory_bytes_ = 0;
  heads_.clear();
}

void MergedRows::Decompress(const AttentionKernel& kernel, const AttentionShape& shape,
                            const SequenceCache& cache, int layer, int kv_heads, int part,
                            int num_parts) {
  const size_t row_stride = format_.RowStride();
  const size_t stride = shape.compressed.RowStride();
  std::array<float, kMaxHeadDim> key, value;
  for (int h = 0; h < kv_heads; ++h) {
    const CompressedRows rows = cache.views().Compressed(layer, h);
    const size_t begin = rows.size() * part / num_parts;
    const size_t end = rows.size() * (part + 1) / num_parts;
    for (size_t i = begin; i < end; ++i) {
      const Slot slot = rows.slots[i];
      const std::byte* const row = rows.pages[slot.page()] + slot.row() * stride;
      kernel.decompress_row(shape.compressed, rows.key_centre, row, key.data(), value.data());
      std::byte* const to = PageOf(h, i / kRowsPerPage) + i % kRowsPerPage * row_stride;
      kernel.store_row(format_.type, key.data(), to, format_.head_dim);
      if (!format_.has_values) continue;
      kernel.store_row(format_.type, value.data(), to + format_.ValueOffset(), format_.head_dim);
    }
  }
}

RowsView MergedRows::View(const SequenceCache& cache, int layer, int kv_head) {
  const RowViews& views = cache.views();
  RowsView view = views.View(layer, kv_head);
  const RowViews::Indices indices = views.IndicesOf(layer, kv_head);
  if (indices.compressed.empty()) return view;
  Head& head = heads_[kv_head];
  const size_t num_pages = views.CountsOf(layer, kv_head).pages;
  head.pages.assign(view.pages, view.pages + num_pages);
  const size_t num_compressed = indices.compressed.size();
  for (size_t page = 0; page * kRowsPerPage < num_compressed; ++page) {
    head.pages.push_back(PageOf(kv_head, page));
  }
  head.slots.resize(indices.full.size() + num_compressed);
  for (size_t i = 0; i < indices.full.size(); ++i) head.slots[indices.full[i]] = view.slots[i];
  for (size_t i = 0; i < num_compressed; ++i) {
    head.slots[indices.compressed[i]] = Slot(static_cast<uint32_t>(num_pages * kRowsPerPage + i));
  }
  if (!view.last_visible.empty()) {
    head.last_visible.assign(head.slots.size(), kVisibleForEver);
    for (size_t i = 0; i < indices.full.size(); ++i) {
      head.last_visible[indices.full[i]] = view.last_visible[i];
    }
    view.last_visible = head.last_visible;
  }
  const int group = cache.layout().GroupOf(layer, kv_head);
  view.pages = head.pages.data();
  view.slots = head.slots;
  view.positions = cache.positions(group);
  return view;
}

}  // namespace ebb
