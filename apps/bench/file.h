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

// FileSpeed compares how fast decode steps read T1's file with how fast raw reads of as many bytes
// are.
class FileSpeed {
 public:
  // Must be called right after a repetition of `steps` decode steps, which ran at `tokens_per_s`.
  // Measures raw reads of as many bytes, with as many requests in flight, so that a disk that slows
  // down after a burst does so for both. Does nothing unless T1 is in a file.
  [[nodiscard]] Status After(int steps, double tokens_per_s, const Engine& engine,
                             const Session& session);
  // Returns the speeds as a record; null if After() has measured nothing.
  [[nodiscard]] Json Record() const;
  [[nodiscard]] std::string Text() const;  // the speeds as text for people

 private:
  std::unique_ptr<FileReadBenchmark> raw_;
  size_t bytes_per_step_ = 0;  // of the last repetition
  double dead_share_ = 0;      // share of bytes_per_step_ that no row uses
  std::vector<double> gb_s_, raw_gb_s_, shares_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_FILE_H_
