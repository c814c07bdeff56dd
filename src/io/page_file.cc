// Invariants: (1) free_slots holds every slot that names no run in flight. (2) `waiting` holds
// every batch with HasMore(), in the order of their tickets, and runs are started in that order.
// Therefore a batch whose run fails is the first one, and Pump() removes it at once because the
// slot of its run is free again. (3) A page's num_readers and is_written_to count the batches
// between Start...() and Wait().
#include "src/io/page_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <utility>

#include "src/base/clock.h"
#include "src/base/text/size_text.h"
#include "src/io/page_batch.h"

namespace ebb {
namespace {

constexpr size_t kMaxPageBytes = size_t{2} << 20;

struct PageState {
  uint64_t checksum = 0;  // checksum of the last write; used with verify_checksums
  uint32_t num_readers = 0;
  uint32_t num_holders = 1;
  bool is_written_to = false;
  bool has_contents = false;
};

}  // namespace

struct PageFile::Impl {
  struct Slot {
    PageBatch* batch = nullptr;
    PageRun* run = nullptr;
  };

  PageFileOptions options;
  std::unique_ptr<PrivateFile> file;
  std::unique_ptr<IoQueue> queue;
  IoEngine engine = IoEngine::kThreads;

  SegmentTable segments;
  std::vector<PageState> pages;  // the pages of all segments

  std::map<uint64_t, PageBatch> batches;  // by ticket number
  std::deque<PageBatch*> waiting;
  uint64_t last_id = 0;

  std::vector<Slot> slots;           // [queue_depth]
  std::vector<uint32_t> free_slots;  // indices of unused slots, a stack
  std::vector<IoRequest> requests;   // requests to start; scratch
  std::vector<IoCompletion> ended;   // [queue_depth]: scratch

  PageFileStats counts;  // the counters of stats()
  size_t num_reads_under_way = 0;
  double reads_began = 0;

  [[nodiscard]] size_t segment_bytes() const { return kPagesPerSegment * options.page_bytes; }
  [[nodiscard]] size_t num_under_way() const { return slots.size() - free_slots.size(); }

  [[nodiscard]] uint64_t ChecksumOf(const std::byte* page) const {
    return XXH3_64bits(page, options.page_bytes);
  }

  [[nodiscard]] Status Check(const PageBatch& batch) const {
    const bool reads = batch.call == DiskCall::kRead;
    const PageIo* previous = nullptr;
    for (const PageIo& io : batch.pages) {
      const char* wrong = nullptr;
      if (!segments.IsOwned(io.page)) {
        wrong = "it was never allocated, or freed";
      } else if (reinterpret_cast<uintptr_t>(io.memory) % kBlockBytes != 0) {
        wrong = "its memory is not aligned to 4096";
      } else if (pages[io.page].is_written_to) {
        wrong = "a write of it is under way";
      } else if (reads && !pages[io.page].has_contents) {
        wrong = "it was never written";
      } else if (!reads && pages[io.page].num_readers > 0) {
        wrong = "a read of it is under way";
      } else if (!reads && previous != nullptr && previous->page == io.page) {
        wrong = "it is named twice";
      }
      if (wrong != nullptr) {
        return InvalidArgument(
            fmt::format("cannot {} page {}: {}", reads ? "read" : "write", io.page, wrong));
      }
      previous = &io;
    }
    return OkStatus();
  }

  Result<Ticket> Start(DiskCall call, std::span<const PageIo> ios) {
    const uint64_t id = last_id + 1;
    PageBatch* batch = nullptr;
    try {
      PageBatch made = MakeBatch(call, ios, options.page_bytes);
      EBB_RETURN_IF_ERROR(Check(made));
      waiting.push_back(nullptr);
      try {
        batch = &batches.emplace(id, std::move(made)).first->second;
      } catch (...) {
        waiting.pop_back();
        throw;
      }
    } catch (const std::bad_alloc&) {
      return OutOfMemory(fmt::format("no memory to start {} pages", ios.size()));
    }
    last_id = id;
    waiting.back() = batch;
    // Remove a batch of no pages from `waiting` now: no request of it will end, so Pump() might not
    // do so before Wait() erases the batch.
    if (!batch->HasMore()) waiting.pop_back();
    for (const PageIo& io : batch->pages) {
      PageState& page = pages[io.page];
      if (call == DiskCall::kRead) {
        ++page.num_readers;
      } else {
        page.is_written_to = true;
        page.has_contents = false;
        if (options.verify_checksums) page.checksum = ChecksumOf(io.memory);
      }
    }
    Reap(IoQueue::Until::kNow);
    return Ticket{id};
  }

  [[nodiscard]] IoRequest RequestOf(uint32_t slot) const {
    return {.call = slots[slot].batch->call,
            .offset = slots[slot].run->offset,
            .parts = slots[slot].run->parts,
            .tag = slot};
  }

  // Starts the rests of runs that Complete() left in `requests`, and waiting runs while slots are
  // free.
  void Pump() {
    while (!waiting.empty() && !free_slots.empty()) {
      PageBatch* batch = waiting.front();
      if (!batch->HasMore()) {
        waiting.pop_front();
        continue;
      }
      const uint32_t slot = free_slots.back();
      free_slots.pop_back();
      slots[slot] = {.batch = batch, .run = &batch->runs[batch->num_started++]};
      requests.push_back(RequestOf(slot));
      if (batch->call == DiskCall::kRead && num_reads_under_way++ == 0) reads_began = SecondsNow();
    }
    if (!requests.empty()) queue->Start(requests);
    requests.clear();
  }

  void Complete(const IoCompletion& completion) {
    PageBatch& batch = *slots[completion.tag].batch;
    PageRun& run = *slots[completion.tag].run;
    const bool reads = batch.call == DiskCall::kRead;
    Status status;
    const size_t num_bytes = Advance(&run, completion.result, batch.call, *file, &status);
    (reads ? counts.bytes_read : counts.bytes_written) += num_bytes;
    if (batch.status.ok()) batch.status = status;
    if (batch.status.ok() && run.bytes_left > 0) {
      requests.push_back(RequestOf(completion.tag));
      return;
    }
    ++batch.num_ended;
    free_slots.push_back(completion.tag);
    if (reads && --num_reads_under_way == 0) counts.read_seconds += SecondsNow() - reads_began;
  }

  void Reap(IoQueue::Until until) {
    if (num_under_way() > 0) {
      const size_t num_ended = queue->Take(until, ended);
      for (size_t i = 0; i < num_ended; ++i) Complete(ended[i]);
    }
    Pump();
  }

  // Releases the batch's pages, checks the checksums of pages that were read, and returns the
  // batch's status.
  Status Finish(const PageBatch& batch) {
    Status status = batch.status;
    for (const PageIo& io : batch.pages) {
      PageState& page = pages[io.page];
      if (batch.call == DiskCall::kWrite) {
        page.is_written_to = false;
        page.has_contents = batch.status.ok();
        continue;
      }
      --page.num_readers;
      if (!options.verify_checksums || !status.ok()) continue;
      if (const uint64_t found = ChecksumOf(io.memory); found != page.checksum) {
        status = Corrupt(fmt::format(
            "page {} at offset {} of the page file in {} is not what was written: its checksum is "
            "{:016x}, expected {:016x}",
            io.page, uint64_t{io.page} * options.page_bytes, file->folder(), found, page.checksum));
      }
    }
    return status;
  }

  Status Exhausted(size_t num_pages, size_t num_new) const {
    return T1Full(fmt::format(
        "{} more pages of {} need {} more of disk, but {} of the page file's cap of {} are in use",
        num_pages, SizeText(options.page_bytes), SizeText(num_new * segment_bytes()),
        SizeText(segments.num_reserved() * segment_bytes()), SizeText(options.cap_bytes)));
  }

  // Reserves disk space for the segments that have none; for none of them after an error.
  Status ReserveAll(std::span<const uint32_t> wanted) {
    std::vector<uint32_t> taken;
    for (const uint32_t segment : wanted) {
      if (segments.IsReserved(segment)) continue;
      Status status = file->Reserve(uint64_t{segment} * segment_bytes(), segment_bytes());
      if (!status.ok()) {
        for (const uint32_t other : taken) Release(other, 1);
        return status;
      }
      segments.SetReserved(segment);
      taken.push_back(segment);
    }
    return OkStatus();
  }

  // Returns the segments' space to the disk. If the system refuses, the segments stay reserved and
  // serve the next layer that needs one.
  void Release(uint32_t first, uint32_t num_segments) {
    if (!file->Release(first * segment_bytes(), num_segments * segment_bytes()).ok()) return;
    for (uint32_t i = 0; i < num_segments; ++i) segments.SetReleased(first + i);
  }
};

PageFile::PageFile() : impl_(std::make_unique<Impl>()) {}

PageFile::~PageFile() {
  Impl& f = *impl_;
  f.waiting.clear();
  while (f.queue != nullptr && f.num_under_way() > 0) f.Reap(IoQueue::Until::kOne);
}

uint64_t PageFile::BytesFor(uint64_t pages_of_layer, int num_layers, size_t page_bytes) {
  const uint64_t segments = (pages_of_layer + kPagesPerSegment - 1) / kPagesPerSegment;
  return segments * kPagesPerSegment * page_bytes * num_layers;
}

Result<std::unique_ptr<PageFile>> PageFile::Create(const PageFileOptions& options) {
  if (options.page_bytes == 0 || options.page_bytes % kBlockBytes != 0 ||
      options.page_bytes > kMaxPageBytes) {
    return InvalidArgument(
        fmt::format("a page on disk must have a multiple of {} bytes, at most {}; got {}",
                    kBlockBytes, kMaxPageBytes, options.page_bytes));
  }
  std::unique_ptr<PageFile> made(new PageFile);
  Impl& f = *made->impl_;
  f.options = options;
  if (options.cap_bytes > 0 && options.cap_bytes < f.segment_bytes()) {
    const ComparedSizes sizes(f.segment_bytes(), options.cap_bytes);
    return InvalidArgument(fmt::format("the page file's cap must hold a segment of {}; got {}",
                                       sizes.first, sizes.second));
  }
  EBB_ASSIGN_OR_RETURN(f.file, PrivateFile::Create({.folder = options.folder,
                                                    .buffering = options.buffering,
                                                    .faults = options.faults}));
  EBB_ASSIGN_OR_RETURN(ChosenQueue chosen,
                       MakeIoQueue(f.file->fd(), {.engine = options.engine,
                                                  .depth = options.queue_depth,
                                                  .num_threads = options.num_threads,
                                                  .faults = options.faults}));
  f.queue = std::move(chosen.queue);
  f.engine = chosen.engine;
  const auto depth = static_cast<uint32_t>(options.queue_depth);
  f.slots.resize(depth);
  f.ended.resize(depth);
  f.requests.reserve(depth);
  for (uint32_t slot = depth; slot > 0; --slot) f.free_slots.push_back(slot - 1);
  return made;
}

Status PageFile::Allocate(int layer, size_t num_pages, std::vector<uint32_t>* pages) {
  assert(layer >= 0);
  Impl& f = *impl_;
  std::vector<uint32_t> wanted;
  const auto no_memory = [&] {
    return OutOfMemory(fmt::format("no memory for the records of {} pages", num_pages));
  };
  // Page numbers have 32 bits, which suffices for any disk.
  if (num_pages > UINT32_MAX - f.pages.size() - kPagesPerSegment) return no_memory();
  try {
    wanted = f.segments.SegmentsFor(layer, num_pages);
    const auto is_new = [&](uint32_t segment) { return !f.segments.IsReserved(segment); };
    const auto num_new = static_cast<size_t>(std::count_if(wanted.begin(), wanted.end(), is_new));
    if (f.options.cap_bytes > 0 && num_new > 0 &&
        (f.segments.num_reserved() + num_new) * f.segment_bytes() > f.options.cap_bytes) {
      return f.Exhausted(num_pages, num_new);
    }
    for (const uint32_t segment : wanted) f.segments.Grow(segment);
    f.pages.resize(f.segments.num_segments() * kPagesPerSegment);
    pages->reserve(pages->size() + num_pages);
    EBB_RETURN_IF_ERROR(f.ReserveAll(wanted));
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  for (const uint32_t segment : wanted) f.segments.Give(segment, layer);
  const size_t first = pages->size();
  f.segments.Take(layer, num_pages, pages);
  for (size_t i = first; i < pages->size(); ++i) f.pages[(*pages)[i]] = {};
  f.counts.peak_file_bytes =
      std::max(f.counts.peak_file_bytes, f.segments.num_reserved() * f.segment_bytes());
  return OkStatus();
}

void PageFile::Share(uint32_t page) { ++impl_->pages[page].num_holders; }

uint32_t PageFile::num_holders(uint32_t page) const { return impl_->pages[page].num_holders; }

void PageFile::Free(std::span<const uint32_t> pages) {
  Impl& f = *impl_;
  std::vector<uint32_t> empty;
  for (const uint32_t page : pages) {
    assert(f.segments.IsOwned(page));
    if (--f.pages[page].num_holders > 0) continue;
    assert(f.pages[page].num_readers == 0 && !f.pages[page].is_written_to);
    const std::optional<uint32_t> segment = f.segments.Free(page);
    if (!segment.has_value()) continue;
    try {
      empty.push_back(*segment);
    } catch (const std::bad_alloc&) {
      f.Release(*segment, 1);
    }
  }
  std::sort(empty.begin(), empty.end());
  for (size_t first = 0, end = 0; first < empty.size(); first = end) {
    while (end < empty.size() && empty[end] - empty[first] == end - first) ++end;
    f.Release(empty[first], static_cast<uint32_t>(end - first));
  }
}

Result<PageFile::Ticket> PageFile::StartRead(std::span<const PageIo> pages) {
  return impl_->Start(DiskCall::kRead, pages);
}

Result<PageFile::Ticket> PageFile::StartWrite(std::span<const PageIo> pages) {
  return impl_->Start(DiskCall::kWrite, pages);
}

bool PageFile::Done(Ticket ticket) {
  const auto it = impl_->batches.find(ticket.id);
  if (it == impl_->batches.end()) return true;
  if (!it->second.IsDone()) impl_->Reap(IoQueue::Until::kNow);
  return it->second.IsDone();
}

Status PageFile::Wait(Ticket ticket) {
  Impl& f = *impl_;
  const auto it = f.batches.find(ticket.id);
  if (it == f.batches.end()) {
    return InvalidArgument(
        fmt::format("ticket {} was never given, or waited for before", ticket.id));
  }
  if (!it->second.IsDone()) f.Reap(IoQueue::Until::kNow);
  if (!it->second.IsDone()) {
    const double start = SecondsNow();
    while (!it->second.IsDone()) f.Reap(IoQueue::Until::kOne);
    f.counts.wait_seconds += SecondsNow() - start;
  }
  Status status = f.Finish(it->second);
  f.batches.erase(it);
  return status;
}

PageFileStats PageFile::stats() const {
  const Impl& f = *impl_;
  PageFileStats stats = f.counts;
  if (f.num_reads_under_way > 0) stats.read_seconds += SecondsNow() - f.reads_began;
  stats.file_bytes = f.segments.num_reserved() * f.segment_bytes();
  stats.num_pages = f.segments.num_pages();
  stats.table_bytes = f.pages.capacity() * sizeof(PageState) + f.segments.table_bytes();
  return stats;
}

bool PageFile::direct() const { return impl_->file->direct(); }

IoEngine PageFile::engine() const { return impl_->engine; }

size_t PageFile::page_bytes() const { return impl_->options.page_bytes; }

size_t PageFile::cap_bytes() const { return impl_->options.cap_bytes; }

size_t PageFile::page_end() const { return impl_->pages.size(); }

const std::string& PageFile::folder() const { return impl_->file->folder(); }

size_t PageFile::DiskBytes() const { return impl_->file->DiskBytes(); }

}  // namespace ebb
