// The rows of T1 in a step: staged ahead of the layers, or left where they are.
#include <algorithm>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {

std::vector<T1Stage::Pages> SequenceCache::Impl::PagesToStage() {
  std::vector<T1Stage::Pages> layers(shape.num_layers);
  bool any = false;
  for (Stream& stream : streams) {
    const TokenTable& full = stream.table->full;
    if (full.num_pages(Tier::kT1) == 0) continue;
    any = true;
    for (size_t page = 0; page < full.page_end(); ++page) {
      if (!full.HasPage(page) || full.PlaceOf(page) != Tier::kT1) continue;
      layers[LayerOf(stream)].push_back({.file_page = HasFile() ? stream.file_pages[page] : 0,
                                         .host_page = HasFile() ? nullptr : stream.host_pages[page],
                                         .address = &stream.pages[page]});
    }
  }
  if (!any) layers.clear();
  // In the file's order, so that memory is filled from end to end by a few long reads. Pages of
  // memory keep theirs, which does not change when an arena moves them.
  if (HasFile()) {
    for (T1Stage::Pages& pages : layers) std::ranges::sort(pages, {}, &StagedPage::file_page);
  }
  return layers;
}

Status SequenceCache::BeginStaging(T1Reading reading) {
  Impl& c = *impl_;
  c.in_place = reading == T1Reading::kInPlace && c.IsRemote();
  if (c.in_place) {
    for (const auto& shared : c.tables) shared->Place();
    return OkStatus();
  }
  return c.stage == nullptr ? OkStatus() : c.stage->Begin(c.PagesToStage());
}

void SequenceCache::StageLayer(int layer, int thread) {
  if (impl_->stage != nullptr && !impl_->in_place) impl_->stage->StageLayer(layer, thread);
}

void SequenceCache::ReleaseLayer(int layer) {
  if (impl_->stage != nullptr && !impl_->in_place) impl_->stage->ReleaseLayer(layer);
}

Status SequenceCache::EndStaging() {
  Impl& c = *impl_;
  if (c.stage == nullptr || c.in_place) return OkStatus();
  const Status status = c.stage->End();
  if (c.edits == nullptr) return status;
  // A step has read all pages, so what is still written are pages without rows, if any.
  const Status written = c.edits->Settle();
  const double waited = c.edits->TakeWaitSeconds();
  c.moved.seconds += waited;
  c.moved.seconds_down += waited;
  return status.ok() ? written : status;
}

bool SequenceCache::ReadsInPlace() const { return impl_->in_place; }

SequenceCache::PlacedRows SequenceCache::RowsIn(Tier place, int layer, int kv_head) const {
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  const SharedTable::Placed& placed = stream.table->placed[static_cast<size_t>(place)];
  const auto& pages = place == Tier::kT0 ? stream.pages : stream.host_pages;
  return {.view = {.pages = pages.data(), .slots = placed.slots}, .indices = placed.rows};
}

size_t SequenceCache::NumRowsInT1(int layer, int kv_head) const {
  return impl_->streams[impl_->StreamIndex(layer, kv_head)].table->full.num_rows(Tier::kT1);
}

size_t SequenceCache::NumPagesInT1(int layer, int kv_head) const {
  return impl_->streams[impl_->StreamIndex(layer, kv_head)].table->full.num_pages(Tier::kT1);
}

}  // namespace ebb
