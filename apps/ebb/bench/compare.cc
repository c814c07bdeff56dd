#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/ebb/bench/peer.h"
#include "apps/ebb/bench/report.h"
#include "apps/ebb/commands.h"
#include "apps/ebb/pull/built_in_models.h"
#include "apps/ebb/pull/known_models.h"
#include "apps/ebb/setup.h"
#include "apps/ebb/terminal/progress.h"
#include "ebb/device.h"
#include "ebb/lab/benchmark.h"

namespace ebb::cli {
namespace {

using Arguments = std::vector<std::string>;

constexpr int kBatchSequences = 8;
constexpr int kBatchDepth = 512;
constexpr std::string_view kFirstTokenPrompt =
    "The tide rises and falls twice a day because the Moon and the Sun pull at the sea. "
    "A sailor who knows the hour of high water";

enum class Better { kHigher, kLower };

// One row of the comparison.
struct Match {
  std::string bench;
  PeerWork work;
  std::string_view unit;
  Better better = Better::kHigher;
  MeasuredCommand ebb;
  std::array<MeasuredCommand, 2> peers;  // flash attention off, on
};

// The options of the model and the machine as they were given, for a process of our own.
Arguments ForwardedOptions(const CliOptions& options) {
  Arguments arguments;
  for (const OptionRow& row : OptionTable()) {
    const bool ours = std::ranges::find(ModelGroups(), row.group) != ModelGroups().end();
    if (!ours || !row.show || row.show(options) == row.show(CliOptions())) continue;
    arguments.push_back(row.names.substr(row.names.rfind(',') + 1));
    arguments.push_back(row.show(options));
  }
  if (options.model.weights == WeightMode::kDequantize) arguments.emplace_back("--dequantize");
  if (options.engine.kv_cap_bytes > 0) {
    arguments.insert(arguments.end(), {"--kv-cap", std::to_string(options.engine.kv_cap_bytes)});
  }
  return arguments;
}

// What every match needs to know.
struct Sides {
  const CliOptions& options;
  std::string program;  // this one
  std::string peer_folder;
  PeerWork work;  // model, threads, kv type
};

Result<Sides> FindSides(const CliOptions& options) {
  std::error_code error;
  Sides sides = {.options = options,
                 .program = std::filesystem::read_symlink("/proc/self/exe", error),
                 .peer_folder = PeerFolder(options),
                 .work = {}};
  if (error) return IoError(fmt::format("/proc/self/exe: {}", error.message()));
  if (IsBuiltInModel(options.model.path)) {
    return InvalidArgument(fmt::format(
        "the peer reads files, and {} is inside this program: name a file", options.model.path));
  }
  EBB_ASSIGN_OR_RETURN(sides.work.model_path, FindModelFile(options.model.path));
  if (!std::filesystem::exists(sides.work.model_path, error)) {
    return NotFound(fmt::format("there is no model {}; run \"ebb pull\", or give one with -m FILE",
                                sides.work.model_path));
  }
  sides.work.threads =
      options.engine.threads > 0 ? options.engine.threads : AvailableProcessors().threads;
  sides.work.kv_type = options.engine.kv_type;
  sides.work.prompt_tokens = options.bench.prompt_tokens;
  sides.work.tokens = options.bench.tokens;
  sides.work.repetitions = options.bench.repetitions;
  return sides;
}

// "ebb bench NAME" with the work's figures.
MeasuredCommand OwnBench(const Sides& sides, std::string_view name, const PeerWork& work,
                         Result<std::vector<double>> (*read)(const ProcessResult&)) {
  Arguments arguments = {sides.program,
                         "bench",
                         std::string(name),
                         "--json",
                         "--quiet",
                         "--depth",
                         std::to_string(work.depth),
                         "--repetitions",
                         std::to_string(work.repetitions)};
  const auto add = [&](const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
  };
  if (name == "prefill") {
    add({"--prompt", std::to_string(work.prompt_tokens)});
  } else {
    add({"--tokens", std::to_string(work.tokens), "--sequences", std::to_string(work.sequences)});
    if (sides.options.bench.no_mass) add({"--no-mass"});
  }
  add(ForwardedOptions(sides.options));
  return {.arguments = std::move(arguments), .read = read};
}

Result<std::vector<double>> ReadSamples(const ProcessResult& result) {
  return ReadJsonNumbers(result.output, "samples");
}

using PeerCommand = Result<MeasuredCommand> (*)(const std::string& folder, const PeerWork& work,
                                                FlashAttention flash);

Result<Match> BenchMatch(const Sides& sides, Match match, std::string_view own_bench,
                         PeerCommand peer) {
  const bool memory = match.bench == "peak_memory";
  match.ebb = OwnBench(sides, own_bench, match.work, memory ? ReadPeakBytes : ReadSamples);
  EBB_ASSIGN_OR_RETURN(match.peers[0], peer(sides.peer_folder, match.work, FlashAttention::kOff));
  EBB_ASSIGN_OR_RETURN(match.peers[1], peer(sides.peer_folder, match.work, FlashAttention::kOn));
  return match;
}

Result<Match> FirstTokenMatch(const Sides& sides) {
  Match match = {.bench = "first_token", .work = sides.work, .unit = "s", .better = Better::kLower};
  match.ebb.arguments = {sides.program, "run", "--raw", "--quiet", "--temp",
                         "0",           "-n",  "1",     "-p",      std::string(kFirstTokenPrompt)};
  const Arguments forwarded = ForwardedOptions(sides.options);
  match.ebb.arguments.insert(match.ebb.arguments.end(), forwarded.begin(), forwarded.end());
  match.ebb.read = ReadSeconds;
  for (const FlashAttention flash : {FlashAttention::kOff, FlashAttention::kOn}) {
    EBB_ASSIGN_OR_RETURN(match.peers[static_cast<int>(flash)],
                         PeerFirstToken(sides.peer_folder, match.work, flash, kFirstTokenPrompt));
  }
  return match;
}

Result<std::vector<Match>> MatchesOf(Contest contest, const Sides& sides) {
  const BenchOptions& o = sides.options.bench;
  std::vector<Match> matches;
  const auto add = [&](Match match, std::string_view own_bench, PeerCommand peer) -> Status {
    EBB_ASSIGN_OR_RETURN(match, BenchMatch(sides, std::move(match), own_bench, peer));
    matches.push_back(std::move(match));
    return OkStatus();
  };
  PeerWork work = sides.work;
  switch (contest) {
    case Contest::kDecode:
      for (const int depth : o.decode_depths) {
        work.depth = depth;
        EBB_RETURN_IF_ERROR(
            add({.bench = "decode", .work = work, .unit = "tokens/s"}, "decode", PeerDecode));
      }
      break;
    case Contest::kPrefill:
      for (const int depth : o.prefill_depths) {
        work.depth = depth;
        EBB_RETURN_IF_ERROR(
            add({.bench = "prefill", .work = work, .unit = "tokens/s"}, "prefill", PeerPrefill));
      }
      break;
    case Contest::kBatched:
      work.depth = kBatchDepth;
      work.sequences = kBatchSequences;
      EBB_RETURN_IF_ERROR(
          add({.bench = "batched", .work = work, .unit = "tokens/s"}, "decode", PeerBatched));
      break;
    case Contest::kPeakMemory:
      work.depth = *std::ranges::max_element(o.decode_depths);
      work.repetitions = 1;
      EBB_RETURN_IF_ERROR(
          add({.bench = "peak_memory", .work = work, .unit = "bytes", .better = Better::kLower},
              "decode", PeerPeakMemory));
      break;
    case Contest::kFirstToken: {
      EBB_ASSIGN_OR_RETURN(Match match, FirstTokenMatch(sides));
      matches.push_back(std::move(match));
      break;
    }
  }
  return matches;
}

// The measurements of one side: all of them, and the median of each round.
struct Samples {
  std::vector<double> all;
  std::vector<double> round_medians;
};

Status TakeTurn(const MeasuredCommand& measured, Samples* samples) {
  EBB_ASSIGN_OR_RETURN(const ProcessResult result,
                       RunProcess(measured.arguments, ProcessOutput::kKeepAlone));
  const auto failed = [&](const std::string& why) {
    std::string command;
    for (const std::string& argument : measured.arguments) command += " " + argument;
    return IoError(why + "; to see for yourself:" + command);
  };
  if (result.exit_code != 0) {
    return failed(fmt::format("a measurement ended with exit code {}", result.exit_code));
  }
  const auto values = measured.read(result);
  if (!values.ok()) return failed(values.status().message());
  samples->all.insert(samples->all.end(), values->begin(), values->end());
  samples->round_medians.push_back(SpreadOf(*values).median);
  return OkStatus();
}

struct Outcome {
  Samples ebb;
  std::array<Samples, 2> peers;
  double others_share = 0;

  [[nodiscard]] size_t BestPeer(Better better) const {
    const double off = SpreadOf(peers[0].all).median, on = SpreadOf(peers[1].all).median;
    return (better == Better::kHigher ? on > off : on < off) ? 1 : 0;
  }
};

Result<Outcome> Play(const Match& match, int rounds, const std::function<void()>& after_turn) {
  Outcome outcome;
  const MachineWatch watch;
  const auto play_round = [&](Outcome* to) -> Status {
    EBB_RETURN_IF_ERROR(TakeTurn(match.ebb, &to->ebb));
    after_turn();
    for (size_t i = 0; i < match.peers.size(); ++i) {
      EBB_RETURN_IF_ERROR(TakeTurn(match.peers[i], &to->peers[i]));
      after_turn();
    }
    return OkStatus();
  };
  if (match.bench == "first_token") {
    Outcome warm_up;  // the page cache is to be warm, for both sides
    EBB_RETURN_IF_ERROR(play_round(&warm_up));
  }
  for (int round = 0; round < rounds; ++round) EBB_RETURN_IF_ERROR(play_round(&outcome));
  outcome.others_share = watch.OthersShare();
  return outcome;
}

Status Report(const CliOptions& options, const Match& match, const Outcome& outcome) {
  const size_t best = outcome.BestPeer(match.better);
  const Samples& peer_samples = outcome.peers[best];
  const Spread ebb = SpreadOf(outcome.ebb.all), peer = SpreadOf(peer_samples.all);
  std::vector<double> ratios;
  for (size_t round = 0; round < peer_samples.round_medians.size(); ++round) {
    ratios.push_back(outcome.ebb.round_medians[round] / peer_samples.round_medians[round]);
  }
  const Spread ratio = SpreadOf(ratios);
  Json record = {{"bench", match.bench},
                 {"depth", match.work.depth},
                 {"threads", match.work.threads},
                 {"unit", match.unit},
                 {"ebb", ToJson(ebb)},
                 {"peer", ToJson(peer)},
                 {"ratio", ebb.median / peer.median},
                 {"ratio_min", ratio.min},
                 {"ratio_max", ratio.max},
                 {"peer_flash_attention", best == 1},
                 {"peer_fa0", ToJson(SpreadOf(outcome.peers[0].all))},
                 {"peer_fa1", ToJson(SpreadOf(outcome.peers[1].all))},
                 {"prompt", match.work.prompt_tokens},
                 {"tokens", match.work.tokens},
                 {"sequences", match.work.sequences},
                 {"rounds", options.bench.rounds},
                 {"repetitions", match.work.repetitions},
                 {"kv_type", RowTypeName(match.work.kv_type)},
                 {"model", match.work.model_path},
                 {"machine", MachineName()},
                 {"others_share", outcome.others_share}};
  if (match.bench == "decode" || match.bench == "batched") record["mass"] = !options.bench.no_mass;
  return WriteRecord(
      options, record,
      fmt::format("{} at depth {}: ebb {}, llama.cpp -fa {} {} {}; ratio {:.3g} ({:.3g} - {:.3g})",
                  match.bench, match.work.depth, ToText(ebb), best, ToText(peer), match.unit,
                  ebb.median / peer.median, ratio.min, ratio.max));
}

Status Run(const CliOptions& options) {
  (void)InstallInterruptHandler();  // once: a Ctrl-C between two turns is one of the comparison
  EBB_ASSIGN_OR_RETURN(const Sides sides, FindSides(options));
  std::vector<Match> matches;
  for (const Contest contest : options.bench.contests) {
    EBB_ASSIGN_OR_RETURN(const std::vector<Match> more, MatchesOf(contest, sides));
    matches.insert(matches.end(), more.begin(), more.end());
  }
  const auto display = options.quiet ? ProgressBar::Display::kOff : ProgressBar::Display::kAuto;
  for (const Match& match : matches) {
    Outcome outcome;
    {
      int64_t turns = 0;
      ProgressBar bar(fmt::format("{} at depth {}", match.bench, match.work.depth), "turns",
                      int64_t{3} * options.bench.rounds, display);
      EBB_ASSIGN_OR_RETURN(outcome,
                           Play(match, options.bench.rounds, [&] { bar.Update(++turns); }));
    }
    WarnOfOthers(outcome.others_share);
    EBB_RETURN_IF_ERROR(Report(options, match, outcome));
  }
  return OkStatus();
}

}  // namespace

ExitCode RunBenchCompare(const CliOptions& options) {
  const Status status = Run(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
