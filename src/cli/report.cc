// `ebb report`: shards of one evaluation, or evaluations of several settings, in one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "src/cli/bench_report.h"
#include "src/cli/commands.h"
#include "src/cli/eval_files.h"
#include "src/cli/eval_lines.h"
#include "src/cli/eval_summary.h"

namespace ebb::cli {
namespace {

struct Run {
  std::string folder;
  Json manifest;
  std::vector<Json> results;
  std::vector<Json> times;
};

// Keys of a manifest that may differ between runs that are put together.
bool MayDiffer(std::string_view key) { return key == "shard" || key == "settings"; }

Result<Run> ReadRun(const std::string& folder) {
  Run run = {.folder = folder};
  const auto path = [&](std::string_view name) { return fmt::format("{}/{}", folder, name); };
  EBB_ASSIGN_OR_RETURN(run.manifest, ReadJson(path(kGridFile)));
  EBB_ASSIGN_OR_RETURN(const GridSize size, SizeOfGrid(run.manifest, path(kGridFile)));
  EBB_ASSIGN_OR_RETURN(run.results, ReadLines(path(kResultsFile)));
  EBB_RETURN_IF_ERROR(CheckResultLines(run.results, size, path(kResultsFile)));
  EBB_ASSIGN_OR_RETURN(run.times, ReadLines(path(kTimesFile)));
  EBB_RETURN_IF_ERROR(CheckTimeLines(run.times, path(kTimesFile)));
  run.times.resize(std::min(run.times.size(), run.results.size()));
  run.results.resize(run.times.size());
  return run;
}

Status SameTask(const Run& one, const Run& other) {
  for (const auto& [key, value] : one.manifest.items()) {
    if (MayDiffer(key) || other.manifest.value(key, Json()) == value) continue;
    return InvalidArgument(
        fmt::format("{} and {} are answers to different questions: their "
                    "\"{}\" differs",
                    one.folder, other.folder, key));
  }
  return OkStatus();
}

// The place of each of the run's settings in `all`, which grows by those that are new.
std::vector<size_t> PlacesOf(const Json& settings, Json* all) {
  std::vector<size_t> places;
  for (const Json& setting : settings) {
    const auto found = std::find(all->begin(), all->end(), setting);
    places.push_back(static_cast<size_t>(found - all->begin()));
    if (found == all->end()) all->push_back(setting);
  }
  return places;
}

struct Answer {
  size_t setting = 0;
  size_t problem = 0;
  Json result;
  Json time;
};

void Collect(Run* run, Json* settings, std::vector<Answer>* answers) {
  const std::vector<size_t> places = PlacesOf(run->manifest["settings"], settings);
  for (size_t i = 0; i < run->results.size(); ++i) {
    Json& result = run->results[i];
    const size_t place = places[result["setting"].get<size_t>()];
    result["setting"] = place;
    run->times[i]["setting"] = place;
    const auto problem = result["problem"].get<size_t>();
    answers->push_back({place, problem, std::move(result), std::move(run->times[i])});
  }
}

Status WriteLines(const std::string& path, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines)
    text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return WriteFile(path, text);
}

Status Merge(const CliOptions& options) {
  const EvalInput& eval = options.eval;
  if (eval.folders.empty()) return InvalidArgument("expected folders that `ebb eval` wrote");
  if (eval.out.empty()) return InvalidArgument("--out FOLDER: where is the report to go?");
  Json manifest;
  Json settings = Json::array();
  std::vector<Answer> answers;
  Run first;
  for (const std::string& folder : eval.folders) {
    EBB_ASSIGN_OR_RETURN(Run run, ReadRun(folder));
    if (manifest.is_null()) {
      manifest = run.manifest;
      first = run;
    }
    EBB_RETURN_IF_ERROR(SameTask(first, run));
    Collect(&run, &settings, &answers);
  }
  manifest["shard"] = "0/1";
  manifest["settings"] = settings;
  std::ranges::stable_sort(answers, {},
                           [](const Answer& a) { return std::tuple(a.setting, a.problem); });
  std::vector<Json> results, times;
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool is_again = i > 0 && answers[i].setting == answers[i - 1].setting &&
                          answers[i].problem == answers[i - 1].problem;
    if (is_again && answers[i].result != results.back()) {
      return InvalidArgument(fmt::format("two answers to problem {} of setting {} differ",
                                         answers[i].problem, answers[i].setting));
    }
    if (is_again) continue;
    results.push_back(std::move(answers[i].result));
    times.push_back(std::move(answers[i].time));
  }
  const size_t num_asked = settings.size() * manifest["problems"].get<size_t>();
  if (results.size() < num_asked && !options.quiet) {
    fmt::print(stderr, "{} of {} answers are missing: of shards, or of runs that did not end\n",
               num_asked - results.size(), num_asked);
  }
  EBB_ASSIGN_OR_RETURN(Json summary, Summarize(results));
  if (!eval.against.empty()) EBB_RETURN_IF_ERROR(AddAgainst(eval.against, &summary));
  std::error_code error;
  std::filesystem::create_directories(eval.out, error);
  if (error) return IoError(fmt::format("cannot make {}: {}", eval.out, error.message()));
  const auto path = [&](std::string_view name) { return fmt::format("{}/{}", eval.out, name); };
  EBB_RETURN_IF_ERROR(WriteFile(path(kGridFile), manifest.dump(2) + "\n"));
  EBB_RETURN_IF_ERROR(WriteLines(path(kResultsFile), results));
  EBB_RETURN_IF_ERROR(WriteLines(path(kTimesFile), times));
  return WriteSummaries(eval.out, manifest, summary, results, times, options);
}

}  // namespace

ExitCode RunReport(const CliOptions& options) {
  const Status status = Merge(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
