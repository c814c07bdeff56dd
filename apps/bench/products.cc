#include <fmt/format.h>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/common/report.h"
#include "apps/common/terminal/progress.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

Json RateJson(const ProductRate& rate) {
  return {{"type", rate.type},
          {"layout", rate.layout},
          {"bits_per_weight", rate.bits_per_weight},
          {"read_gb_s", rate.read_gb_s.median},
          {"read_gb_s_min", rate.read_gb_s.min},
          {"read_gb_s_max", rate.read_gb_s.max},
          {"share_of_limit", rate.share_of_limit.median},
          {"gflop_s", rate.gflop_s.median},
          {"gflop_s_min", rate.gflop_s.min},
          {"gflop_s_max", rate.gflop_s.max},
          {"same_bits", rate.same_bits},
          {"hash", fmt::format("{:016x}", rate.hash)}};
}

std::string Table(const ProductBenchmark& result, int batch) {
  std::string text = fmt::format("{:<8} {:<12} {:>11} {:>22} {:>9} {:>22}  {}\n", "type", "layout",
                                 "bits/weight", "GB/s, 1 token", "of memory",
                                 fmt::format("GFLOP/s, {} tokens", batch), "same bits");
  for (const ProductRate& rate : result.rates) {
    text +=
        fmt::format("{:<8} {:<12} {:>11.2f} {:>22} {:>7.0f} % {:>22}  {}\n", rate.type, rate.layout,
                    rate.bits_per_weight, ToText(rate.read_gb_s), rate.share_of_limit.median * 100,
                    ToText(rate.gflop_s), rate.same_bits ? "yes" : "no");
  }
  return text +
         fmt::format("memory: {} GB/s; {} threads", ToText(result.limit_gb_s), result.threads);
}

}  // namespace

Status BenchProducts(const CliOptions& options) {
  const BenchOptions& bench = options.Of<BenchOptions>();
  ProductBenchmarkOptions products = {.types = bench.types,
                                      .columns = bench.columns,
                                      .rows = bench.matrix_rows,
                                      .batch = bench.batch,
                                      .threads = options.engine.threads,
                                      .bytes = bench.product_bytes,
                                      .repetitions = bench.repetitions};
  const MachineWatch watch;
  ProductBenchmark result;
  {
    const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
    ProgressBar bar("multiplying", "types", static_cast<int>(bench.types.size()), display);
    int begun = 0;
    products.progress = [&](const std::string&) { bar.Update(begun++); };
    EBB_ASSIGN_OR_RETURN(result, BenchmarkProducts(products));
  }
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  Json rates = Json::array();
  for (const ProductRate& rate : result.rates) rates.push_back(RateJson(rate));
  const Json record = {{"bench", "products"},
                       {"columns", bench.columns},
                       {"rows", bench.matrix_rows},
                       {"batch", bench.batch},
                       {"types", std::move(rates)},
                       {"limit_gb_s", result.limit_gb_s.median},
                       {"repetitions", bench.repetitions},
                       {"threads", result.threads},
                       {"kernel", result.kernel},
                       {"machine", MachineName()},
                       {"others_share", others}};
  return WriteRecord(options, record, Table(result, bench.batch));
}

}  // namespace ebb::cli
