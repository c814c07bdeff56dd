#include <fmt/format.h>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/common/report.h"
#include "ebb/benchmark.h"

namespace ebb::cli {

Status BenchMemory(const CliOptions& options) {
  const MachineWatch watch;
  EBB_ASSIGN_OR_RETURN(const MemoryBenchmark result,
                       BenchmarkMemory({.threads = options.engine.threads,
                                        .bytes = options.Of<BenchOptions>().bytes,
                                        .repetitions = options.Of<BenchOptions>().repetitions}));
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  const Json record = {{"bench", "memory"},
                       {"read_gb_s", result.read_gb_s.median},
                       {"read_gb_s_min", result.read_gb_s.min},
                       {"read_gb_s_max", result.read_gb_s.max},
                       {"copy_gb_s", result.copy_gb_s.median},
                       {"bytes", result.bytes},
                       {"repetitions", options.Of<BenchOptions>().repetitions},
                       {"threads", result.threads},
                       {"kernel", result.kernel},
                       {"machine", MachineName()},
                       {"others_share", others}};
  return WriteRecord(
      options, record,
      fmt::format("read {} GB/s, copy {} GB/s; {} threads, {}", ToText(result.read_gb_s),
                  ToText(result.copy_gb_s), result.threads, result.kernel));
}

}  // namespace ebb::cli
