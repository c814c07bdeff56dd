#include "ebb/lab/eval_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "ebb/lab/run_files.h"
#include "lab/eval/result_lines.h"
#include "lab/eval/run_manifest.h"
#include "lab/eval/setting_description.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

// RunFolder writes the answers of a run.
class RunFolder {
 public:
  // Claims the folder for a run, and reads the answers that it holds.
  static Result<std::unique_ptr<RunFolder>> Open(const Json& manifest, size_t num_settings,
                                                 size_t num_problems, const EvalRunOptions& run) {
    EBB_RETURN_IF_ERROR(Claim(manifest, run));
    std::unique_ptr<RunFolder> folder(new RunFolder);
    const std::string path = fmt::format("{}/{}", run.out, kResultsFile);
    const std::string times_path = fmt::format("{}/{}", run.out, kTimesFile);
    EBB_ASSIGN_OR_RETURN(folder->results_, LineFile::Open(path));
    EBB_ASSIGN_OR_RETURN(folder->times_, LineFile::Open(times_path));
    EBB_RETURN_IF_ERROR(
        CheckResultLines(folder->results_->lines(), {num_settings, num_problems}, path));
    EBB_RETURN_IF_ERROR(CheckOrder(folder->results_->lines(), num_problems, run.evaluation, path));
    EBB_RETURN_IF_ERROR(CheckTimeLines(folder->times_->lines(), times_path));
    // The process may have been killed between writing the two lines of an answer; the longer file
    // is cut to the shorter one.
    const size_t done = std::min(folder->results_->lines().size(), folder->times_->lines().size());
    EBB_RETURN_IF_ERROR(folder->results_->Truncate(done));
    EBB_RETURN_IF_ERROR(folder->times_->Truncate(done));
    return folder;
  }

  Status Append(const Json& result, const Json& time) {
    EBB_RETURN_IF_ERROR(results_->Append(result));
    return times_->Append(time);
  }
  [[nodiscard]] const std::vector<Json>& results() const { return results_->lines(); }
  [[nodiscard]] const std::vector<Json>& times() const { return times_->lines(); }

 private:
  // Writes the manifest into the folder, or checks that the run that is there has the same one.
  static Status Claim(const Json& manifest, const EvalRunOptions& run) {
    std::error_code error;
    std::filesystem::create_directories(run.out, error);
    if (error) return IoError(fmt::format("cannot make {}: {}", run.out, error.message()));
    const std::string path = fmt::format("{}/{}", run.out, kGridFile);
    if (!std::filesystem::exists(path)) return WriteFile(path, manifest.dump(2) + "\n");
    if (!run.resume) {
      return InvalidArgument(fmt::format(
          "{} holds a run already; resume it (--resume, resume=True), or choose another folder",
          run.out));
    }
    EBB_ASSIGN_OR_RETURN(Json there, ReadJson(path));
    if (!there.contains("format") || there["format"] != manifest["format"]) {
      return InvalidArgument(
          fmt::format("{} holds a run that another version of ebb began, which this one can report "
                      "and not continue; choose another folder",
                      run.out));
    }
    const std::string key = DifferingKey(manifest, there);
    if (!key.empty()) {
      return InvalidArgument(fmt::format(
          "{} holds another run: its \"{}\" differs; choose another folder", run.out, key));
    }
    const size_t num_machines = there["made_by"].size();
    EBB_RETURN_IF_ERROR(AddMachine(manifest, run.any_version, run.on_note, &there));
    if (there["made_by"].size() == num_machines) return OkStatus();
    return WriteFile(path, there.dump(2) + "\n");
  }

  // Checks that the lines are answers to this run's questions in their order and without gaps, so
  // that the run can continue after the last one.
  static Status CheckOrder(const std::vector<Json>& lines, size_t num_problems,
                           const EvaluationOptions& run, const std::string& path) {
    size_t i = 0;
    for (size_t setting = 0; i < lines.size(); ++setting) {
      for (size_t problem = run.shard; problem < num_problems && i < lines.size();
           problem += run.num_shards, ++i) {
        if (lines[i]["setting"] == setting && lines[i]["problem"] == problem) continue;
        return Corrupt(fmt::format(
            "{}, line {}: expected the answer to problem {} of setting {}; answers merged "
            "with gaps cannot be resumed",
            path, i + 1, problem, setting));
      }
    }
    return OkStatus();
  }

  std::unique_ptr<LineFile> results_;
  std::unique_ptr<LineFile> times_;
};

// Reports the answers that the folder holds.
Status ReportResumed(const RunFolder& folder, size_t total, const EvalRunOptions& run) {
  for (size_t i = 0; run.on_result && i < folder.results().size(); ++i) {
    EBB_RETURN_IF_ERROR(run.on_result({.line = LineText(folder.results()[i]),
                                       .seconds = folder.times()[i]["seconds"].get<double>(),
                                       .done = i + 1,
                                       .total = total,
                                       .was_there = true}));
  }
  return OkStatus();
}

}  // namespace

Status ParseShard(std::string_view text, EvaluationOptions* options) {
  size_t index = 0, count = 1;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, index);
  const bool has_slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = has_slash ? std::from_chars(first.ptr + 1, end, count) : first;
  if (!has_slash || second.ec != std::errc() || second.ptr != end || index >= count) {
    return InvalidArgument("shard",
                           fmt::format("expected I/N with I from 0 to N - 1, found \"{}\"", text));
  }
  options->shard = index;
  options->num_shards = count;
  return OkStatus();
}

Status RunEvaluationInFolder(const std::shared_ptr<const Model>& model,
                             std::vector<EvalSetting> settings, const EvalRunOptions& run) {
  EBB_ASSIGN_OR_RETURN(const EvalQuestions task, ReadEvalQuestions(run.task));
  const size_t num_problems = task.questions.size();
  EvaluationOptions evaluation = run.evaluation;
  if (evaluation.shard >= num_problems) {
    return InvalidArgument(
        "shard", fmt::format("{}/{} has no problems: there are {} in all", evaluation.shard,
                             evaluation.num_shards, num_problems));
  }
  EBB_ASSIGN_OR_RETURN(const SettingsOfRun prepared,
                       PrepareSettings(model, std::move(settings), run));
  const Json manifest = MakeManifest(*model, task, prepared.settings, run, prepared.instructions);
  std::unique_ptr<RunFolder> folder;
  size_t done = 0;
  const size_t total =
      NumUnits(prepared.settings.size(), num_problems, evaluation.shard, evaluation.num_shards);
  if (!run.out.empty()) {
    EBB_ASSIGN_OR_RETURN(folder,
                         RunFolder::Open(manifest, prepared.settings.size(), num_problems, run));
    EBB_RETURN_IF_ERROR(ReportResumed(*folder, total, run));
    done = folder->results().size();
  }
  evaluation.first_unit = done;
  evaluation.on_answer = [&](const EvalAnswer& answer) -> Status {
    if (run.check) EBB_RETURN_IF_ERROR(run.check());
    const Json line =
        ResultLine(answer, prepared.settings[answer.setting], task.questions[answer.problem]);
    if (folder != nullptr) EBB_RETURN_IF_ERROR(folder->Append(line, TimeLine(answer)));
    ++done;
    if (!run.on_result) return OkStatus();
    return run.on_result(
        {.line = LineText(line), .seconds = answer.seconds, .done = done, .total = total});
  };
  return RunEvaluation(model, task.questions, prepared.settings, evaluation);
}

}  // namespace ebb
