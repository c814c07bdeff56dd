// ReadBenchmark measures the disk: it reads a file from start to end by requests of one size, a
// fixed number of them in flight, through the same queues as PageFile and bypassing the page cache
// as PageFile does. It is the baseline of reading pages; alternate the two, since a disk's speed
// varies from minute to minute.
#ifndef EBB_IO_BENCHMARK_IO_H_
#define EBB_IO_BENCHMARK_IO_H_

#include <cstddef>
#include <memory>
#include <string>

#include "ebb/status.h"
#include "src/io/io_queue.h"

namespace ebb {

struct ReadBenchmarkOptions {
  std::string folder;                      // empty: $TMPDIR, else /var/tmp
  size_t file_bytes = size_t{92} << 20;    // rounded up to a multiple of request_bytes
  size_t request_bytes = size_t{1} << 20;  // a multiple of 4096
  IoEngine engine = IoEngine::kAuto;
  int queue_depth = 32;
  int num_threads = 4;  // used by engine kThreads
};

struct ReadSpeed {
  size_t num_bytes = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // user and system time of the whole process
  [[nodiscard]] double GigabytesPerSecond() const {
    return static_cast<double>(num_bytes) / seconds * 1e-9;
  }
};

class ReadBenchmark {
 public:
  // Creates and writes the file. Errors: as PageFile::Create(), and those of writing.
  static Result<std::unique_ptr<ReadBenchmark>> Create(const ReadBenchmarkOptions& options);
  ~ReadBenchmark();
  ReadBenchmark(const ReadBenchmark&) = delete;
  ReadBenchmark& operator=(const ReadBenchmark&) = delete;

  // Reads the file once. Errors: Corrupt if a request returns other bytes than were written; those
  // of reading.
  Result<ReadSpeed> Run();
  [[nodiscard]] IoEngine engine() const;  // the one in use; never kAuto

 private:
  ReadBenchmark();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the user and system time of the process so far, in seconds.
[[nodiscard]] double ProcessCpuSeconds();

}  // namespace ebb

#endif  // EBB_IO_BENCHMARK_IO_H_
