#include "src/rows/t1_page_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ebb {

Status T1PageCache::Resize(size_t num_chunks, std::vector<IoMemory>* chunks) {
  if (chunks->size() > num_chunks) chunks->resize(num_chunks);
  while (chunks->size() < num_chunks) {
    EBB_ASSIGN_OR_RETURN(IoMemory chunk, IoMemory::Map(kChunkBytes));
    chunks->push_back(std::move(chunk));
  }
  return OkStatus();
}

Status T1PageCache::Begin(const StepSize& size) {
  ++step_;
  error_ = OkStatus();
  const size_t per_chunk = pages_per_chunk();
  // Memory comes and goes by chunks; a chunk less than is held is kept, so that a number of pages
  // that varies moves nothing.
  const size_t num_chunks = (size.capacity + per_chunk - 1) / per_chunk;
  if (num_chunks > chunks_.size() || num_chunks + 1 < chunks_.size()) {
    for (auto place = static_cast<uint32_t>(num_chunks * per_chunk); place < places_.size();
         ++place) {
      if (places_[place].page != kNoPage) Free(place);
    }
    std::erase_if(free_, [&](uint32_t place) { return place >= num_chunks * per_chunk; });
    EBB_RETURN_IF_ERROR(Resize(num_chunks, &chunks_));
    const size_t before = places_.size();
    places_.resize(num_chunks * per_chunk);
    free_.reserve(places_.size());
    for (size_t place = before; place < places_.size(); ++place) {
      free_.push_back(static_cast<uint32_t>(place));
    }
  }
  EBB_RETURN_IF_ERROR(Resize((size.most_of_layer + per_chunk - 1) / per_chunk, &spill_));
  place_of_.resize(std::max<size_t>(place_of_.size(), size.page_end), kNone);
  spill_of_.resize(place_of_.size(), kNone);
  spilled_.reserve(size.most_of_layer);
  requests_.reserve(size.most_of_layer);
  return OkStatus();
}

void T1PageCache::BeginLayer() {
  for (const PageId page : spilled_) spill_of_[page] = kNone;
  spilled_.clear();
  requests_.clear();
}

void T1PageCache::Want(PageId page, std::byte** address) {
  uint32_t place = place_of_[page];
  if (place != kNone) {
    *address = AddressOf(chunks_, place);
    // Two streams never share a page, so one that was used in this step was named before.
    if (places_[place].step == step_) return;
    places_[place].step = step_;
    Unlink(place);
    LinkFirst(place);
    ++stats_.hits;
    return;
  }
  if (spill_of_[page] != kNone) {
    *address = AddressOf(spill_, spill_of_[page]);
    return;
  }
  ++stats_.misses;
  place = TakePlace();
  if (place != kNone) {
    places_[place].page = page;
    places_[place].step = step_;
    place_of_[page] = place;
    LinkFirst(place);
    *address = AddressOf(chunks_, place);
  } else {
    spill_of_[page] = static_cast<uint32_t>(spilled_.size());
    spilled_.push_back(page);
    *address = AddressOf(spill_, spill_of_[page]);
  }
  requests_.push_back({.page = page, .memory = *address});
}

Status T1PageCache::Read() {
  if (requests_.empty()) return OkStatus();
  const auto start = std::chrono::steady_clock::now();
  // In the order of the file, where neighbours are one request.
  std::ranges::sort(requests_, {}, &PageIo::page);
  Status status = edits_->WaitFor(requests_);
  if (status.ok()) {
    const Result<PageFile::Ticket> ticket = file_->StartRead(requests_);
    status = ticket.ok() ? file_->Wait(*ticket) : ticket.status();
  }
  requests_.clear();
  stats_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error_.ok()) error_ = status;
  return status;
}

Status T1PageCache::End() {
  BeginLayer();
  if (error_.ok()) return OkStatus();
  for (uint32_t place = 0; place < places_.size(); ++place) {
    if (places_[place].page != kNoPage && places_[place].step == step_) Free(place);
  }
  return std::exchange(error_, OkStatus());
}

void T1PageCache::Drop(PageId page) {
  if (page < place_of_.size() && place_of_[page] != kNone) Free(place_of_[page]);
}

void T1PageCache::Clear() {
  for (uint32_t place = 0; place < places_.size(); ++place) {
    if (places_[place].page != kNoPage) Free(place);
  }
  places_.clear();
  free_.clear();
  chunks_.clear();
  spill_.clear();
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

void T1PageCache::Free(uint32_t place) {
  Unlink(place);
  place_of_[places_[place].page] = kNone;
  places_[place] = {};
  free_.push_back(place);
}

uint32_t T1PageCache::TakePlace() {
  if (free_.empty() && last_ != kNone && places_[last_].step != step_) Free(last_);
  if (free_.empty()) return kNone;
  const uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

}  // namespace ebb
