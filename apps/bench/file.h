// How fast decode steps read a T1 in a file, held against raw reads taken in turns with them.
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

class FileSpeed {
 public:
  // After a repetition of so many decode steps at this rate: reads as many bytes as they did, as
  // many requests at a time, so that a disk which slows down behind a burst slows down for both.
  // Nothing happens where no T1 is in a file.
  [[nodiscard]] Status After(int steps, double tokens_per_s, const Engine& engine,
                             const Session& session);
  // {} when there was nothing to measure.
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
