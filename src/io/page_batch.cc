#include "src/io/page_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace ebb {
namespace {

constexpr size_t kMaxRunBytes = size_t{1} << 20;
constexpr int kMaxStalls = 1000;

bool EndsAt(const iovec& part, const std::byte* memory) {
  return static_cast<std::byte*>(part.iov_base) + part.iov_len == memory;
}

void DropFirstBytes(std::span<iovec>* parts, size_t num_bytes) {
  while (num_bytes > 0) {
    iovec& part = parts->front();
    const size_t dropped = std::min(part.iov_len, num_bytes);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + dropped;
    part.iov_len -= dropped;
    num_bytes -= dropped;
    if (part.iov_len == 0) *parts = parts->subspan(1);
  }
}

}  // namespace

PageBatch MakeBatch(DiskCall call, std::span<const PageIo> pages, size_t page_bytes) {
  PageBatch batch;
  batch.call = call;
  batch.pages.assign(pages.begin(), pages.end());
  std::sort(batch.pages.begin(), batch.pages.end(),
            [](const PageIo& a, const PageIo& b) { return a.page < b.page; });
  batch.parts.reserve(pages.size());  // no reallocation, because runs have spans of it
  for (size_t i = 0; i < batch.pages.size(); ++i) {
    const PageIo& io = batch.pages[i];
    const bool joins = i > 0 && io.page == batch.pages[i - 1].page + 1 &&
                       batch.runs.back().bytes_left + page_bytes <= kMaxRunBytes;
    if (!joins) batch.runs.push_back({.offset = uint64_t{io.page} * page_bytes});
    PageRun& run = batch.runs.back();
    if (joins && EndsAt(batch.parts.back(), io.memory)) {
      batch.parts.back().iov_len += page_bytes;
    } else {
      batch.parts.push_back({io.memory, page_bytes});
      run.parts = {&batch.parts.back() - run.parts.size(), run.parts.size() + 1};
    }
    run.bytes_left += page_bytes;
  }
  return batch;
}

size_t Advance(PageRun* run, int64_t result, DiskCall call, const PrivateFile& file,
               Status* status) {
  const char* what = call == DiskCall::kRead ? "read" : "write";
  size_t num_bytes = 0;
  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    *status = file.Error(what, run->offset, run->bytes_left, static_cast<int>(-result));
    return 0;
  }
  if (result == 0) {
    *status = IoError(fmt::format("cannot {} {} bytes at offset {} of the page file in {}: it ends",
                                  what, run->bytes_left, run->offset, file.folder()));
    return 0;
  }
  if (result > 0) {
    num_bytes = std::min(static_cast<size_t>(result), run->bytes_left);
    // Rounds the progress down to whole blocks, because a direct request for the rest must begin at
    // a block.
    if (num_bytes < run->bytes_left) num_bytes -= num_bytes % kBlockBytes;
  }
  if (num_bytes == 0 && ++run->num_stalls == kMaxStalls) {
    *status = IoError(
        fmt::format("cannot {} {} bytes at offset {} of the page file in {}: no progress in {} "
                    "tries",
                    what, run->bytes_left, run->offset, file.folder(), kMaxStalls));
    return 0;
  }
  DropFirstBytes(&run->parts, num_bytes);
  run->offset += num_bytes;
  run->bytes_left -= num_bytes;
  return num_bytes;
}

}  // namespace ebb
