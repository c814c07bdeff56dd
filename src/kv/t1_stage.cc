#include "src/kv/t1_stage.h"

#include <algorithm>
#include <chrono>

namespace ebb {

Status T1Stage::Begin(std::vector<Pages> layers) {
  // A step that began and was given up has reads under way.
  if (!ahead_) Forget();
  std::array<size_t, kStageBuffers> sizes = {};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    size_t& size = sizes[layer % kStageBuffers];
    size = std::max(size, layers[layer].size() * reader_->page_bytes());
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
  for (int layer = 0; layer < std::min(kAhead, num_layers()); ++layer) {
    if (ahead_) {
      Place(layer);
    } else {
      Start(layer);
    }
  }
  ahead_ = false;
  return OkStatus();
}

bool T1Stage::ReadsTheSameAhead(const std::vector<Pages>& layers) const {
  const auto same = [](const StagedPage& a, const StagedPage& b) {
    return a.file_page == b.file_page && a.host_page == b.host_page;
  };
  if (layers.size() != layers_.size()) return false;
  for (int layer = 0; layer < std::min(kAhead, num_layers()); ++layer) {
    if (!std::ranges::equal(layers[layer], layers_[layer], same)) return false;
  }
  return true;
}

void T1Stage::Place(int layer) {
  std::byte* to = reader_->memory(BufferOf(layer));
  for (const StagedPage& page : layers_[layer]) {
    *page.address = to;
    to += reader_->page_bytes();
  }
}

void T1Stage::Start(int layer) {
  Place(layer);
  if (layers_[layer].empty()) return;
  const Status status = reader_->Start(BufferOf(layer), layer, layers_[layer]);
  if (error_.ok()) error_ = status;
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
  // Its buffer was that of the layer before this one, which nobody reads any more.
  if (layer + kAhead < num_layers()) Start(layer + kAhead);
  staged_ = layer;
  staged_.notify_all();
}

void T1Stage::ReleaseLayer(int layer) {
  if (!layers_.empty()) reader_->Release(BufferOf(layer));
}

Status T1Stage::End() {
  if (layers_.empty()) return OkStatus();
  if (error_.ok() && staged_ + 1 == num_layers()) {
    // Nobody reads any buffer any more.
    for (int layer = 0; layer < std::min(kAhead, num_layers()); ++layer) Start(layer);
    ahead_ = true;
    if (error_.ok()) return OkStatus();
    // The next step tries again, and says so if it fails again.
    Forget();
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
