// The rows of T1 in a step: staged ahead of the layers, or left where they are.
#include <algorithm>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {

void SequenceCache::Impl::FindLentRows() {
  if (lender != nullptr) lender->Refresh();
  const bool may_lend = lender != nullptr && !lender->inconsistent &&
                        lender->stores.t2 == nullptr && lender->tables.size() == 1 &&
                        tables.size() == 1;
  lent.Find(tables.front()->full, may_lend ? &lender->tables.front()->full : nullptr);
  if (lent.empty()) return;
  const size_t own = tables.front()->full.page_end();
  const size_t lenders = lender->tables.front()->full.page_end();
  pages_with_lent.resize(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    std::vector<std::byte*>& pages = pages_with_lent[i];
    pages.resize(own + lenders);
    std::copy_n(streams[i].pages.begin(), own, pages.begin());
    std::copy_n(lender->streams[i].pages.begin(), lenders, pages.begin() + own);
  }
}

std::vector<T1Stage::Pages> SequenceCache::Impl::PagesToStage() {
  std::vector<T1Stage::Pages> layers(layout.num_layers());
  bool any = false;
  t1_bytes_read = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    Stream& stream = streams[i];
    const TokenTable& full = stream.table->full;
    if (full.num_pages(Tier::kT1) == 0) continue;
    std::vector<std::byte*>& pages = lent.empty() ? stream.pages : pages_with_lent[i];
    for (size_t page = 0; page < full.page_end(); ++page) {
      if (!full.HasPage(page) || full.TierOf(page) != Tier::kT1 || lent.HasPage(page)) continue;
      any = true;
      t1_bytes_read += format.PageBytes();
      layers[LayerOf(stream)].push_back({.page = stream.refs[page].id(), .address = &pages[page]});
    }
  }
  if (!any) layers.clear();
  // In the order of a file, so that memory is filled from end to end by a few long reads.
  for (T1Stage::Pages& pages : layers) std::ranges::sort(pages, {}, &StagedPage::page);
  if (layers.empty() || staged_layers.size() == layers.size()) return layers;
  std::vector<T1Stage::Pages> staged;
  t1_bytes_read = 0;
  for (const int layer : staged_layers) {
    staged.push_back(layers[layer]);
    t1_bytes_read += layers[layer].size() * format.PageBytes();
  }
  // A layer that is read first and last must not be read ahead while it is in use: an entry that no
  // attention reads ends the reading ahead.
  if (staged_layers.front() == staged_layers.back()) staged.emplace_back();
  return staged;
}

Status SequenceCache::BeginStaging(T1Reading reading) {
  Impl& c = *impl_;
  c.Refresh();
  c.reads_lent = false;
  c.in_place = reading == T1Reading::kInPlace && c.T1HasAddresses();
  if (c.in_place || c.stage == nullptr) {
    c.lent.Find(c.tables.front()->full, nullptr);
    c.t1_bytes_read = 0;
    for (const auto& group_table : c.tables) {
      if (c.in_place) group_table->SplitByTier();
      c.t1_bytes_read += group_table->full.num_pages(Tier::kT1) * c.NumStreams(*group_table) *
                         c.format.PageBytes();
    }
    return OkStatus();
  }
  c.FindLentRows();
  const Status status = c.stage->Begin(c.PagesToStage());
  c.reads_lent = status.ok() && !c.lent.empty();
  return status;
}

void SequenceCache::BorrowFrom(const SequenceCache& lender) { impl_->lender = lender.impl_.get(); }

bool SequenceCache::Impl::IsLastOfStage(int attention) const {
  const size_t next = attention + 1;
  return next == stage_of_attention.size() ||
         stage_of_attention[next] != stage_of_attention[attention];
}

void SequenceCache::StageLayer(int attention, int part) {
  if (impl_->stage == nullptr || impl_->in_place) return;
  impl_->stage->StageLayer(impl_->stage_of_attention[attention], part);
}

void SequenceCache::ReleaseLayer(int attention) {
  if (impl_->stage == nullptr || impl_->in_place || !impl_->IsLastOfStage(attention)) return;
  impl_->stage->ReleaseLayer(impl_->stage_of_attention[attention]);
}

void SequenceCache::EndLayer(int attention) {
  if (impl_->stage == nullptr || impl_->in_place || !impl_->IsLastOfStage(attention)) return;
  impl_->stage->EndLayer(impl_->stage_of_attention[attention]);
}

Status SequenceCache::EndStaging() {
  Impl& c = *impl_;
  c.reads_lent = false;
  if (c.stage == nullptr || c.in_place) return OkStatus();
  const Status status = c.stage->End();
  // Writes ended mostly during the step, so that this rarely waits.
  const Status written = c.stores.t1->WaitForWrites();
  const double waited = c.stores.t1->TakeWaitSeconds();
  c.moved.seconds += waited;
  c.moved.seconds_down += waited;
  return status.ok() ? written : status;
}

bool SequenceCache::ReadsInPlace() const { return impl_->in_place; }

SequenceCache::RowsOfTier SequenceCache::RowsIn(Tier tier, int layer, int kv_head) const {
  impl_->Refresh();
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  const GroupTable::RowsOfTier& rows = stream.table->by_tier[static_cast<size_t>(tier)];
  const auto& pages = tier == Tier::kT0 ? stream.pages : stream.t1_pages;
  return {.view = {.pages = pages.data(), .slots = rows.slots}, .indices = rows.rows};
}

size_t SequenceCache::NumRowsInT1(int layer, int kv_head) const {
  return impl_->streams[impl_->StreamIndex(layer, kv_head)].table->full.num_rows(Tier::kT1);
}

size_t SequenceCache::NumPagesInT1(int layer, int kv_head) const {
  const size_t pages =
      impl_->streams[impl_->StreamIndex(layer, kv_head)].table->full.num_pages(Tier::kT1);
  return pages - std::min(pages, impl_->lent.num_pages());
}

size_t SequenceCache::t1_bytes_read() const { return impl_->t1_bytes_read; }

}  // namespace ebb
