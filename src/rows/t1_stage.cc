#include "src/rows/t1_stage.h"

#include <algorithm>
#include <utility>

#include "src/base/clock.h"

namespace ebb {
namespace {

// Returns a quarter more than `num_bytes`, so that a buffer need not grow with every page that
// generation adds to a layer.
uint64_t RoomFor(uint64_t num_bytes) { return num_bytes + num_bytes / 4; }

}  // namespace

uint64_t T1Stage::BytesFor(uint64_t layer_bytes, bool on_device) {
  return kBuffers * IoMemory::BytesFor(on_device ? RoomFor(layer_bytes) : layer_bytes);
}

Status T1Stage::Begin(std::vector<Pages> layers) {
  // An earlier step that began but was abandoned may have reads under way.
  if (num_ahead_ == 0) Forget();
  std::array<size_t, kBuffers> sizes = {};
  size_t most_pages = 0;
  // The first layer follows the last one; with an odd number of layers it then uses the other
  // buffer.
  for (size_t i = 0; i < kBuffers * layers.size(); ++i) {
    const size_t pages = layers[i % layers.size()].size();
    size_t& size = sizes[IndexOf(static_cast<int>(i))];
    size = std::max(size, pages * loader_->page_bytes());
    most_pages = std::max(most_pages, pages);
  }
  loader_->Reserve(most_pages);
  requests_.reserve(most_pages);
  for (size_t i = 0; i < kBuffers; ++i) {
    Buffer& buffer = buffers_[i];
    if (sizes[i] <= buffer.memory.size()) continue;
    Forget();
    buffer = {};
    const size_t num_bytes = RoomFor(sizes[i]);
    EBB_RETURN_IF_ERROR(loader_->ReserveMemory(num_bytes));
    EBB_ASSIGN_OR_RETURN(buffer.memory, loader_->Allocate(num_bytes));
  }
  if (!ReadsTheSameAhead(layers)) Forget();
  layers_ = std::move(layers);
  error_ = ahead_error_ = OkStatus();
  staged_ = -1;
  num_begun_ = std::exchange(num_ahead_, 0);
  if (layers_.empty()) return OkStatus();
  for (int i = 0; i < num_begun_; ++i) SetAddresses(i, BufferOf(i));
  if (num_begun_ == 0) StartNext();
  return OkStatus();
}

bool T1Stage::ReadsTheSameAhead(const std::vector<Pages>& layers) const {
  const auto same = [](const StagedPage& a, const StagedPage& b) { return a.page == b.page; };
  if (layers.size() != layers_.size()) return false;
  for (int i = 0; i < num_ahead_; ++i) {
    if (!std::ranges::equal(layers[i], layers_[i], same)) return false;
  }
  return true;
}

void T1Stage::SetAddresses(int layer, const Buffer& buffer) {
  std::byte* to = buffer.memory.data();
  for (const StagedPage& page : layers_[layer]) {
    *page.address = to;
    to += loader_->page_bytes();
  }
}

void T1Stage::StartNext() {
  const int at = num_begun_++;
  const int layer = at % num_layers();
  Buffer& buffer = BufferOf(at);
  SetAddresses(layer, buffer);
  if (layers_[layer].empty()) return;
  requests_.clear();
  for (const StagedPage& page : layers_[layer]) {
    requests_.push_back({.page = page.page, .memory = *page.address});
  }
  Status& status = at < num_layers() ? error_ : ahead_error_;
  const Result<PageLoader::Batch> started = loader_->Start(requests_, buffer.last_read);
  if (started.ok()) {
    buffer.loading = *started;
  } else if (status.ok()) {
    status = started.status();
  }
}

void T1Stage::StageLayer(int layer, int part) {
  if (layers_.empty()) return;
  if (part != 0) {
    for (int staged = staged_; staged < layer; staged = staged_) staged_.wait(staged);
    return;
  }
  // Waits for this layer's pages before it starts to read the next layer's. A virtual disk may
  // report requests only when all submitted ones have completed, so that submitting more reads
  // first would delay this layer.
  const double start = SecondsNow();
  Status status;
  Buffer& buffer = BufferOf(layer);
  if (buffer.loading.has_value()) {
    status = loader_->Wait(*std::exchange(buffer.loading, std::nullopt));
  }
  wait_seconds_ += SecondsNow() - start;
  if (error_.ok()) error_ = status;
  // Starts to load the next layer into the buffer of the layer before this one, which no part reads
  // any more. If there is only one layer, its pages stay loaded.
  if (num_begun_ == layer + 1 && num_layers() > 1) StartNext();
  staged_ = layer;
  staged_.notify_all();
}

void T1Stage::ReleaseLayer(int layer) {
  if (!layers_.empty()) BufferOf(layer).last_read = loader_->RecordReads();
}

void T1Stage::EndLayer(int layer) {
  if (layer + 1 == num_layers() && num_begun_ == num_layers() + 1) StartNext();
}

Status T1Stage::End() {
  if (layers_.empty()) return OkStatus();
  if (!error_.ok() || staged_ + 1 != num_layers()) {
    Forget();
    return error_;
  }
  staged_ = -1;
  first_buffer_ = IndexOf(num_layers());
  num_ahead_ = num_begun_ - num_layers();
  // A failed read ahead is no error of this step: the next step reads again, and returns the error
  // if that fails too.
  if (!ahead_error_.ok()) Forget();
  return OkStatus();
}

void T1Stage::ReleaseMemory() {
  Forget();
  buffers_ = {};
  loader_->ReleaseMemory();
}

void T1Stage::Forget() {
  (void)loader_->Finish();
  for (Buffer& buffer : buffers_) buffer.loading.reset();
  num_ahead_ = 0;
}

}  // namespace ebb
