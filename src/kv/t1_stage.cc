#include "src/kv/t1_stage.h"

#include <algorithm>
#include <chrono>

namespace ebb {

Status T1Stage::Begin(std::vector<Pages> layers) {
  // A step that began and was given up has reads under way.
  if (!ahead_) Forget();
  std::array<size_t, kStageBuffers> sizes = {};
  // Behind the last layer comes the first one again, in the other buffer if their number is odd.
  for (size_t i = 0; i < kStageBuffers * layers.size(); ++i) {
    size_t& size = sizes[BufferOf(static_cast<int>(i))];
    size = std::max(size, layers[i % layers.size()].size() * reader_->page_bytes());
  }
  for (int i = 0; i < kStageBuffers; ++i) {
    if (sizes[i] <= reader_->memory_bytes(i)) continue;
    Forget();
    // A quarter more: a generation asks for another page now and then.
    EBB_RETURN_IF_ERROR(reader_->Grow(i, sizes[i] + sizes[i] / 4));
  }
  if (ahead_ && !ReadsTheSameAhead(layers)) Forget();
  layers_ = std::move(layers);
  error_ = OkStatus();
  staged_ = -1;
  if (layers_.empty()) return OkStatus();
  if (ahead_) {
    Place(0, BufferOf(0));
  } else {
    error_ = Start(0, BufferOf(0));
  }
  ahead_ = false;
  return OkStatus();
}

bool T1Stage::ReadsTheSameAhead(const std::vector<Pages>& layers) const {
  const auto same = [](const StagedPage& a, const StagedPage& b) {
    return a.file_page == b.file_page && a.host_page == b.host_page;
  };
  return !layers.empty() && std::ranges::equal(layers.front(), layers_.front(), same);
}

void T1Stage::Place(int layer, int buffer) {
  std::byte* to = reader_->memory(buffer);
  for (const StagedPage& page : layers_[layer]) {
    *page.address = to;
    to += reader_->page_bytes();
  }
}

Status T1Stage::Start(int layer, int buffer) {
  Place(layer, buffer);
  if (layers_[layer].empty()) return OkStatus();
  return reader_->Start(buffer, layer, layers_[layer]);
}

void T1Stage::StageLayer(int layer, int thread) {
  if (layers_.empty()) return;
  if (thread != 0) {
    for (int staged = staged_; staged < layer; staged = staged_) staged_.wait(staged);
    return;
  }
  // A virtual disk may tell of its requests only when it has done all that it knows of: one that
  // joins before this layer's have ended would keep the layer waiting.
  const auto start = std::chrono::steady_clock::now();
  const Status status = reader_->Wait(BufferOf(layer));
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error_.ok()) error_ = status;
  // The next buffer was that of the layer before this one, which nobody reads any more.
  const int next = layer + 1;
  if (next < num_layers()) {
    const Status started = Start(next, BufferOf(next));
    if (error_.ok()) error_ = started;
  } else if (next > 1) {  // a single layer's pages stay where they are
    ahead_status_ = Start(0, BufferOf(next));
  }
  staged_ = layer;
  staged_.notify_all();
}

void T1Stage::ReleaseLayer(int layer) {
  if (!layers_.empty()) reader_->Release(BufferOf(layer));
}

Status T1Stage::End() {
  if (layers_.empty()) return OkStatus();
  if (error_.ok() && staged_ + 1 == num_layers()) {
    if (num_layers() == 1) return OkStatus();
    first_buffer_ = BufferOf(num_layers());
    ahead_ = ahead_status_.ok();
    // Where it failed the next step tries again, and says so if it fails again.
    if (!ahead_) Forget();
    return OkStatus();
  }
  Forget();
  return error_;
}

void T1Stage::Forget() {
  for (int i = 0; i < kStageBuffers; ++i) reader_->Drop(i);
  ahead_ = false;
}

}  // namespace ebb
