#include "src/kv/t1_reader.h"

#include <algorithm>
#include <utility>

namespace ebb {

T1Reader::T1Reader(const ModelShape& shape, const CacheLayout& layout, const RowStores& stores,
                   GroupTables* tables, PageMap* pages)
    : layout_(layout),
      stage_(stores.t1 == nullptr ? nullptr : stores.t1->stage()),
      page_cache_(stores.t1 == nullptr ? nullptr : stores.t1->page_cache()),
      tables_(tables),
      pages_(pages) {
  for (int attention = 0; attention < shape.NumAttentions(); ++attention) {
    const int layer = shape.LayerRead(attention);
    if (staged_layers_.empty() || staged_layers_.back() != layer) staged_layers_.push_back(layer);
    stage_of_attention_.push_back(static_cast<int>(staged_layers_.size()) - 1);
  }
}

void T1Reader::FindLentRows() {
  if (lender_.pages != nullptr) lender_.pages->FindAddresses();
  const bool may_lend = lender_.pages != nullptr && lender_.health->is_consistent() &&
                        lender_.pages->PagesOf(Tier::kT2) == nullptr &&
                        lender_.tables->size() == 1 && tables_->size() == 1;
  const GroupTable& own = *tables_->all().front();
  lent_.Find(own, may_lend ? lender_.tables->all().front().get() : nullptr);
  if (lent_.empty()) return;
  const size_t num_own = own.rows.page_end();
  const size_t num_lenders = lender_.tables->all().front()->rows.page_end();
  pages_with_lent_.resize(layout_.num_streams());
  for (int i = 0; i < layout_.num_streams(); ++i) {
    std::vector<std::byte*>& pages = pages_with_lent_[i];
    pages.resize(num_own + num_lenders);
    std::copy_n(pages_->stream(i).pages.begin(), num_own, pages.begin());
    std::copy_n(lender_.pages->stream(i).pages.begin(), num_lenders, pages.begin() + num_own);
  }
}

std::vector<T1Stage::Pages> T1Reader::PagesToStage(T1Reading reading) {
  std::vector<T1Stage::Pages> layers(layout_.num_layers());
  const bool uses_cache = reading == T1Reading::kStagedAndCached && page_cache_ != nullptr;
  bool any = false;
  bytes_read_ = 0;
  for (int i = 0; i < layout_.num_streams(); ++i) {
    const TokenTable& rows = tables_->Of(layout_.GroupOf(i)).rows;
    if (rows.num_pages(Tier::kT1) == 0) continue;
    for (size_t page = 0; page < rows.page_end(); ++page) {
      if (!rows.HasPage(page, Tier::kT1) || lent_.HasPage(page)) continue;
      const PageId id = pages_->IdOf(i, page);
      std::byte** const address =
          lent_.empty() ? pages_->StagedAddress(i, page) : &pages_with_lent_[i][page];
      if (uses_cache) {
        *address = page_cache_->Find(id);
        if (*address != nullptr) continue;
      }
      any = true;
      bytes_read_ += layout_.PageBytes(Tier::kT1);
      layers[layout_.LayerOf(i)].push_back({.page = id, .address = address});
    }
  }
  if (!any) layers.clear();
  // Sorts pages in the order of the file, so that a few long reads fill memory from end to end.
  for (T1Stage::Pages& pages : layers) std::ranges::sort(pages, {}, &StagedPage::page);
  if (layers.empty() || staged_layers_.size() == layers.size()) return layers;
  std::vector<T1Stage::Pages> staged;
  bytes_read_ = 0;
  for (const int layer : staged_layers_) {
    staged.push_back(layers[layer]);
    bytes_read_ += layers[layer].size() * layout_.PageBytes(Tier::kT1);
  }
  // The first layer must not be read ahead while it is still in use as the last one, so an empty
  // entry, which no attention reads, ends the reading ahead.
  if (staged_layers_.front() == staged_layers_.back()) staged.emplace_back();
  return staged;
}

Status T1Reader::BeginSelected(bool keeps_stage) {
  lent_.Find(*tables_->all().front(), nullptr);
  if (!keeps_stage) stage_->ReleaseMemory();
  T1PageCache::StepSize size;
  size_t num_pages = 0, pages_in_t0 = 0;
  std::vector<size_t> of_layers(layout_.num_layers());
  for (int i = 0; i < layout_.num_streams(); ++i) {
    const TokenTable& rows = tables_->Of(layout_.GroupOf(i)).rows;
    num_pages += rows.num_pages(Tier::kT1);
    pages_in_t0 += rows.num_pages(Tier::kT0);
    of_layers[layout_.LayerOf(i)] += rows.num_pages(Tier::kT1);
  }
  size.capacity = static_cast<size_t>(cached_.share * static_cast<double>(num_pages));
  if (cached_.t0_cap_bytes > 0) {
    const size_t cap = cached_.t0_cap_bytes / layout_.PageBytes(Tier::kT0);
    size.capacity = std::min(size.capacity, cap - std::min(cap, pages_in_t0));
  }
  size.most_of_layer = std::ranges::max(of_layers);
  misses_before_ = page_cache_->stats().misses;
  return page_cache_->Begin(size);
}

template <typename Visitor>
void T1Reader::ForEachT1Page(int stream, std::span<const RowRange> ranges,
                             const Visitor& visit) const {
  const GroupTable& table = tables_->Of(layout_.GroupOf(stream));
  const std::span<const Slot> slots = table.FullSlots();
  uint32_t last = ~uint32_t{0};
  for (const RowRange& range : ranges) {
    for (size_t row = range.begin; row < range.end; ++row) {
      const uint32_t page = slots[row].page();
      if (page == last) continue;
      last = page;
      if (table.rows.TierOf(page) == Tier::kT1) visit(page);
    }
  }
}

void T1Reader::ClearAddresses(int layer) const {
  if (!reads_selected_) return;
  for (int head = 0; head < layout_.NumKvHeads(layer); ++head) {
    const int stream = layout_.StreamOf(layer, head);
    tables_->Of(layout_.GroupOf(stream)).ForEachPage(Tier::kT1, [&](size_t page) {
      *pages_->StagedAddress(stream, page) = nullptr;
    });
  }
}

void T1Reader::WantRows(int layer, int kv_head, std::span<const RowRange> ranges) const {
  if (!reads_selected_) return;
  const int stream = layout_.StreamOf(layer, kv_head);
  const RowRange all = {0, tables_->Of(layout_.GroupOf(stream)).FullSlots().size()};
  ForEachT1Page(stream, ranges.empty() ? std::span(&all, 1) : ranges, [&](uint32_t page) {
    page_cache_->Want(pages_->IdOf(stream, page), pages_->StagedAddress(stream, page));
  });
}

void T1Reader::ForeseeRows(int layer, int kv_head, std::span<const RowRange> ranges) const {
  if (!reads_selected_) return;
  const int stream = layout_.StreamOf(layer, kv_head);
  ForEachT1Page(stream, ranges,
                [&](uint32_t page) { page_cache_->Foresee(pages_->IdOf(stream, page)); });
}

Status T1Reader::Begin(T1Reading reading) {
  const T1Reading before = std::exchange(last_reading_, reading);
  reads_lent_ = false;
  reads_selected_ = reading == T1Reading::kSelected && page_cache_ != nullptr;
  reads_in_place_ = reading == T1Reading::kInPlace && pages_->T1HasAddresses();
  if (!IsStaged()) {
    lent_.Find(*tables_->all().front(), nullptr);
    bytes_read_ = 0;
    for (const auto& table : tables_->all()) {
      if (reads_in_place_) table->SplitByTier();
      bytes_read_ += table->rows.num_pages(Tier::kT1) * layout_.NumStreamsOf(table->groups) *
                     layout_.PageBytes(Tier::kT1);
    }
    return OkStatus();
  }
  // Keeps the stage's memory if the step before used it, because drafting steps and verifying steps
  // alternate.
  if (reads_selected_) return BeginSelected(/*keeps_stage=*/before == T1Reading::kStagedAndCached);
  // Frees the cached pages while a prompt is read, because T0 may need the memory.
  if (reading != T1Reading::kStagedAndCached) ReleaseCached();
  FindLentRows();
  EBB_RETURN_IF_ERROR(stage_->Begin(PagesToStage(reading)));
  reads_lent_ = !lent_.empty();
  return OkStatus();
}

Status T1Reader::End() {
  reads_lent_ = false;
  if (!reads_selected_) return IsStaged() ? stage_->End() : OkStatus();
  bytes_read_ = static_cast<size_t>(page_cache_->stats().misses - misses_before_) *
                layout_.PageBytes(Tier::kT1);
  return page_cache_->End();
}

SelectionAccounting T1Reader::selection() const {
  if (page_cache_ == nullptr) return {};
  const T1PageCache::Stats& stats = page_cache_->stats();
  return {.pages_cached = stats.hits,
          .pages_read = stats.misses,
          .bytes_read = static_cast<size_t>(stats.misses) * layout_.PageBytes(Tier::kT1),
          .wait_seconds = stats.wait_seconds};
}

size_t T1Reader::table_bytes() const {
  size_t bytes = sizeof(T1Reader) + lent_.table_bytes() +
                 pages_with_lent_.capacity() * sizeof(pages_with_lent_[0]);
  for (const auto& pages : pages_with_lent_) bytes += pages.capacity() * sizeof(std::byte*);
  return bytes;
}

}  // namespace ebb
