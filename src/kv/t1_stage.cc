#include "src/kv/t1_stage.h"

#include <algorithm>
#include <chrono>

namespace ebb {

Status T1Stage::Grow(Buffer* buffer, size_t size) {
  if (size <= buffer->memory.size()) return OkStatus();
  // A quarter more: a generation asks for another page now and then.
  buffer->memory = IoMemory();
  EBB_ASSIGN_OR_RETURN(buffer->memory, IoMemory::Map(size + size / 4));
  return OkStatus();
}

Status T1Stage::Begin(std::vector<Pages> layers) {
  // A step that began and was given up has reads under way.
  if (!ahead_) Forget();
  std::array<size_t, kBuffers> sizes = {};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    size_t& size = sizes[layer % kBuffers];
    size = std::max(size, layers[layer].size() * file_->page_bytes());
  }
  for (int i = 0; i < kBuffers; ++i) {
    if (sizes[i] > buffers_[i].memory.size()) Forget();
    EBB_RETURN_IF_ERROR(Grow(&buffers_[i], sizes[i]));
  }
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

void T1Stage::Place(int layer) {
  std::byte* to = BufferOf(layer).memory.data();
  for (const Page& page : layers_[layer]) {
    *page.address = to;
    to += file_->page_bytes();
  }
}

void T1Stage::Start(int layer) {
  Place(layer);
  Buffer& buffer = BufferOf(layer);
  std::vector<PageIo> requests;
  for (const Page& page : layers_[layer]) {
    requests.push_back({.page = page.file_page, .memory = *page.address});
  }
  if (requests.empty()) return;
  Result<PageFile::Ticket> ticket = file_->StartRead(requests);
  if (ticket.ok()) {
    buffer.ticket = *ticket;
  } else if (error_.ok()) {
    error_ = ticket.status();
  }
}

void T1Stage::Wait(int layer) {
  Buffer& buffer = BufferOf(layer);
  if (!buffer.ticket.has_value()) return;
  const auto start = std::chrono::steady_clock::now();
  const Status status = file_->Wait(*buffer.ticket);
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  buffer.ticket.reset();
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
  Wait(layer);
  // Its buffer was that of the layer before this one, which nobody reads any more.
  if (layer + kAhead < num_layers()) Start(layer + kAhead);
  staged_ = layer;
  staged_.notify_all();
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
  for (Buffer& buffer : buffers_) {
    if (buffer.ticket.has_value()) (void)file_->Wait(*buffer.ticket);
    buffer.ticket.reset();
  }
  ahead_ = false;
}

}  // namespace ebb
