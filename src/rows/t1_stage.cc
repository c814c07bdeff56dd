#include "src/rows/t1_stage.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ebb {
namespace {

// A quarter more: a generation asks for another page now and then.
uint64_t RoomFor(uint64_t num_bytes) { return num_bytes + num_bytes / 4; }

}  // namespace

uint64_t T1Stage::BytesFor(uint64_t layer_bytes, bool on_device) {
  return kStageBuffers * IoMemory::BytesFor(on_device ? RoomFor(layer_bytes) : layer_bytes);
}

Status T1Stage::Begin(std::vector<Pages> layers) {
  // A step that began and was given up has reads under way.
  if (num_ahead_ == 0) Forget();
  std::array<size_t, kStageBuffers> sizes = {};
  // After the last layer comes the first one again, in the other buffer if their number is odd.
  for (size_t i = 0; i < kStageBuffers * layers.size(); ++i) {
    size_t& size = sizes[BufferOf(static_cast<int>(i))];
    size = std::max(size, layers[i % layers.size()].size() * reader_->page_bytes());
  }
  for (int i = 0; i < kStageBuffers; ++i) {
    if (sizes[i] <= reader_->memory_bytes(i)) continue;
    Forget();
    EBB_RETURN_IF_ERROR(reader_->Grow(i, RoomFor(sizes[i])));
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

void T1Stage::SetAddresses(int layer, int buffer) {
  std::byte* to = reader_->memory(buffer);
  for (const StagedPage& page : layers_[layer]) {
    *page.address = to;
    to += reader_->page_bytes();
  }
}

void T1Stage::StartNext() {
  const int at = num_begun_++;
  const int layer = at % num_layers();
  SetAddresses(layer, BufferOf(at));
  if (layers_[layer].empty()) return;
  Status& status = at < num_layers() ? error_ : ahead_error_;
  const Status started = reader_->Start(BufferOf(at), layers_[layer]);
  if (status.ok()) status = started;
}

void T1Stage::StageLayer(int layer, int part) {
  if (layers_.empty()) return;
  if (part != 0) {
    for (int staged = staged_; staged < layer; staged = staged_) staged_.wait(staged);
    return;
  }
  // A virtual disk may tell of its requests only when it has done all that it knows of: one that
  // joins before this layer's have ended would keep the layer waiting.
  const auto start = std::chrono::steady_clock::now();
  const Status status = reader_->Wait(BufferOf(layer));
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error_.ok()) error_ = status;
  // The next buffer was that of the layer before this one, which no part reads any more. A single
  // layer's pages stay where they are.
  if (num_begun_ == layer + 1 && num_layers() > 1) StartNext();
  staged_ = layer;
  staged_.notify_all();
}

void T1Stage::ReleaseLayer(int layer) {
  if (!layers_.empty()) reader_->Release(BufferOf(layer));
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
  first_buffer_ = BufferOf(num_layers());
  num_ahead_ = num_begun_ - num_layers();
  // If reading ahead failed the next step tries again, and returns the error if that fails too.
  if (!ahead_error_.ok()) Forget();
  return OkStatus();
}

void T1Stage::ReleaseMemory() {
  Forget();
  for (int i = 0; i < kStageBuffers; ++i) {
    if (reader_->memory_bytes(i) > 0) (void)reader_->Grow(i, 0);
  }
}

void T1Stage::Forget() {
  for (int i = 0; i < kStageBuffers; ++i) reader_->Drop(i);
  num_ahead_ = 0;
}

}  // namespace ebb
