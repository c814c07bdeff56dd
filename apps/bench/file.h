// Measures how fast decode steps read a T1 that lies in a file, against raw reads that alternate
// with them.
#ifndef EBB_APPS_BENCH_FILE_H_
#define EBB_APPS_BENCH_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/report.h"
#include "ebb/benchmark.h"
#include "ebb/engine.h"
#include "ebb/status.h"

namespace ebb::cli {

// FileSpeed compares the speed at which decode steps read T1's file with raw reads of as many
// bytes.
class FileSpeed {
 public:
  // Measures raw reads right after a repetition of `steps` decode steps at `tokens_per_s`: reads as
  // many bytes as the steps did, with as many requests under way, so that a disk that slows down
  // after a burst slows down for both. Does nothing if no T1 lies in a file.
  [[nodiscard]] Status After(int steps, double tokens_per_s, const Engine& engine,
                             const Session& session);
  // Returns the speeds as a record, or null if After() measured nothing.
  [[nodiscard]] Json Record() const;
  [[nodiscard]] std::string Text() const;  // the same for people

 private:
  std::unique_ptr<FileReadBenchmark> raw_;
  size_t bytes_per_step_ = 0;  // of the last repetition
  double dead_share_ = 0;      // of them
  std::vector<double> gb_s_, raw_gb_s_, shares_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_FILE_H_
