#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/bench/session.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Prefills random tokens at the end of the session and returns the tokens per second.
Result<double> ReadPrompt(const BenchOptions& options, BenchSession* bench) {
  const std::vector<Token> prompt = bench->tokens.Next(options.prompt_tokens);
  PrefillOptions prefill;
  prefill.cancel = bench->cancel;
  const Clock::time_point start = Clock::now();
  EBB_RETURN_IF_ERROR(bench->sessions[0]->Prefill(prompt, prefill).status);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EBB_RETURN_IF_ERROR(CheckCancelled(*bench));
  return options.prompt_tokens / seconds;
}

Status Report(const CliOptions& options, const BenchSession& bench, int depth,
              const std::vector<double>& samples, double others_share) {
  const Spread speed = SpreadOf(samples);
  Json record = {{"bench", "prefill"},
                 {"depth", depth},
                 {"prompt", options.Of<BenchOptions>().prompt_tokens},
                 {"tokens_per_s", ToJson(speed)},
                 {"samples", samples},
                 {"repetitions", options.Of<BenchOptions>().repetitions},
                 {"kv_bytes", bench.engine->arena_accounting().reserved_bytes},
                 {"peak_rss_bytes", PeakResidentBytes()},
                 {"others_share", others_share}};
  AddEngineFields(options, *bench.engine, *bench.sessions[0], &record);
  return WriteRecord(options, record,
                     fmt::format("prefill of {} tokens at depth {}: {} tokens/s; {}",
                                 options.Of<BenchOptions>().prompt_tokens, depth, ToText(speed),
                                 bench.sessions[0]->policy().name));
}

// Truncates the session to `depth` tokens. If its policy may evict rows, this cannot restore them,
// so that the tokens are read again from the first one.
Status Rewind(const CliOptions& options, int depth, BenchSession* bench) {
  if (!CanRollBack(*bench->sessions[0])) EBB_RETURN_IF_ERROR(bench->sessions[0]->TruncateTo(0));
  return FillTo(depth, options, bench->sessions, bench);
}

}  // namespace

Status BenchPrefill(const CliOptions& options) {
  const BenchOptions& o = options.Of<BenchOptions>();
  std::vector<int> depths = o.depths;
  std::ranges::sort(depths);
  EBB_ASSIGN_OR_RETURN(BenchSession bench,
                       OpenBenchSession(options, BenchMass::kOff, BenchRival::kNone,
                                        int64_t{depths.back()} + o.prompt_tokens));
  for (const int depth : depths) {
    EBB_RETURN_IF_ERROR(Rewind(options, depth, &bench));
    EBB_RETURN_IF_ERROR(ReadPrompt(o, &bench).status());  // warms up
    const MachineWatch watch;
    std::vector<double> samples;
    for (int repetition = 0; repetition < o.repetitions; ++repetition) {
      EBB_RETURN_IF_ERROR(Rewind(options, depth, &bench));
      EBB_ASSIGN_OR_RETURN(const double tokens_per_s, ReadPrompt(o, &bench));
      samples.push_back(tokens_per_s);
    }
    const double others = watch.OthersShare();
    WarnOfOthers(others);
    EBB_RETURN_IF_ERROR(Report(options, bench, depth, samples, others));
  }
  return OkStatus();
}

}  // namespace ebb::cli
