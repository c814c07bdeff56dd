#include "apps/lab/eval/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "apps/lab/eval/files.h"
#include "apps/lab/eval/lines.h"
#include "ebb/sampler.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 2> kKeysOfParts = {"shard", "settings"};

// Fields that manifests of older versions lack, and that follow from other keys.
constexpr std::array<std::string_view, 4> kToldByOthers = {"model_compression", "model_window",
                                                           "model_shift", "answer_tokens"};

bool IsAmong(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
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

void Collect(EvalRun* run, Json* settings, std::vector<Answer>* answers) {
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

}  // namespace

Result<Json> ReadManifest(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(Json manifest, ReadJson(path));
  if (!manifest.is_object()) return manifest;
  const SamplingOptions before;
  if (!manifest.contains("top_k")) manifest["top_k"] = before.top_k;
  if (!manifest.contains("min_p")) manifest["min_p"] = before.min_p;
  if (!manifest.contains("batch")) manifest["batch"] = 0;
  if (!manifest.contains("device")) manifest["device"] = "";
  return manifest;
}

std::string DifferingKey(const Json& a, const Json& b,
                         std::span<const std::string_view> may_differ) {
  const auto differs = [&](const std::string& key) {
    // A path: the fingerprint identifies the file's contents.
    if (key == "task" || IsAmong(key, may_differ)) return false;
    if (a.contains(key) && b.contains(key)) return a[key] != b[key];
    return !IsAmong(key, kToldByOthers);
  };
  for (const Json& one : {a, b}) {
    for (const auto& [key, value] : one.items()) {
      if (differs(key)) return key;
    }
  }
  return "";
}

std::span<const std::string_view> KeysOfParts() { return kKeysOfParts; }

Result<EvalRun> ReadEvalRun(const std::string& folder) {
  EvalRun run = {.folder = folder};
  const auto path = [&](std::string_view name) { return fmt::format("{}/{}", folder, name); };
  EBB_ASSIGN_OR_RETURN(run.manifest, ReadManifest(path(kGridFile)));
  EBB_ASSIGN_OR_RETURN(const GridSize size, SizeOfGrid(run.manifest, path(kGridFile)));
  EBB_ASSIGN_OR_RETURN(run.results, ReadLines(path(kResultsFile)));
  EBB_RETURN_IF_ERROR(CheckResultLines(run.results, size, path(kResultsFile)));
  EBB_ASSIGN_OR_RETURN(run.times, ReadLines(path(kTimesFile)));
  EBB_RETURN_IF_ERROR(CheckTimeLines(run.times, path(kTimesFile)));
  run.times.resize(std::min(run.times.size(), run.results.size()));
  run.results.resize(run.times.size());
  return run;
}

Result<EvalRun> MergeRuns(std::vector<EvalRun> runs) {
  Json settings = Json::array();
  std::vector<Answer> answers;
  for (EvalRun& run : runs) {
    const std::string key = DifferingKey(runs[0].manifest, run.manifest, KeysOfParts());
    if (!key.empty()) {
      return InvalidArgument(
          fmt::format("{} and {} are answers to different questions: their \"{}\" differs",
                      runs[0].folder, run.folder, key));
    }
    Collect(&run, &settings, &answers);
  }
  std::ranges::stable_sort(answers, {},
                           [](const Answer& a) { return std::tuple(a.setting, a.problem); });
  EvalRun merged = {.folder = runs[0].folder, .manifest = std::move(runs[0].manifest)};
  merged.manifest["shard"] = "0/1";
  merged.manifest["settings"] = settings;
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool is_again = i > 0 && answers[i].setting == answers[i - 1].setting &&
                          answers[i].problem == answers[i - 1].problem;
    if (is_again && answers[i].result != merged.results.back()) {
      return InvalidArgument(fmt::format("two answers to problem {} of setting {} differ",
                                         answers[i].problem, answers[i].setting));
    }
    if (is_again) continue;
    merged.results.push_back(std::move(answers[i].result));
    merged.times.push_back(std::move(answers[i].time));
  }
  return merged;
}

size_t NumAsked(const EvalRun& run) {
  return run.manifest["settings"].size() * run.manifest["problems"].get<size_t>();
}

}  // namespace ebb::cli
