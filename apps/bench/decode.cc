#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/bench/file.h"
#include "apps/bench/session.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/progress.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

using Clock = std::chrono::steady_clock;

// kGenerationPrompt is how many tokens are prefilled before --generate begins.
constexpr Position kGenerationPrompt = 64;
constexpr int kWarmUpSteps = 2;

struct StepTimes {
  double seconds = 0;          // sum over all steps
  double compute_seconds = 0;  // the part of `seconds` in the graph
  double policy_seconds = 0;   // the part in the policy: observing, selecting, moving, evicting
};

// Decodes `steps` tokens in each session, in batches, and returns how long this took.
Result<StepTimes> Decode(BenchSession* bench, std::span<Session* const> sessions, int64_t steps) {
  std::vector<Token> tokens(sessions.size());
  StepTimes times;
  const Clock::time_point start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    for (Token& token : tokens) token = bench->tokens.Next();
    EBB_RETURN_IF_ERROR(bench->engine->DecodeBatch(sessions, tokens).status);
    const StepReport& first = sessions[0]->last_step();  // the report of the batch's common graph
    times.compute_seconds += first.compute_seconds - first.select_seconds;
    times.policy_seconds += first.select_seconds;
    for (const Session* session : sessions) {
      times.policy_seconds += session->last_step().policy_seconds;
    }
  }
  times.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EBB_RETURN_IF_ERROR(CheckCancelled(*bench));
  return times;
}

// Team is a group of sessions that decode in one batch, with their measurements.
struct Team {
  std::vector<Session*> sessions;
  bool mass = false;
  std::vector<double> tokens_per_s;  // [repetitions]
  std::vector<double> compute_ms;    // per step
  std::vector<double> policy_ms;
  FileSpeed file;
};

// Returns the measured sessions as one team and, if there are rivals to compare with, these as a
// second one.
std::vector<Team> MakeTeams(const BenchOptions& options, const BenchSession& bench) {
  std::vector<Team> teams(bench.sessions.size() / options.sequences);
  for (size_t i = 0; i < bench.sessions.size(); ++i) {
    teams[i / options.sequences].sessions.push_back(bench.sessions[i].get());
  }
  return teams;
}

Status MeasureOnce(const CliOptions& options, BenchSession* bench, Team* team) {
  const int steps = options.Of<BenchOptions>().tokens;
  const Position depth = team->sessions[0]->next_position();
  EBB_ASSIGN_OR_RETURN(const StepTimes times, Decode(bench, team->sessions, steps));
  const auto tokens = static_cast<double>(steps * team->sessions.size());
  team->tokens_per_s.push_back(tokens / times.seconds);
  team->compute_ms.push_back(times.compute_seconds * 1e3 / steps);
  team->policy_ms.push_back(times.policy_seconds * 1e3 / steps);
  team->mass = team->sessions[0]->last_step().mass_computed;
  if (team->sessions.size() == 1) {
    EBB_RETURN_IF_ERROR(
        team->file.After(steps, team->tokens_per_s.back(), *bench->engine, *team->sessions[0]));
  }
  if (!CanRollBack(*team->sessions[0])) return OkStatus();
  for (Session* session : team->sessions) EBB_RETURN_IF_ERROR(session->TruncateTo(depth));
  return OkStatus();
}

// Measures each repetition with one team after the other, from the current end of the sessions.
// After each repetition, truncates the sessions back to that point. If the policy has evicted or
// moved rows, truncating would not restore them, so that the next repetition continues at the new
// end.
Result<std::vector<Team>> Measure(const CliOptions& options, BenchSession* bench) {
  std::vector<Team> teams = MakeTeams(options.Of<BenchOptions>(), *bench);
  for (int repetition = 0; repetition < options.Of<BenchOptions>().repetitions; ++repetition) {
    for (Team& team : teams) EBB_RETURN_IF_ERROR(MeasureOnce(options, bench, &team));
  }
  return teams;
}

int64_t RowsKept(const Team& team) {
  int64_t rows = 0;
  for (const Session* session : team.sessions) {
    for (const TierAccounting& tier : session->accounting().tiers) rows += tier.rows;
  }
  return rows;
}

// Returns the ratio of two teams' speeds, for each repetition.
Spread Ratio(const Team& of, const Team& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.tokens_per_s.size(); ++i) {
    ratios.push_back(of.tokens_per_s[i] / to.tokens_per_s[i]);
  }
  return SpreadOf(ratios);
}

// Adds the rivals' figures to the record and the text.
void AddRival(const BenchOptions& options, const Team& team, const Team& rival, Json* record,
              std::string* text) {
  const Json speed = ToJson(SpreadOf(rival.tokens_per_s));
  if (options.against_full) {
    const Spread ratio = Ratio(team, rival);
    (*record)["full_cache"] = speed;
    (*record)["full_cache_rows"] = RowsKept(rival);
    (*record)["ratio"] = ToJson(ratio);
    *text += fmt::format("; {:.3f} ({:.3f} - {:.3f}) of the full cache's speed with as many rows",
                         ratio.median, ratio.min, ratio.max);
    return;
  }
  // Mass costs this share of a step without mass.
  Spread cost = Ratio(rival, team);
  for (double* share : {&cost.median, &cost.min, &cost.max}) *share -= 1;
  (*record)["without_mass"] = speed;
  (*record)["mass_cost"] = ToJson(cost);
  *text += fmt::format("; mass costs {:.1f} % of a step", cost.median * 100);
}

Status Report(const CliOptions& options, const BenchSession& bench, int64_t depth,
              std::span<const Team> teams, double others_share, const Json& timeline) {
  const Team& team = teams.front();
  const Spread speed = SpreadOf(team.tokens_per_s);
  const ArenaAccounting arena = bench.engine->arena_accounting();
  const uint64_t resident = ResidentBytes();
  EBB_ASSIGN_OR_RETURN(const size_t policy_bytes, bench.sessions[0]->CountPolicyBytes());
  Json record = {{"bench", "decode"},
                 {"depth", depth},
                 {"tokens_per_s", ToJson(speed)},
                 {"samples", team.tokens_per_s},
                 {"mass", team.mass},
                 {"sequences", team.sessions.size()},
                 {"tokens", options.Of<BenchOptions>().tokens},
                 {"repetitions", options.Of<BenchOptions>().repetitions},
                 {"compute_ms", SpreadOf(team.compute_ms).median},
                 {"policy_ms", SpreadOf(team.policy_ms).median},
                 {"rows_kept", RowsKept(team)},
                 {"kv_bytes", arena.reserved_bytes},
                 {"kv_used_bytes", arena.used_bytes},
                 {"table_bytes", bench.sessions[0]->accounting().table_bytes},
                 {"policy_bytes", policy_bytes},
                 {"rss_bytes", resident},
                 {"peak_rss_bytes", PeakResidentBytes()},
                 {"others_share", others_share}};
  AddEngineFields(options, *bench.engine, *bench.sessions[0], &record);
  if (!timeline.empty()) record["timeline"] = timeline;
  if (const Json file = team.file.Record(); !file.is_null()) record["t1_file"] = file;
  std::string text = fmt::format("decode at depth {}: {} tokens/s; {}{}", depth, ToText(speed),
                                 bench.sessions[0]->policy().name, team.mass ? ", with mass" : "");
  text += team.file.Text();
  if (teams.size() > 1) AddRival(options.Of<BenchOptions>(), teams[0], teams[1], &record, &text);
  return WriteRecord(options, record, text);
}

// Decodes up to `end` tokens and records speed and memory at sixteen points on the way.
Result<Json> Generate(int64_t end, const CliOptions& options, BenchSession* bench) {
  constexpr int64_t kNotes = 16;
  const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  ProgressBar bar("generating", "tokens", end, display);
  Json timeline = Json::array();
  Team team = std::move(MakeTeams(options.Of<BenchOptions>(), *bench).front());
  const int64_t begin = bench->sessions[0]->next_position();
  for (int64_t note = 1; note <= kNotes; ++note) {
    const int64_t until = begin + (end - begin) * note / kNotes;
    const int64_t from = bench->sessions[0]->next_position();
    if (until == from) continue;
    double seconds = 0;
    for (int64_t at = from; at < until;) {
      constexpr int64_t kStepsBetweenUpdates = 16;
      const int64_t steps = std::min(kStepsBetweenUpdates, until - at);
      EBB_ASSIGN_OR_RETURN(const StepTimes times, Decode(bench, team.sessions, steps));
      seconds += times.seconds;
      at += steps;
      bar.Update(at);
    }
    timeline.push_back({{"tokens", until},
                        {"tokens_per_s", static_cast<double>(until - from) / seconds},
                        {"rss_bytes", ResidentBytes()},
                        {"kv_bytes", bench->engine->arena_accounting().reserved_bytes},
                        {"rows_kept", RowsKept(team)}});
  }
  return timeline;
}

// Generates --generate tokens; the repetitions measure the last of them.
Status MeasureGeneration(const CliOptions& options, BenchSession* bench) {
  const BenchOptions& o = options.Of<BenchOptions>();
  const Sessions all = bench->sessions;
  const Sessions own = all.first(o.sequences), rivals = all.subspan(o.sequences);
  const auto prompt = std::min<Position>(kGenerationPrompt, o.generate);
  EBB_RETURN_IF_ERROR(FillTo(prompt, options, own, bench));
  const int64_t measured = int64_t{o.tokens} * o.repetitions;
  const MachineWatch watch;
  EBB_ASSIGN_OR_RETURN(const Json timeline, Generate(o.generate - measured, options, bench));
  if (!rivals.empty()) {
    const auto rows = static_cast<Position>(own[0]->visible_positions(0).size());
    EBB_RETURN_IF_ERROR(FillTo(rows, options, rivals, bench));
  }
  EBB_ASSIGN_OR_RETURN(const std::vector<Team> teams, Measure(options, bench));
  const double others = watch.OthersShare();
  WarnOfOthers(others);
  return Report(options, *bench, o.generate, teams, others, timeline);
}

Status MeasureDepths(const CliOptions& options, BenchSession* bench) {
  std::vector<int> depths = options.Of<BenchOptions>().depths;
  std::ranges::sort(depths);
  for (const int depth : depths) {
    EBB_RETURN_IF_ERROR(FillTo(depth, options, bench->sessions, bench));
    for (const Team& team : MakeTeams(options.Of<BenchOptions>(), *bench)) {
      EBB_RETURN_IF_ERROR(Decode(bench, team.sessions, kWarmUpSteps).status());
    }
    if (CanRollBack(*bench->sessions[0])) {
      EBB_RETURN_IF_ERROR(FillTo(depth, options, bench->sessions, bench));
    }
    const MachineWatch watch;
    EBB_ASSIGN_OR_RETURN(const std::vector<Team> teams, Measure(options, bench));
    const double others = watch.OthersShare();
    WarnOfOthers(others);
    EBB_RETURN_IF_ERROR(Report(options, *bench, depth, teams, others, Json()));
  }
  return OkStatus();
}

}  // namespace

Status BenchDecode(const CliOptions& options) {
  const BenchOptions& o = options.Of<BenchOptions>();
  const int64_t measured = int64_t{o.tokens} * o.repetitions;
  if (o.generate > 0 && o.generate < kGenerationPrompt + measured) {
    return InvalidArgument(fmt::format(
        "--generate {}: expected at least {}, for a prompt of {} and {} repetitions of "
        "{} tokens",
        o.generate, kGenerationPrompt + measured, kGenerationPrompt, o.repetitions, o.tokens));
  }
  const PolicySpec& policy = options.session.policy;
  if (o.generate == 0 && policy.tiers.has_value() && options.engine.tiers->t0_cap_bytes == 0 &&
      !ReadsSelectively(policy.tiers) && !CompressesOldRows(policy.tiers)) {
    return InvalidArgument(
        "shares of tiers are of generated rows, and --depth fills the cache with a prompt: nothing "
        "would move; give --t0 a size (--t0 64MiB), or --generate N");
  }
  const int64_t deepest = *std::ranges::max_element(o.depths);
  // Only a full cache can be truncated after each repetition, so that all repetitions decode the
  // same positions; with another policy each repetition appends its own tokens.
  const bool is_full = policy.name == "full" && !policy.tiers.has_value();
  const int64_t decoded = is_full ? o.tokens : kWarmUpSteps + measured;
  const int64_t longest = o.generate > 0 ? o.generate : deepest + decoded;
  if (o.mass_cost && (o.no_mass || o.generate > 0)) {
    return InvalidArgument("--mass-cost goes with neither --no-mass nor --generate");
  }
  if (o.against_full && (o.generate == 0 || is_full)) {
    return InvalidArgument("--against-full goes with --generate and a policy that drops rows");
  }
  const BenchMass mass = o.no_mass ? BenchMass::kOff : BenchMass::kOn;
  const BenchRival rival = o.mass_cost      ? BenchRival::kNoMass
                           : o.against_full ? BenchRival::kFullCache
                                            : BenchRival::kNone;
  EBB_ASSIGN_OR_RETURN(BenchSession bench, OpenBenchSession(options, mass, rival, longest));
  return o.generate > 0 ? MeasureGeneration(options, &bench) : MeasureDepths(options, &bench);
}

}  // namespace ebb::cli
