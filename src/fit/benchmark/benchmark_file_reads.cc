#include <utility>

#include "ebb/benchmark.h"
#include "src/io/benchmark_io.h"

namespace ebb {

struct FileReadBenchmark::Impl {
  std::unique_ptr<ReadBenchmark> reads;
};

FileReadBenchmark::FileReadBenchmark() : impl_(std::make_unique<Impl>()) {}
FileReadBenchmark::~FileReadBenchmark() = default;

Result<std::unique_ptr<FileReadBenchmark>> FileReadBenchmark::Create(
    const FileReadOptions& options) {
  if (options.bytes == 0 || options.under_way < 1) {
    return InvalidArgument("a benchmark of reads needs bytes to read, and requests under way");
  }
  std::unique_ptr<FileReadBenchmark> made(new FileReadBenchmark);
  EBB_ASSIGN_OR_RETURN(made->impl_->reads,
                       ReadBenchmark::Create({.folder = options.folder,
                                              .file_bytes = options.bytes,
                                              .request_bytes = options.request_bytes,
                                              .queue_depth = options.under_way,
                                              .num_threads = options.under_way}));
  return made;
}

Result<double> FileReadBenchmark::ReadOnce() {
  EBB_ASSIGN_OR_RETURN(const ReadSpeed speed, impl_->reads->Run());
  return speed.GigabytesPerSecond();
}

}  // namespace ebb
