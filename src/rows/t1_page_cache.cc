#include "src/rows/t1_page_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "src/base/clock.h"

namespace ebb {

Status T1PageCache::Resize(size_t num_chunks, std::vector<LoadedMemory>* chunks) {
  if (chunks->size() > num_chunks) chunks->resize(num_chunks);
  while (chunks->size() < num_chunks) {
    EBB_ASSIGN_OR_RETURN(LoadedMemory chunk, loader_->Allocate(kChunkBytes));
    chunks->push_back(std::move(chunk));
  }
  return OkStatus();
}

Status T1PageCache::Begin(const StepSize& size) {
  ++step_;
  error_ = OkStatus();
  const size_t page_bytes = loader_->page_bytes();
  for (Spill& spill : spills_) {
    EBB_RETURN_IF_ERROR(Resize(ChunksFor(size.most_of_layer, page_bytes), &spill.chunks));
    spill.pages.reserve(size.most_of_layer);
  }
  // Keeps one chunk more than needed, so that a capacity that varies a little from step to step
  // neither frees nor allocates memory.
  const size_t num_chunks = std::min(ChunksFor(size.capacity, page_bytes), most_chunks_);
  if (num_chunks > chunks_.size() || num_chunks + 1 < chunks_.size()) {
    EBB_RETURN_IF_ERROR(ResizePlaces(num_chunks));
  }
  loader_->Reserve(size.most_of_layer);
  layer_ = 0;
  place_of_.resize(std::max(place_of_.size(), loader_->page_end()), kNone);
  spill_of_.resize(place_of_.size(), kNone);
  expected_by_.resize(place_of_.size(), 0);
  requests_.reserve(size.most_of_layer);
  foreseen_.reserve(size.most_of_layer);
  return OkStatus();
}

Status T1PageCache::ResizePlaces(size_t num_chunks) {
  const auto shrink_to = [&](size_t num_places) {
    for (auto place = static_cast<uint32_t>(num_places); place < places_.size(); ++place) {
      if (places_[place].page != kNoPage) Free(place);
    }
    std::erase_if(free_, [&](uint32_t place) { return place >= num_places; });
    places_.resize(std::min(places_.size(), num_places));
  };
  shrink_to(num_chunks * pages_per_chunk());
  const Status resized = Resize(num_chunks, &chunks_);
  if (!resized.ok()) {
    if (resized.code() != StatusCode::kOutOfMemory) return resized;
    // Leaves an eighth of the memory to T0, whose rows may lie on the same device.
    most_chunks_ = chunks_.size() - chunks_.size() / 8;
    shrink_to(most_chunks_ * pages_per_chunk());
    EBB_RETURN_IF_ERROR(Resize(most_chunks_, &chunks_));
  }
  const size_t before = places_.size();
  places_.resize(chunks_.size() * pages_per_chunk());
  free_.reserve(places_.size());
  for (size_t place = before; place < places_.size(); ++place) {
    free_.push_back(static_cast<uint32_t>(place));
  }
  return OkStatus();
}

void T1PageCache::BeginLayer() {
  if (layer_ > 0) ForgetSpill(&SpillOf(layer_ - 1));
  ++layer_;
  requests_.clear();
  foreseen_.clear();
}

std::byte* T1PageCache::SpillPage(PageId page, size_t layer) {
  Spill& spill = SpillOf(layer);
  spill_of_[page] = static_cast<uint32_t>(spill.pages.size());
  spill.pages.push_back({.page = page});
  ++stats_.misses;
  return AddressOf(spill.chunks, spill_of_[page]);
}

void T1PageCache::Want(PageId page, std::byte** address) {
  uint32_t place = place_of_[page];
  if (place != kNone) {
    *address = AddressOf(chunks_, place);
    // The step has used this page already: the layer named it before, or it was missing and was
    // read ahead.
    if (std::exchange(places_[place].wanted_step, step_) == step_) return;
    Use(place);
    ++stats_.hits;
    return;
  }
  if (spill_of_[page] != kNone) {
    Spill& spill = SpillOf(layer_ - 1);
    spill.pages[spill_of_[page]].is_wanted = true;
    *address = AddressOf(spill.chunks, spill_of_[page]);
    return;
  }
  place = TakePlace();
  if (place == kNone) {
    *address = SpillPage(page, layer_ - 1);
    SpillOf(layer_ - 1).pages.back().is_wanted = true;
  } else {
    Fill(place, page);
    *address = AddressOf(chunks_, place);
    ++stats_.misses;
  }
  requests_.push_back({.page = page, .memory = *address});
}

std::optional<PageLoader::Batch> T1PageCache::Load(Status* status) {
  if (requests_.empty()) return std::nullopt;
  // Sorts the pages by their place in the file, so that adjacent pages become one request.
  std::ranges::sort(requests_, {}, &PageIo::page);
  const Result<PageLoader::Batch> batch = loader_->Start(requests_, {});
  *status = batch.status();
  return batch.ok() ? std::optional(*batch) : std::nullopt;
}

Status T1PageCache::Read() try {
  const double start = SecondsNow();
  const size_t layer = layer_ - 1;
  Status status;
  const std::optional<PageLoader::Batch> reading = Load(&status);
  const Status ahead = WaitForReadAhead(&SpillOf(layer));
  if (reading.has_value()) status = loader_->Wait(*reading);
  if (status.ok()) status = ahead;
  requests_.clear();
  if (error_.ok()) error_ = status;
  NoteExpected(layer);
  if (status.ok() && layer + 1 < expected_.size()) ReadAhead(layer + 1);
  stats_.wait_seconds += SecondsNow() - start;
  return status;
} catch (const std::bad_alloc&) {  // a step must not throw
  if (error_.ok()) error_ = OutOfMemory("no memory for the list of pages to read");
  return error_;
}

// Records the pages that the layer is expected to read in the next step. Spilled pages that were
// read ahead but not used are left out.
void T1PageCache::NoteExpected(size_t layer) {
  if (expected_.size() <= layer) expected_.resize(layer + 1);
  Expected& expected = expected_[layer];
  expected.is_foreseen = !foreseen_.empty();
  expected.pages = foreseen_;
  if (!expected.is_foreseen) {
    for (const SpilledPage& spilled : SpillOf(layer).pages) {
      if (spilled.is_wanted) expected.pages.push_back(spilled.page);
    }
  }
  for (const PageId page : expected.pages) expected_by_[page] = static_cast<uint32_t>(layer) + 1;
}

std::byte* T1PageCache::PlaceAhead(PageId page, size_t layer, bool is_foreseen) {
  // The current layer has spilled this page too, so that the next layer must read it itself.
  if (spill_of_[page] != kNone) return nullptr;
  if (place_of_[page] != kNone) {
    // Marks the page as used, so that it is not evicted before the layer reads it.
    if (is_foreseen) Use(place_of_[page]);
    return nullptr;
  }
  const uint32_t place = is_foreseen ? TakePlace() : kNone;
  if (place == kNone) return SpillPage(page, layer);
  ++stats_.misses;
  Fill(place, page);
  return AddressOf(chunks_, place);
}

void T1PageCache::ReadAhead(size_t layer) {
  Spill& spill = SpillOf(layer);
  ForgetSpill(&spill);  // the pages of the layer before the current one
  requests_.clear();
  for (const PageId page : expected_[layer].pages) {
    if (expected_by_[page] != layer + 1) continue;  // its id may be another page's
    std::byte* const memory = PlaceAhead(page, layer, expected_[layer].is_foreseen);
    if (memory != nullptr) requests_.push_back({.page = page, .memory = memory});
  }
  Status status;
  spill.reading_ahead = Load(&status);
  if (!status.ok()) {  // the layer itself will read the pages
    ForgetSpill(&spill);
    for (const PageIo& request : requests_) {
      if (place_of_[request.page] != kNone) Free(place_of_[request.page]);
    }
  }
  requests_.clear();
}

Status T1PageCache::WaitForReadAhead(Spill* spill) {
  if (!spill->reading_ahead.has_value()) return OkStatus();
  const Status status = loader_->Wait(*spill->reading_ahead);
  spill->reading_ahead.reset();
  return status;
}

void T1PageCache::ForgetSpill(Spill* spill) {
  spill->reading_ahead.reset();
  for (const SpilledPage& spilled : spill->pages) spill_of_[spilled.page] = kNone;
  spill->pages.clear();
}

Status T1PageCache::End() {
  // A step that ended early may have pages that were not loaded: requested ones, or those read
  // ahead for a layer that it did not reach.
  bool are_missing = !requests_.empty();
  for (Spill& spill : spills_) {
    are_missing |= spill.reading_ahead.has_value();
    ForgetSpill(&spill);
  }
  requests_.clear();
  const Status finished = loader_->Finish();
  if (error_.ok()) error_ = finished;
  if (error_.ok() && !are_missing) return OkStatus();
  for (uint32_t place = 0; place < places_.size(); ++place) {
    if (places_[place].page != kNoPage && places_[place].step == step_) Free(place);
  }
  return std::exchange(error_, OkStatus());
}

std::byte* T1PageCache::Find(PageId page) const {
  const bool cached = page < place_of_.size() && place_of_[page] != kNone;
  return cached ? AddressOf(chunks_, place_of_[page]) : nullptr;
}

void T1PageCache::Drop(PageId page) {
  if (page >= place_of_.size()) return;
  if (place_of_[page] != kNone) Free(place_of_[page]);
  expected_by_[page] = 0;
}

void T1PageCache::Clear() {
  for (Spill& spill : spills_) ForgetSpill(&spill);
  (void)loader_->Finish();
  for (Spill& spill : spills_) spill.chunks.clear();
  expected_.clear();
  for (uint32_t place = 0; place < places_.size(); ++place) {
    if (places_[place].page != kNoPage) Free(place);
  }
  places_.clear();
  free_.clear();
  chunks_.clear();
  most_chunks_ = std::numeric_limits<size_t>::max();
  loader_->ReleaseMemory();
}

void T1PageCache::Unlink(uint32_t place) {
  const Place& at = places_[place];
  (at.before == kNone ? first_ : places_[at.before].after) = at.after;
  (at.after == kNone ? last_ : places_[at.after].before) = at.before;
}

void T1PageCache::LinkFirst(uint32_t place) {
  places_[place].before = kNone;
  places_[place].after = first_;
  (first_ == kNone ? last_ : places_[first_].before) = place;
  first_ = place;
}

void T1PageCache::Use(uint32_t place) {
  places_[place].step = step_;
  Unlink(place);
  LinkFirst(place);
}

void T1PageCache::Fill(uint32_t place, PageId page) {
  places_[place].page = page;
  places_[place].step = places_[place].wanted_step = step_;
  place_of_[page] = place;
  LinkFirst(place);
}

void T1PageCache::Free(uint32_t place) {
  Unlink(place);
  place_of_[places_[place].page] = kNone;
  places_[place] = {};
  free_.push_back(place);
}

uint32_t T1PageCache::TakePlace() {
  if (free_.empty() && last_ != kNone && places_[last_].step + 1 < step_) Free(last_);
  if (free_.empty()) return kNone;
  const uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

}  // namespace ebb
