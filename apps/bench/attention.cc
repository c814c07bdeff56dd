#include <fmt/format.h>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/progress.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

Json RateJson(const AttentionRate& rate) {
  return {{"read_gb_s", rate.read_gb_s.median},
          {"read_gb_s_min", rate.read_gb_s.min},
          {"read_gb_s_max", rate.read_gb_s.max},
          {"share_of_limit", rate.share_of_limit.median},
          {"share_of_limit_min", rate.share_of_limit.min},
          {"share_of_limit_max", rate.share_of_limit.max},
          {"step_ms", rate.step_ms.median}};
}

std::string RateText(const AttentionRate& rate) {
  return fmt::format("{} GB/s, {:.0f} % of the limit, {:.3g} ms a step", ToText(rate.read_gb_s),
                     rate.share_of_limit.median * 100, rate.step_ms.median);
}

}  // namespace

Status BenchAttention(const CliOptions& options) {
  AttentionBenchmarkOptions attention;
  // Without -m, no model is loaded and a default shape is used: the benchmark needs only the shape.
  if (!options.model.path.empty()) {
    EBB_ASSIGN_OR_RETURN(const auto model, OpenModel(options));
    attention.shape = model->shape();
  }
  attention.kv_type = options.engine.kv_type;
  attention.rows = options.Of<BenchOptions>().rows;
  attention.keep = options.Of<BenchOptions>().keep;
  attention.threads = options.engine.threads;
  attention.repetitions = options.Of<BenchOptions>().repetitions;
  attention.seed = options.seed;
  attention.compressed = options.Of<BenchOptions>().compressed;
  const MachineWatch watch;
  AttentionBenchmark result;
  {
    const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
    ProgressBar bar("reading rows", "repetitions", attention.repetitions, display);
    attention.progress = [&](int done) { bar.Update(done); };
    EBB_ASSIGN_OR_RETURN(result, BenchmarkAttention(attention));
  }
  const double others = watch.OthersShare();
  WarnOfOthers(others);

  Json record = {{"bench", "attention"},
                 {"depth", attention.rows},
                 {"rows_kept", result.rows_kept},
                 {"layout", attention.keep < 1 ? "scattered" : "dense"}};
  record.update(RateJson(result.without_mass));
  record.update({{"limit_gb_s", result.limit_gb_s.median},
                 {"with_mass", RateJson(result.with_mass)},
                 {"bytes_per_step", result.bytes_per_step},
                 {"max_error", result.max_error},
                 {"repetitions", attention.repetitions},
                 {"kv_type", RowTypeName(attention.kv_type)},
                 {"threads", result.threads},
                 {"kernel", result.kernel},
                 {"machine", MachineName()},
                 {"others_share", others}});
  std::string text =
      fmt::format("attention over {} of {} rows: {}; with mass: {}", result.rows_kept,
                  attention.rows, RateText(result.without_mass), RateText(result.with_mass));
  if (attention.compressed.has_value()) {
    const std::string_view type = CompressedTypeName(*attention.compressed);
    record.update({{"compressed_type", type},
                   {"compressed", RateJson(result.compressed)},
                   {"compressed_time_ratio", ToJson(result.compressed_time_ratio)}});
    text += fmt::format("; in {}: {}, {} of the time", type, RateText(result.compressed),
                        ToText(result.compressed_time_ratio));
  }
  return WriteRecord(options, record, text);
}

}  // namespace ebb::cli
