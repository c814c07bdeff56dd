#include "src/rows/t1_edits.h"

#include <algorithm>
#include <new>
#include <utility>

#include "src/base/clock.h"

namespace ebb {
namespace {

bool Names(std::span<const PageIo> ascending, uint32_t page) {
  return std::ranges::binary_search(ascending, page, {}, &PageIo::page);
}

}  // namespace

T1Edits::~T1Edits() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.reading.has_value()) (void)file_->Wait(*buffer.reading);
    if (buffer.writing.has_value()) (void)file_->Wait(*buffer.writing);
  }
}

Status T1Edits::Reserve(size_t largest_bytes, size_t all_bytes) {
  if (IsLong(largest_bytes)) {
    const auto fits = [&](const Buffer& b) { return b.memory.size() >= largest_bytes; };
    if (std::ranges::any_of(buffers_, fits)) return OkStatus();
    EBB_RETURN_IF_ERROR(WaitForBuffers());
    for (Buffer& buffer : buffers_) buffer.memory = IoMemory();
    EBB_ASSIGN_OR_RETURN(buffers_[0].memory, IoMemory::Map(largest_bytes));
    return OkStatus();
  }
  const size_t num_bytes = std::min(all_bytes, max_bytes_ / 2);
  for (Buffer& buffer : buffers_) {
    if (buffer.memory.size() >= num_bytes) continue;
    EBB_RETURN_IF_ERROR(WaitForBuffer(&buffer));
    EBB_ASSIGN_OR_RETURN(buffer.memory, IoMemory::Map(num_bytes));
  }
  return OkStatus();
}

std::vector<T1Edits::Batch> T1Edits::Divide(std::span<const Unit> units) const {
  std::vector<Batch> batches;
  for (size_t i = 0; i < units.size(); ++i) {
    const size_t num_bytes = units[i].size() * file_->page_bytes();
    if (batches.empty() || IsLong(batches.back().num_bytes + num_bytes)) {
      batches.push_back({.first = i, .end = i});
    }
    ++batches.back().end;
    batches.back().num_bytes += num_bytes;
  }
  return batches;
}

Status T1Edits::Run(std::span<const Unit> units, const std::function<void(size_t)>& edit) {
  const std::vector<Batch> batches = Divide(units);
  Status status;
  size_t num_started = 0;
  const auto start_next = [&] {
    const Batch& batch = batches[num_started];
    return Start(units.subspan(batch.first, batch.end - batch.first), batch.num_bytes,
                 &buffers_[num_started++ % buffers_.size()]);
  };
  const auto run_all = [&] {
    for (size_t i = 0; i < batches.size() && status.ok(); ++i) {
      if (num_started == i) status = start_next();
      const bool has_next = i + 1 < batches.size();
      if (status.ok() && has_next && !IsLong(batches[i].num_bytes) &&
          !IsLong(batches[i + 1].num_bytes)) {
        status = start_next();
      }
      if (status.ok()) status = Finish(batches[i], edit, &buffers_[i % buffers_.size()]);
    }
  };
  bool out_of_memory = false;
  try {
    run_all();
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.reading.has_value()) (void)file_->Wait(*buffer.reading);
    buffer.reading.reset();
  }
  for (const Unit& unit : units) {
    for (const Page& page : unit) *page.address = nullptr;
  }
  for (Buffer& buffer : buffers_) {
    // Frees a long buffer once its pages are written, because it would stay allocated otherwise. If
    // the disk refused the write, keeps it: the pages exist only there.
    if (IsLong(buffer.memory.size()) && WaitForBuffer(&buffer).ok()) buffer.memory = IoMemory();
  }
  return out_of_memory ? OutOfMemory("no memory to edit rows of T1") : status;
}

// Sorts the pages by their place in the file, so that pages adjacent there are adjacent in memory
// too.
Status T1Edits::Start(std::span<const Unit> units, size_t num_bytes, Buffer* buffer) {
  EBB_RETURN_IF_ERROR(WaitForBuffer(buffer));
  if (IsLong(num_bytes)) {
    EBB_RETURN_IF_ERROR(WaitForBuffers());
    for (Buffer& other : buffers_) {
      if (&other == buffer) continue;
      if (other.memory.size() >= num_bytes) std::swap(buffer->memory, other.memory);
      other.memory = IoMemory();
    }
  }
  if (buffer->memory.size() < num_bytes) {
    buffer->memory = IoMemory();
    EBB_ASSIGN_OR_RETURN(buffer->memory, IoMemory::Map(num_bytes));
  }
  std::vector<const Page*> pages;
  for (const Unit& unit : units) {
    for (const Page& page : unit) pages.push_back(&page);
  }
  std::ranges::sort(pages, {}, &Page::file_page);
  std::vector<PageIo> reads;
  buffer->to_write.clear();
  std::byte* memory = buffer->memory.data();
  for (const Page* page : pages) {
    *page->address = memory;
    if (page->access != Access::kWrite) reads.push_back({page->file_page, memory});
    if (page->access != Access::kRead) buffer->to_write.push_back({page->file_page, memory});
    memory += file_->page_bytes();
  }
  EBB_RETURN_IF_ERROR(WaitForBuffersWith(reads));
  EBB_RETURN_IF_ERROR(WaitForBuffersWith(buffer->to_write));
  if (reads.empty()) return OkStatus();
  EBB_ASSIGN_OR_RETURN(buffer->reading, file_->StartRead(reads));
  return OkStatus();
}

Status T1Edits::Finish(const Batch& batch, const std::function<void(size_t)>& edit,
                       Buffer* buffer) {
  if (buffer->reading.has_value()) {
    const Status status = file_->Wait(*buffer->reading);
    buffer->reading.reset();
    EBB_RETURN_IF_ERROR(status);
  }
  for (size_t unit = batch.first; unit < batch.end; ++unit) edit(unit);
  buffer->written.swap(buffer->to_write);
  return Write(buffer);
}

Status T1Edits::Write(Buffer* buffer) {
  if (buffer->written.empty()) return OkStatus();
  EBB_ASSIGN_OR_RETURN(buffer->writing, file_->StartWrite(buffer->written));
  return OkStatus();
}

Status T1Edits::WaitForBuffer(Buffer* buffer) {
  if (buffer->written.empty()) return OkStatus();
  if (!buffer->writing.has_value()) EBB_RETURN_IF_ERROR(Write(buffer));
  const Status status = file_->Wait(*buffer->writing);
  buffer->writing.reset();
  if (status.ok()) buffer->written.clear();
  return status;
}

Status T1Edits::WaitForBuffers() {
  Status first;
  for (Buffer& buffer : buffers_) {
    const Status status = WaitForBuffer(&buffer);
    if (first.ok()) first = status;
  }
  return first;
}

Status T1Edits::WaitForBuffersWith(std::span<const PageIo> pages) {
  for (Buffer& buffer : buffers_) {
    const auto is_written = [&](const PageIo& io) { return Names(buffer.written, io.page); };
    if (std::ranges::any_of(pages, is_written)) EBB_RETURN_IF_ERROR(WaitForBuffer(&buffer));
  }
  return OkStatus();
}

Status T1Edits::Check() {
  for (Buffer& buffer : buffers_) {
    if (buffer.writing.has_value() && !file_->Done(*buffer.writing)) continue;
    EBB_RETURN_IF_ERROR(WaitForBuffer(&buffer));
  }
  return OkStatus();
}

Status T1Edits::WaitFor(std::span<const PageIo> pages) {
  const double start = SecondsNow();
  Status status = WaitForBuffersWith(pages);
  wait_seconds_ += SecondsNow() - start;
  return status;
}

Status T1Edits::WaitForWrites() {
  const double start = SecondsNow();
  Status status = WaitForBuffers();
  wait_seconds_ += SecondsNow() - start;
  return status;
}

void T1Edits::Forget(uint32_t file_page) {
  for (Buffer& buffer : buffers_) {
    if (!Names(buffer.written, file_page)) continue;
    if (buffer.writing.has_value() && WaitForBuffer(&buffer).ok()) continue;
    std::erase_if(buffer.written, [&](const PageIo& io) { return io.page == file_page; });
  }
}

size_t T1Edits::memory_bytes() const {
  size_t num_bytes = 0;
  for (const Buffer& buffer : buffers_) num_bytes += buffer.memory.size();
  return num_bytes;
}

double T1Edits::TakeWaitSeconds() { return std::exchange(wait_seconds_, 0); }

}  // namespace ebb
