#include "src/io/benchmark_io.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "src/io/io_memory.h"
#include "src/io/private_file.h"

namespace ebb {
namespace {

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

double ProcessCpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime);
}

struct ReadBenchmark::Impl {
  ReadBenchmarkOptions options;
  size_t num_requests = 0;
  std::unique_ptr<PrivateFile> file;
  ChosenQueue chosen;
  IoMemory memory;
  std::vector<iovec> parts;        // [queue_depth]: the memory of each request in flight
  std::vector<size_t> request_of;  // [queue_depth]: which request uses it

  [[nodiscard]] Status Allocate() {
    EBB_ASSIGN_OR_RETURN(
        memory, IoMemory::Map(options.request_bytes * static_cast<size_t>(options.queue_depth)));
    for (int tag = 0; tag < options.queue_depth; ++tag) {
      parts.push_back({memory.data() + static_cast<size_t>(tag) * options.request_bytes,
                       options.request_bytes});
    }
    request_of.resize(parts.size());
    return OkStatus();
  }

  // Returns the number that the request's range must begin with, so that misplaced data are
  // detected.
  static uint64_t MarkOf(size_t request) { return request * 0x9e3779b97f4a7c15 + 1; }

  void Start(DiskCall call, uint32_t tag, size_t request) {
    request_of[tag] = request;
    if (call == DiskCall::kWrite) {
      const uint64_t mark = MarkOf(request);
      std::memcpy(parts[tag].iov_base, &mark, sizeof(mark));
    }
    const IoRequest io = {.call = call,
                          .offset = request * options.request_bytes,
                          .parts = {&parts[tag], 1},
                          .tag = tag};
    chosen.queue->Start({&io, 1});
  }

  [[nodiscard]] Status Check(DiskCall call, const IoCompletion& completion) const {
    const uint64_t offset = request_of[completion.tag] * options.request_bytes;
    const char* what = call == DiskCall::kRead ? "read" : "write";
    if (completion.result < 0) {
      return file->Error(what, offset, options.request_bytes, static_cast<int>(-completion.result));
    }
    if (static_cast<size_t>(completion.result) != options.request_bytes) {
      return IoError(fmt::format("cannot {} {} bytes at offset {} at once: got {}", what,
                                 options.request_bytes, offset, completion.result));
    }
    uint64_t mark = 0;
    std::memcpy(&mark, parts[completion.tag].iov_base, sizeof(mark));
    if (mark != MarkOf(request_of[completion.tag])) {
      return Corrupt(fmt::format("offset {} does not hold what was written", offset));
    }
    return OkStatus();
  }

  // Reads or writes the whole file in order, with `queue_depth` requests in flight.
  [[nodiscard]] Status TransferAll(DiskCall call) {
    Status status;
    std::vector<IoCompletion> ended(parts.size());
    size_t next = 0;
    size_t num_under_way = 0;
    for (; next < std::min(num_requests, parts.size()); ++next, ++num_under_way) {
      Start(call, static_cast<uint32_t>(next), next);
    }
    while (num_under_way > 0) {
      const size_t num_ended = chosen.queue->Take(IoQueue::Until::kOne, ended);
      num_under_way -= num_ended;
      for (size_t i = 0; i < num_ended; ++i) {
        if (status.ok()) status = Check(call, ended[i]);
        if (!status.ok() || next == num_requests) continue;
        Start(call, ended[i].tag, next++);
        ++num_under_way;
      }
    }
    return status;
  }
};

ReadBenchmark::ReadBenchmark() : impl_(std::make_unique<Impl>()) {}

ReadBenchmark::~ReadBenchmark() = default;

Result<std::unique_ptr<ReadBenchmark>> ReadBenchmark::Create(const ReadBenchmarkOptions& options) {
  if (options.request_bytes == 0 || options.request_bytes % kBlockBytes != 0 ||
      options.file_bytes == 0) {
    return InvalidArgument(
        fmt::format("expected a file and requests of a multiple of {} bytes; got {} and {}",
                    kBlockBytes, options.file_bytes, options.request_bytes));
  }
  std::unique_ptr<ReadBenchmark> made(new ReadBenchmark);
  Impl& b = *made->impl_;
  b.options = options;
  b.num_requests = (options.file_bytes + options.request_bytes - 1) / options.request_bytes;
  EBB_ASSIGN_OR_RETURN(b.file, PrivateFile::Create({.folder = options.folder}));
  EBB_ASSIGN_OR_RETURN(b.chosen, MakeIoQueue(b.file->fd(), {.engine = options.engine,
                                                            .depth = options.queue_depth,
                                                            .num_threads = options.num_threads}));
  EBB_RETURN_IF_ERROR(b.Allocate());
  EBB_RETURN_IF_ERROR(b.file->Reserve(0, b.num_requests * options.request_bytes));
  EBB_RETURN_IF_ERROR(b.TransferAll(DiskCall::kWrite));
  return made;
}

Result<ReadSpeed> ReadBenchmark::Run() {
  Impl& b = *impl_;
  const double cpu_before = ProcessCpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  EBB_RETURN_IF_ERROR(b.TransferAll(DiskCall::kRead));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return ReadSpeed{.num_bytes = b.num_requests * b.options.request_bytes,
                   .seconds = seconds.count(),
                   .cpu_seconds = ProcessCpuSeconds() - cpu_before};
}

IoEngine ReadBenchmark::engine() const { return impl_->chosen.engine; }

}  // namespace ebb
