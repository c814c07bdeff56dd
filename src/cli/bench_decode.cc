#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "ebb/benchmark.h"
#include "src/cli/bench_report.h"
#include "src/cli/bench_session.h"
#include "src/cli/commands.h"
#include "src/cli/progress.h"
#include "src/cli/setup.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Read before --generate begins.
constexpr Position kGenerationPrompt = 64;
constexpr int kWarmUpSteps = 2;

struct StepTimes {
  double seconds = 0;          // of all the steps together
  double compute_seconds = 0;  // of them, in the graph
  double policy_seconds = 0;   // of them, in observing, placing and removing
};

// `steps` decode steps of all sessions.
Result<StepTimes> Decode(BenchSession* bench, int64_t steps) {
  std::vector<Session*> sessions;
  for (const auto& session : bench->sessions) sessions.push_back(session.get());
  std::vector<Token> tokens(sessions.size());
  StepTimes times;
  const Clock::time_point start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    for (Token& token : tokens) token = bench->tokens.Next();
    EBB_RETURN_IF_ERROR(bench->engine->DecodeBatch(sessions, tokens));
    times.compute_seconds += sessions[0]->last_step().compute_seconds;
    for (const Session* session : sessions) {
      times.policy_seconds += session->last_step().policy_seconds;
    }
  }
  times.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EBB_RETURN_IF_ERROR(CheckCancelled(*bench));
  return times;
}

struct DecodeFigures {
  std::vector<double> tokens_per_s;  // one per repetition
  std::vector<double> compute_ms;    // per step
  std::vector<double> policy_ms;
};

// Repetitions from the place where the sessions stand. Each begins there again unless rows went:
// a roll-back revives none of them, so the sequence then goes on.
Result<DecodeFigures> Measure(const BenchOptions& options, BenchSession* bench) {
  const Position depth = bench->sessions[0]->next_position();
  const auto tokens_per_step = static_cast<double>(bench->sessions.size());
  DecodeFigures figures;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    EBB_ASSIGN_OR_RETURN(const StepTimes times, Decode(bench, options.tokens));
    figures.tokens_per_s.push_back(options.tokens * tokens_per_step / times.seconds);
    figures.compute_ms.push_back(times.compute_seconds * 1e3 / options.tokens);
    figures.policy_ms.push_back(times.policy_seconds * 1e3 / options.tokens);
    if (!bench->CanRollBack()) continue;
    for (const auto& session : bench->sessions) EBB_RETURN_IF_ERROR(session->TruncateTo(depth));
  }
  return figures;
}

int64_t RowsKept(const BenchSession& bench) {
  int64_t rows = 0;
  for (const auto& session : bench.sessions) {
    for (const TierAccounting& tier : session->accounting().tiers) rows += tier.rows;
  }
  return rows;
}

Status Report(const CliOptions& options, const BenchSession& bench, int64_t depth,
              const DecodeFigures& figures, double others_share, const Json& timeline) {
  const Spread speed = SpreadOf(figures.tokens_per_s);
  const ArenaAccounting arena = bench.engine->arena_accounting();
  Json record = {{"bench", "decode"},
                 {"depth", depth},
                 {"tokens_per_s", ToJson(speed)},
                 {"samples", figures.tokens_per_s},
                 {"mass", bench.sessions[0]->last_step().mass_computed},
                 {"sequences", bench.sessions.size()},
                 {"tokens", options.bench.tokens},
                 {"repetitions", options.bench.repetitions},
                 {"compute_ms", SpreadOf(figures.compute_ms).median},
                 {"policy_ms", SpreadOf(figures.policy_ms).median},
                 {"rows_kept", RowsKept(bench)},
                 {"kv_bytes", arena.reserved_bytes},
                 {"kv_used_bytes", arena.used_bytes},
                 {"rss_bytes", ResidentBytes()},
                 {"peak_rss_bytes", PeakResidentBytes()},
                 {"others_share", others_share}};
  AddEngineFields(*bench.engine, *bench.sessions[0], &record);
  if (!timeline.empty()) record["timeline"] = timeline;
  return WriteRecord(
      options, record,
      fmt::format("decode at depth {}: {} tokens/s; {}{}", depth, ToText(speed),
                  bench.sessions[0]->policy().name, options.bench.no_mass ? "" : ", with mass"));
}

// Decodes up to `end`, noting speed and memory sixteen times on the way.
Result<Json> Generate(int64_t end, const CliOptions& options, BenchSession* bench) {
  constexpr int64_t kNotes = 16;
  const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar("generating", "tokens", end, display);
  Json timeline = Json::array();
  const int64_t begin = bench->sessions[0]->next_position();
  for (int64_t note = 1; note <= kNotes; ++note) {
    const int64_t until = begin + (end - begin) * note / kNotes;
    const int64_t from = bench->sessions[0]->next_position();
    if (until == from) continue;
    double seconds = 0;
    for (int64_t at = from; at < until;) {
      constexpr int64_t kStepsBetweenUpdates = 16;
      const int64_t steps = std::min(kStepsBetweenUpdates, until - at);
      EBB_ASSIGN_OR_RETURN(const StepTimes times, Decode(bench, steps));
      seconds += times.seconds;
      at += steps;
      bar.Update(at);
    }
    timeline.push_back({{"tokens", until},
                        {"tokens_per_s", static_cast<double>(until - from) / seconds},
                        {"rss_bytes", ResidentBytes()},
                        {"kv_bytes", bench->engine->arena_accounting().reserved_bytes},
                        {"rows_kept", RowsKept(*bench)}});
  }
  return timeline;
}

// The last repetitions end with the last token that was asked for.
Status MeasureGeneration(const CliOptions& options, BenchSession* bench) {
  const BenchOptions& o = options.bench;
  EBB_RETURN_IF_ERROR(FillTo(std::min<Position>(kGenerationPrompt, o.generate), options, bench));
  const int64_t measured = int64_t{o.tokens} * o.repetitions;
  const MachineWatch watch;
  EBB_ASSIGN_OR_RETURN(const Json timeline, Generate(o.generate - measured, options, bench));
  EBB_ASSIGN_OR_RETURN(const DecodeFigures figures, Measure(o, bench));
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  return Report(options, *bench, o.generate, figures, others, timeline);
}

Status MeasureDepths(const CliOptions& options, BenchSession* bench) {
  std::vector<int> depths = options.bench.depths;
  std::ranges::sort(depths);
  for (const int depth : depths) {
    EBB_RETURN_IF_ERROR(FillTo(depth, options, bench));
    EBB_RETURN_IF_ERROR(Decode(bench, kWarmUpSteps).status());
    if (bench->CanRollBack()) EBB_RETURN_IF_ERROR(FillTo(depth, options, bench));
    const MachineWatch watch;
    EBB_ASSIGN_OR_RETURN(const DecodeFigures figures, Measure(options.bench, bench));
    const double others = watch.OthersShare();
    WarnOfOthers(others);
    EBB_RETURN_IF_ERROR(Report(options, *bench, depth, figures, others, Json()));
  }
  return OkStatus();
}

Status Run(const CliOptions& options) {
  const BenchOptions& o = options.bench;
  const int64_t measured = int64_t{o.tokens} * o.repetitions;
  if (o.generate > 0 && o.generate < kGenerationPrompt + measured) {
    return InvalidArgument(fmt::format(
        "--generate {}: expected at least {}, for a prompt of {} and {} repetitions of "
        "{} tokens",
        o.generate, kGenerationPrompt + measured, kGenerationPrompt, o.repetitions, o.tokens));
  }
  const int64_t deepest = *std::ranges::max_element(o.depths);
  // Only the full cache can go back after each repetition.
  const int64_t decoded =
      options.session.policy.name == "full" ? o.tokens : kWarmUpSteps + measured;
  const int64_t longest = o.generate > 0 ? o.generate : deepest + decoded;
  const BenchMass mass = o.no_mass ? BenchMass::kOff : BenchMass::kOn;
  EBB_ASSIGN_OR_RETURN(BenchSession bench, OpenBenchSession(options, mass, longest));
  return o.generate > 0 ? MeasureGeneration(options, &bench) : MeasureDepths(options, &bench);
}

}  // namespace

ExitCode RunBenchDecode(const CliOptions& options) {
  const Status status = Run(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
